//! The container's side: TLS if it asks for that, what it wants, and whether it knows a stand-in that lets it in.

use std::sync::Arc;

use rustls::server::NoServerSessionStorage;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use understudy_policies::HostName;

use super::super::line::Fault;
use super::admission;
use super::derivations::Derivations;
use super::message::{LONGEST_OPENING, MessageError, Opening, sasl_initial, say};
use super::wire::{self, Stream, WireError};
use super::{FAREWELL, nonce};
use crate::credentials::postgres::scram;
use crate::credentials::{Grants, Vault};
use crate::proxy::Replay;
use crate::reason::Reason;
use crate::tls::Leaves;

/// Of a container's message about its login.
const LONGEST_ANSWER: usize = 4096;

/// The name in ALPN (RFC 7301), and the only one that is spoken here.
pub(in crate::connection) const ALPN: &[u8] = b"postgresql";

/// Somebody who has said something.
pub(super) struct Visitor {
    pub(super) stream: Stream,
    /// SHA-256 of the certificate that it was shown.
    end_point: Option<[u8; 32]>,
}

impl Visitor {
    /// Whose first bytes are a ClientHello: TLS without asking for it.
    pub(super) async fn direct(stream: Replay, host: &HostName, leaves: &Leaves) -> Result<Self, Fault> {
        let (stream, end_point) = secure(Box::new(stream), host, leaves).await?;
        Ok(Self { stream, end_point: Some(end_point) })
    }

    pub(super) fn new(stream: Replay) -> Self {
        Self { stream: Box::new(stream), end_point: None }
    }

    /// What it wants, once it has TLS if it wants that and there is a host for it. Whatever comes in clear after it has asked
    /// is part of the handshake, or the end of it.
    pub(super) async fn opening(
        mut self,
        host: Option<(&HostName, &Leaves)>,
    ) -> Result<(Self, Opening), Refused> {
        let (mut may_ask_tls, mut may_ask_gss) = (self.end_point.is_none(), self.end_point.is_none());
        loop {
            let body = match wire::opening(&mut self.stream, LONGEST_OPENING).await {
                Ok(body) => body,
                Err(error) => return Err(Refused { visitor: Some(self), fault: broken(error) }),
            };
            match Opening::parse(&body) {
                Ok(Opening::Tls) if may_ask_tls => {
                    may_ask_tls = false;
                    let Some((host, leaves)) = host else {
                        wire::send(&mut self.stream, b"N").await.map_err(|error| gone(&error))?;
                        continue;
                    };
                    wire::send(&mut self.stream, b"S").await.map_err(|error| gone(&error))?;
                    let (stream, end_point) = secure(self.stream, host, leaves).await?;
                    self = Self { stream, end_point: Some(end_point) };
                    may_ask_gss = false;
                }
                Ok(Opening::Gss) if may_ask_gss => {
                    may_ask_gss = false;
                    wire::send(&mut self.stream, b"N").await.map_err(|error| gone(&error))?;
                }
                Ok(Opening::Tls | Opening::Gss) => {
                    let fault = Fault::new(Reason::Malformed, "encryption is asked for twice");
                    return Err(Refused { visitor: Some(self), fault });
                }
                Ok(opening) => return Ok((self, opening)),
                Err(error) => return Err(Refused { visitor: Some(self), fault: unclear(error) }),
            }
        }
    }

    /// The secret whose stand-in it has proved to know.
    pub(super) async fn login(
        &mut self,
        user: &str,
        vault: &Arc<Vault>,
        grants: &Grants,
        (host, port): (&HostName, u16),
        turns: &Derivations,
    ) -> Result<String, Rejected> {
        let door = admission::door(vault, grants, host, port);
        let names = door.admits(host, port, Some(user)).map_err(|(reason, why)| Fault::new(reason, &why))?;
        let mechanisms: &[&str] =
            if self.end_point.is_some() { &[scram::PLUS, scram::PLAIN] } else { &[scram::PLAIN] };
        self.say(&say::sasl(mechanisms.iter().copied())).await?;
        let first = self.answer().await?;
        let (mechanism, first) = sasl_initial(&first).map_err(unclear)?;
        let end_point = self.end_point.as_ref().map(|hash| &hash[..]);
        let salt = vault.scram_salt().ok_or_else(|| Fault::new(Reason::Internal, "no installation key"))?;
        let exchange = scram::Server::new(mechanism, first, end_point, &nonce()?, salt);
        let exchange = exchange.map_err(|error| not_proved(&error))?;
        self.say(&say::sasl_continue(exchange.first())).await?;
        let proof = exchange.proof(&self.answer().await?).map_err(|error| not_proved(&error))?;
        let (known, of) = (known(vault, &names, (host, port)), Arc::clone(vault));
        let found = turns.run(move || {
            known.into_iter().find_map(|secret| {
                let last = of.secret(&secret)?.is_proved(&proof, &salt)?;
                Some((secret, last))
            })
        });
        let found = found.await?;
        match found {
            Some((secret, last)) if names.contains(&secret) => {
                self.say(&say::sasl_final(&last)).await?;
                Ok(secret)
            }
            Some((secret, _)) => {
                let detail = format!(
                    "the stand-in of secret `{secret}`, which is not for this container, server and user"
                );
                let fault = Fault::new(Reason::CredentialNotGranted, &detail);
                Err(Rejected { fault, secrets: vec![secret] })
            }
            None => {
                let detail = format!("a password for {user} that is not the stand-in of a secret");
                Err(Rejected { fault: Fault::new(Reason::ForeignCredential, &detail), secrets: names })
            }
        }
    }

    async fn answer(&mut self) -> Result<Vec<u8>, Fault> {
        match wire::message(&mut self.stream, LONGEST_ANSWER).await {
            Ok((b'p', body)) => Ok(body),
            Ok(_) => Err(Fault::new(Reason::Malformed, "something else than an answer about the password")),
            Err(error) => Err(broken(error)),
        }
    }

    /// Tells it why, and waits a little for it to have read that.
    pub(super) async fn dismiss(mut self, message: &[u8]) {
        let told = async {
            drop(self.stream.write_all(message).await);
            drop(self.stream.shutdown().await);
            let mut rest = [0; 512];
            while matches!(self.stream.read(&mut rest).await, Ok(1..)) {}
        };
        drop(timeout(FAREWELL, told).await);
    }

    pub(super) async fn say(&mut self, message: &[u8]) -> Result<(), Fault> {
        wire::send(&mut self.stream, message).await.map_err(|error| gone(&error))
    }
}

/// Why a visitor gets no further, and the visitor if it can be told.
pub(super) struct Refused {
    pub(super) visitor: Option<Visitor>,
    pub(super) fault: Fault,
}

/// A login that failed.
pub(super) struct Rejected {
    pub(super) fault: Fault,
    /// What it is about.
    pub(super) secrets: Vec<String>,
}

impl From<Fault> for Rejected {
    fn from(fault: Fault) -> Self {
        Self { fault, secrets: Vec::new() }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { visitor: None, fault }
    }
}

/// Those that let in first, and then all others of that server, so that the record says whose it was. Not those of other
/// servers: each costs something the first time.
fn known(vault: &Vault, names: &[String], (host, port): (&HostName, u16)) -> Vec<String> {
    let mut known: Vec<String> =
        vault.postgres_at(host, port).map(|declaration| declaration.name.clone()).collect();
    known.sort_by_key(|name| !names.contains(name));
    known
}

async fn secure(stream: Stream, host: &HostName, leaves: &Leaves) -> Result<(Stream, [u8; 32]), Fault> {
    let internal = |error: &dyn std::fmt::Display| Fault::new(Reason::Internal, &error.to_string());
    let (config, end_point) = leaves.bound(host).map_err(|error| internal(&error))?;
    let mut config = (*config).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    // As the server itself.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
        Ok(stream) => Ok((Box::new(stream), end_point)),
        Err(error) => Err(Fault::new(Reason::HandshakeFailed, &format!("TLS handshake: {error}"))),
    }
}

fn broken(error: WireError) -> Fault {
    match error {
        WireError::Io(error) => gone(&error),
        WireError::Length(_) => Fault::new(Reason::Malformed, &error.to_string()),
    }
}

fn gone(error: &std::io::Error) -> Fault {
    Fault::broken_off(&format!("the container broke off: {error}"))
}

fn unclear(error: MessageError) -> Fault {
    let reason = match error {
        MessageError::Replication => Reason::ProtocolNotAllowed,
        _ => Reason::Malformed,
    };
    Fault::new(reason, &error.to_string())
}

fn not_proved(error: &scram::ScramError) -> Fault {
    Fault::new(Reason::Malformed, &error.to_string())
}
