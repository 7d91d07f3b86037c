//! Sessions with a PostgreSQL server that a secret of kind `postgres` is for. Both logins end here: the container's, where
//! only a stand-in that was granted lets in ([`door`]), and the server's, where the real password does ([`upstream`]). What
//! passes between them afterwards is the session ([`pump`]). A request to cancel comes on a connection of its own
//! ([`sessions`]).

pub mod admission;
mod derivations;
mod door;
pub mod message;
mod pump;
mod scrubber;
mod sessions;
mod upstream;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use understudy_policies::{HostName, PolicySet};

pub use self::sessions::Sessions;

pub(super) use self::door::ALPN;
use self::door::Visitor;
use self::message::{CancelKey, LONGEST_OPENING, Opening, Startup, say};
use self::scrubber::Scrubber;
use self::sessions::Target;
use self::upstream::{Upstream, Use};
use super::line::{Fault, Line};
use super::relay::Passed;
use crate::container::Container;
use crate::credentials::Vault;
use crate::credentials::postgres::Login;
use crate::decide::{Permit, decide_postgres};
use crate::dns::Origin;
use crate::operator::{ended, within_limits, within_rate};
use crate::proxy::{Gateway, Replay};
use crate::reason::Reason;
use crate::tls::Leaves;

/// For a side to read what it was told last, or to notice that the other one has gone.
const FAREWELL: Duration = Duration::from_secs(3);
/// The most characters that are told of why a server lets nobody in.
const LONGEST_WHY: usize = 1000;

/// A connection to such a server.
pub(super) struct Postgres {
    pub(super) stream: Replay,
    pub(super) host: HostName,
    pub(super) port: u16,
    /// Whether its first bytes are a ClientHello.
    pub(super) direct: bool,
}

/// The server, if a secret of the installation is for it, with or without a grant, or a rule of the container is about it:
/// then it is never passed through.
pub(super) fn server<'o>(
    vault: &Vault,
    container: &Container,
    origin: &'o Origin,
    port: u16,
) -> Option<&'o HostName> {
    let Origin::Name(name) = origin else { return None };
    is_server(vault, &container.rights().policy, name, port).then_some(name)
}

pub(super) fn is_server(vault: &Vault, policy: &PolicySet, host: &HostName, port: u16) -> bool {
    vault.postgres_at(host, port).next().is_some() || policy.is_about_postgres(host, port)
}

impl Postgres {
    /// Ok once the session, or the request to cancel, has ended by itself. Dropping it cuts both connections.
    pub(super) async fn serve(
        self,
        container: &Arc<Container>,
        gateway: &Gateway,
        line: &mut Line,
    ) -> Result<(), Fault> {
        let Self { stream, host, port, direct } = self;
        line.entry(|entry| {
            (entry.protocol, entry.host, entry.port) = ("postgres", Some(host.to_string()), Some(port));
        });
        let leaves = gateway.leaves(container);
        let opened = timeout(gateway.limits().handshake, async {
            let visitor =
                if direct { Visitor::direct(stream, &host, leaves).await? } else { Visitor::new(stream) };
            visitor.opening(Some((&host, leaves))).await
        });
        let late = |_| Fault::new(Reason::Timeout, "no PostgreSQL client has said so in time");
        let (mut visitor, opening) = match opened.await.map_err(late)? {
            Ok(opened) => opened,
            Err(door::Refused { visitor, fault }) => {
                if let Some(visitor) = visitor {
                    visitor.dismiss(&last_words(None, &fault)).await;
                }
                return Err(fault);
            }
        };
        let startup = match opening {
            Opening::Start(startup) => startup,
            Opening::Cancel(key) => return cancel(key, (&host, port), container, gateway, line).await,
            Opening::Tls | Opening::Gss => return Err(Fault::new(Reason::Internal, "no opening")),
        };
        line.entry(|entry| {
            entry.method = Some("connect".to_owned());
            entry.path = Some(format!("/{}", startup.database()));
        });
        let session = Session { host, port, startup, container, gateway };
        match session.begin(&mut visitor, line).await {
            Ok(begun) => session.run(visitor, begun, line).await,
            Err(upstream::Refused { fault, sqlstate }) => {
                visitor.dismiss(&last_words(sqlstate.as_deref(), &fault)).await;
                Err(fault)
            }
        }
    }
}

/// A session that a container has asked for.
struct Session<'s> {
    host: HostName,
    port: u16,
    startup: Startup,
    container: &'s Arc<Container>,
    gateway: &'s Gateway,
}

/// A session that the server is ready for.
struct Begun {
    upstream: Upstream,
    /// What it has said so far, as the container may see it.
    greeting: Bytes,
    scrubber: Scrubber,
    passed: Arc<Passed>,
    secret: String,
    permit: Permit,
}

impl Session<'_> {
    /// In the order in which `explain` tells it: the login, the policy, the server.
    async fn begin(&self, visitor: &mut Visitor, line: &mut Line) -> Result<Begun, upstream::Refused> {
        let Self { host, port, startup, container, gateway } = self;
        let patience = gateway.limits().handshake;
        let (vault, rights) = (gateway.vault().current(), container.rights());
        let turns = &container.postgres.derivations;
        let login = async {
            if let Some(negotiation) = startup.negotiation() {
                visitor.say(&negotiation).await?;
            }
            visitor.login(startup.user(), &vault, &rights.grants, (host, *port), turns).await
        };
        let secret =
            timeout(patience, login).await.map_err(|_| Fault::new(Reason::Timeout, "no login in time"));
        let secret = match secret? {
            Ok(secret) => secret,
            Err(door::Rejected { fault, secrets }) => {
                line.entry(|entry| entry.secrets = secrets);
                return Err(fault.into());
            }
        };
        line.entry(|entry| entry.secrets = vec![secret.clone()]);
        // Of now: a login takes as long as the container likes.
        let (vault, rights) = (gateway.vault().current(), container.rights());
        if !rights.grants.contains(&secret) {
            let fault =
                Fault::new(Reason::CredentialNotGranted, "its secret was taken away while it logged in");
            return Err(fault.about(&secret).into());
        }
        let permit = decide_postgres(&rights.policy, host, *port, startup.database()).map_err(Fault::of)?;
        line.entry(|entry| entry.rule = Some(permit.rule().to_owned()));
        within_limits(container).map_err(Fault::of)?;
        within_rate(container, &permit).map_err(Fault::of)?;
        let using = Use::of(&vault, &secret, host, *port)?;
        let (passed, mut scrubber) = (Passed::new(container), Scrubber::new(container, gateway.vault()));
        let connecting =
            timeout(patience, upstream::connect(gateway, &permit, &using, startup, turns, &passed));
        let late = |_| Fault::new(Reason::UpstreamTimeout, &format!("{host}: no session in time"));
        let connected = connecting.await.map_err(late)?;
        let heard = match connected {
            Ok(mut upstream) => {
                heard(&mut upstream, &mut scrubber, &passed).map(|greeting| (upstream, greeting))
            }
            Err(refused) => Err(as_told(refused, &mut scrubber, &passed)),
        };
        line.entry(|entry| entry.scrubbed = scrubber.replaced());
        let (upstream, greeting) = heard?;
        Ok(Begun { upstream, greeting, scrubber, passed, secret, permit })
    }

    async fn run(&self, mut visitor: Visitor, begun: Begun, line: &mut Line) -> Result<(), Fault> {
        let Self { host, port, startup, container, gateway } = self;
        let Begun { upstream, greeting, scrubber, passed, secret, permit } = begun;
        let Upstream { stream, key, login, .. } = upstream;
        let mut hello = say::ok();
        let registered = match key {
            Some(key) => {
                let given = random_key()?;
                hello.extend(given.message());
                let (host, database) = (host.clone(), startup.database().to_owned());
                let target = Target { host, port: *port, database, secret: secret.clone(), key };
                Some(container.postgres.register(given, target))
            }
            None => None,
        };
        hello.extend(greeting);
        line.passes(permit.rule(), &passed);
        let late = |_| Fault::new(Reason::Timeout, "logged in, and not listening");
        timeout(gateway.limits().handshake, visitor.say(&hello)).await.map_err(late)??;
        let (mut ends, mut down) = pump::ends(visitor.stream, stream, scrubber);
        let result = tokio::select! {
            // Asked first, so that nothing passes of a session that has nothing to stand on; it waits most of the time.
            biased;
            fault = self.withdrawn(&secret, &login) => Err(fault),
            result = pump::pump(&mut ends, &mut down, &passed) => result,
        };
        if let Err(fault) = &result {
            down.tell(&last_words(None, fault)).await;
        }
        line.entry(|entry| entry.scrubbed = down.replaced());
        drop(registered);
        result
    }

    /// Returns once policy, grants or what is declared of the secret do not allow it any more.
    async fn withdrawn(&self, secret: &str, login: &Login) -> Fault {
        let mut changing = self.container.changing();
        loop {
            if let Some(denial) = ended(self.container) {
                return Fault::of(denial);
            }
            let rights = self.container.rights();
            if !rights.grants.contains(secret) {
                return Fault::new(Reason::CredentialNotGranted, &format!("secret `{secret}` was withdrawn"));
            }
            let still = decide_postgres(&rights.policy, &self.host, self.port, self.startup.database());
            if let Err(denial) = still {
                return Fault::changed(denial);
            }
            if let Err(fault) = self.still_declared(secret, login) {
                return fault;
            }
            if changing.changed().await.is_err() {
                return Fault::new(Reason::Revoked, "");
            }
        }
    }

    fn still_declared(&self, secret: &str, login: &Login) -> Result<(), Fault> {
        let Self { host, port, gateway, .. } = self;
        let vault = gateway.vault().current();
        let server = vault.secret(secret).and_then(|secret| secret.declaration().postgres.as_ref());
        match server {
            Some(server) if !server.is_at(host, *port) => {
                let detail = format!("secret `{secret}` was changed, and is not for {host}:{port} any more");
                Err(Fault::new(Reason::CredentialMisdirected, &detail))
            }
            Some(server) if server.allows(login) => Ok(()),
            _ => {
                let detail =
                    format!("secret `{secret}` was changed (its user, sslmode or auth); connect again");
                Err(Fault::new(Reason::CredentialRestricted, &detail))
            }
        }
    }
}

/// What the server says before the session, as the container may see it; counted, since it does.
fn heard(
    upstream: &mut Upstream,
    scrubber: &mut Scrubber,
    passed: &Passed,
) -> Result<Bytes, upstream::Refused> {
    let said = Bytes::from(std::mem::take(&mut upstream.greeting));
    let length = said.len();
    let greeting = scrubber.whole(said);
    if greeting.len() != length {
        return Err(pump::another_length().into());
    }
    passed.pass(length).map_err(Fault::of)?;
    passed.down.fetch_add(length as u64, Relaxed);
    Ok(greeting)
}

/// The same of why it lets nobody in.
fn as_told(refused: upstream::Refused, scrubber: &mut Scrubber, passed: &Passed) -> upstream::Refused {
    let upstream::Refused { fault, sqlstate } = refused;
    let mut length = 0;
    let fault = fault.reworded(|why| {
        // Before it is cut: half a value would not be found.
        let why = scrubber.whole(why.into());
        let why: String = String::from_utf8_lossy(&why).chars().take(LONGEST_WHY).collect();
        length = why.len();
        why
    });
    match passed.pass(length) {
        Ok(()) => upstream::Refused { fault, sqlstate },
        Err(denial) => Fault::of(denial).into(),
    }
}

/// Passes a request to cancel on, if it is for a session of this container with that server. As with the server itself,
/// nobody is told what became of it.
async fn cancel(
    given: CancelKey,
    (host, port): (&HostName, u16),
    container: &Arc<Container>,
    gateway: &Gateway,
    line: &mut Line,
) -> Result<(), Fault> {
    line.entry(|entry| entry.method = Some("cancel".to_owned()));
    let target =
        container.postgres.target(given).filter(|target| target.host == *host && target.port == port);
    let unknown = || Fault::new(Reason::ForeignCredential, "to cancel in no session of this container there");
    let target = target.ok_or_else(unknown)?;
    line.entry(|entry| {
        entry.path = Some(format!("/{}", target.database));
        entry.secrets = vec![target.secret.clone()];
    });
    let permit = decide_postgres(&container.rights().policy, host, port, &target.database);
    let permit = permit.map_err(Fault::of)?;
    line.entry(|entry| entry.rule = Some(permit.rule().to_owned()));
    within_limits(container).map_err(Fault::of)?;
    within_rate(container, &permit).map_err(Fault::of)?;
    let using = Use::of(&gateway.vault().current(), &target.secret, host, port)?;
    let talk = async {
        let (mut stream, _) = upstream::open(gateway, &permit, &using.server).await?;
        line.passes(permit.rule(), &Passed::new(container));
        let failed = |error: std::io::Error| Fault::new(Reason::UpstreamFailed, &format!("{host}: {error}"));
        stream.write_all(&target.key.request()).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        // The server closes once it has passed it on; only then may the client believe that.
        drop(stream.read(&mut [0]).await);
        Ok(())
    };
    let late = |_| Fault::new(Reason::UpstreamTimeout, &format!("{host}: not cancelled in time"));
    timeout(gateway.limits().handshake, talk).await.map_err(late)?
}

/// Whether a connection's first bytes are the first packet of a client, or its beginning.
pub(super) fn is_opening(first: &[u8]) -> bool {
    let Some((&[0, 0, high, low, a, b, c, d], _)) = first.split_first_chunk() else { return false };
    let fits = (8..=LONGEST_OPENING).contains(&usize::from(u16::from_be_bytes([high, low])));
    fits && Opening::is_code(u32::from_be_bytes([a, b, c, d]))
}

/// Tells a client for which there is no server why. With the host, TLS is spoken with it: a client that insists on it would
/// not hear of anything else.
pub(super) async fn turn_away(
    stream: Replay,
    reason: Option<Reason>,
    text: &str,
    host: Option<(&HostName, &Leaves)>,
) {
    let visitor = match Visitor::new(stream).opening(host).await {
        Ok((visitor, _)) => visitor,
        Err(door::Refused { visitor: Some(visitor), .. }) => visitor,
        Err(_) => return,
    };
    // What is not spoken with anybody here is spoken elsewhere.
    let reason =
        reason.filter(|reason| *reason != Reason::ProtocolNotAllowed).unwrap_or(Reason::HostNotAllowed);
    visitor.dismiss(&say::fatal(of_reason(Some(reason)), text)).await;
}

fn last_words(sqlstate: Option<&str>, fault: &Fault) -> Vec<u8> {
    say::fatal(sqlstate.unwrap_or_else(|| of_reason(fault.reason())), &fault.message())
}

/// PostgreSQL's own codes (its manual, appendix A), so that clients do what they do in such a case.
fn of_reason(reason: Option<Reason>) -> &'static str {
    match reason {
        // protocol_violation
        Some(Reason::Malformed) => "08P01",
        // feature_not_supported
        Some(Reason::ProtocolNotAllowed) => "0A000",
        // invalid_password
        Some(Reason::ForeignCredential | Reason::CredentialMisdirected) => "28P01",
        // too_many_connections
        Some(Reason::RateLimited | Reason::LimitReached | Reason::Overloaded) => "53300",
        // connection_failure
        Some(Reason::UpstreamFailed | Reason::UnreadableAnswer) | None => "08006",
        // sqlclient_unable_to_establish_sqlconnection
        Some(
            Reason::UpstreamUntrusted
            | Reason::UpstreamTimeout
            | Reason::UpstreamProxyFailed
            | Reason::NameNotFound
            | Reason::PrivateAddress
            | Reason::CredentialInClear,
        ) => "08001",
        // internal_error
        Some(Reason::Internal) => "XX000",
        // invalid_authorization_specification
        Some(_) => "28000",
    }
}

/// Letters, for a message of SCRAM.
fn nonce() -> Result<String, Fault> {
    random::<18>().map(|bytes| BASE64_STANDARD.encode(bytes))
}

fn random_key() -> Result<CancelKey, Fault> {
    let ([a, b, c, d], key) = (random()?, random()?);
    // Clients show it as the number of a process.
    Ok(CancelKey { process: [a & 0x7f, b, c, d], key })
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| Fault::new(Reason::Internal, "no random bytes"))
}
