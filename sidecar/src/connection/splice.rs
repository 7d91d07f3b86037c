//! TLS that is passed through without being decrypted, where a rule says `splice = true`. No secret is swapped in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::timeout;
use understudy_policies::{HostName, PolicySet, Request, Verdict};

use super::line::{Fault, Line};
use super::postgres;
use super::raw;
use super::refusal;
use super::relay::{Broken, Passed, relay, write};
use crate::container::Container;
use crate::decide::{Permit, decide, decide_raw, decide_splice};
use crate::dns::{DialError, Origin, Upstream};
use crate::operator;
use crate::proxy::Gateway;
use crate::reason::Reason;

/// A connection that is not decrypted.
pub(super) struct Splice {
    pub(super) permit: Permit,
    pub(super) stream: TcpStream,
    /// The client's hello, and what may follow it.
    pub(super) first: Bytes,
    pub(super) by: By,
    /// It has not spoken yet: what it says must be neither TLS nor HTTP.
    pub(super) silent: bool,
}

/// The permit to pass through TLS for a name that the container looked up. None: it is inspected, as all is by default.
/// So it is where any secret of the installation is bound: not seen, a stand-in would not be swapped, and an agent could
/// bring a credential of its own; and where one of these gets its tokens, since a login of its own would be one, too; of one that was
/// ever armed for a login, where any login is made.
pub(super) fn permit(gateway: &Gateway, container: &Container, name: &HostName, port: u16) -> Option<Permit> {
    let permit = decide_splice(&container.rights().policy, name, port)?;
    let vault = gateway.vault().current();
    let armed = gateway.looks_at_logins(&container.id);
    let is_of_secrets = vault.bound_to(name).next().is_some() || vault.has_token_endpoint(name, armed);
    // TLS up to a server of PostgreSQL would carry a login of the container's own, to any database.
    let is_of_sessions = postgres::server(&vault, container, &Origin::Name(name.clone()), port).is_some();
    (!is_of_secrets && !is_of_sessions).then_some(permit)
}

/// Which rule lets a connection through.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    /// `splice = true`
    Splice,
    /// `tcp = true`
    Tcp,
}

/// Returns once it would not be let through any more, with what a new one would be told.
async fn forbidden(gateway: &Gateway, container: &Container, permit: &Permit, by: By) -> Fault {
    let mut changing = container.changing();
    loop {
        if let Some(denial) = operator::ended(container) {
            return Fault::of(denial);
        }
        let (rights, host, port) = (container.rights(), permit.host(), permit.port());
        let still = match by {
            By::Tcp => decide_raw(&rights.policy, host, port).map_err(Fault::changed),
            By::Splice if self::permit(gateway, container, host, port).is_some() => Ok(permit.clone()),
            By::Splice => Err(no_longer(&rights.policy, host, port)),
        };
        if let Err(fault) = still {
            return fault;
        }
        if changing.changed().await.is_err() {
            return Fault::new(Reason::Revoked, "");
        }
    }
}

/// Why TLS is not passed through any more.
fn no_longer(policy: &PolicySet, host: &HostName, port: u16) -> Fault {
    let allowed = matches!(policy.decide(host, port), Verdict::Allowed { .. });
    match decide(policy, &Request::new(host, port, "GET", "/")) {
        Err(denial) if !allowed => Fault::changed(denial),
        // A new one is decrypted, and judged request by request.
        _ => Fault::new(
            Reason::HostNotAllowed,
            "the configuration was changed: it is not passed through any more",
        ),
    }
}

impl Splice {
    /// Ok when both sides have ended. It ends sooner if policy is another and does not let it through any more.
    pub(super) async fn serve(
        self,
        container: &Arc<Container>,
        gateway: &Gateway,
        line: &mut Line,
    ) -> Result<(), Fault> {
        let (passed, permit, by) = (Passed::new(container), self.permit.clone(), self.by);
        tokio::select! {
            result = self.pass(gateway, &passed, || line.passes(permit.rule(), &passed)) => result,
            fault = forbidden(gateway, container, &permit, by) => Err(fault),
        }
    }

    /// Ok when both sides have ended. `connected` is told once there is an upstream.
    async fn pass(self, gateway: &Gateway, passed: &Passed, connected: impl FnOnce()) -> Result<(), Fault> {
        let Self { permit, stream, mut first, silent, by: _ } = self;
        let upstream = match dial(gateway, permit).await {
            Ok(upstream) => upstream,
            Err(fault) => {
                refusal::reset(stream);
                return Err(fault);
            }
        };
        connected();
        drop(upstream.set_nodelay(true));
        if silent {
            match raw::greet(&stream, &upstream, passed, gateway.limits().first_bytes).await {
                Ok(Some(said)) => first = said,
                Ok(None) => return Ok(()),
                Err(fault) => {
                    refusal::reset(stream);
                    refusal::reset(upstream);
                    return Err(fault);
                }
            }
        }
        let begun = match passed.pass(first.len()) {
            Ok(()) => write(&upstream, &first, &passed.up).await.map_err(Broken::Upstream),
            Err(denial) => Err(Broken::Limit(denial)),
        };
        drop(first);
        let result = match begun {
            Ok(()) => relay(&stream, &upstream, passed).await,
            broken => broken,
        };
        let fault = match result {
            Ok(()) => return Ok(()),
            Err(Broken::Limit(denial)) => Fault::of(denial),
            Err(Broken::Container(error)) => Fault::broken_off(&format!("the container broke off: {error}")),
            Err(Broken::Upstream(error)) => Fault::new(Reason::UpstreamFailed, &error.to_string()),
        };
        refusal::reset(stream);
        refusal::reset(upstream);
        Err(fault)
    }
}

pub(super) async fn dial(gateway: &Gateway, permit: Permit) -> Result<TcpStream, Fault> {
    let resolved = gateway.resolver().current().resolve(permit).await;
    let upstream = resolved.map_err(|denial| Fault::new(denial.reason, &denial.detail))?;
    let deadline = Instant::now() + gateway.limits().connect;
    let mut fault = Fault::new(Reason::UpstreamTimeout, "no connection in time");
    for (hop, share) in shares(&upstream, deadline) {
        fault = match timeout(share(), hop.connect()).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error @ DialError::Unreachable { .. })) => {
                Fault::new(Reason::UpstreamFailed, &error.to_string())
            }
            Ok(Err(error @ DialError::Own { .. })) => Fault::new(Reason::PrivateAddress, &error.to_string()),
            Ok(Err(DialError::Proxy(error))) => Fault::new(Reason::UpstreamProxyFailed, &error.to_string()),
            Err(_) => Fault::new(Reason::UpstreamTimeout, "no connection in time"),
        };
    }
    Err(fault)
}

/// Each way with the time that it may take: of what is left, its part.
fn shares(
    upstream: &Upstream,
    deadline: Instant,
) -> impl Iterator<Item = (&crate::dns::Hop, impl Fn() -> Duration)> {
    let count = upstream.hops().len();
    upstream.hops().iter().enumerate().map(move |(number, hop)| {
        let left = u32::try_from(count - number).unwrap_or(u32::MAX);
        (hop, move || deadline.saturating_duration_since(Instant::now()) / left)
    })
}
