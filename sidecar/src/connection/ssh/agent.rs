//! The operator's ssh-agent (draft-miller-ssh-agent), as far as one login needs it: it is told of the connection, asked
//! which keys it has, and for one signature. Nothing of it reaches the container but the words of an [`AgentError`].

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use russh::Signer;
use russh::keys::agent::client::AgentClient;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::ssh_key::{Algorithm, Fingerprint, HashAlg};
use russh::keys::{Error, PublicKey};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use crate::credentials::source::AgentKey;

/// One that has the key.
pub(super) struct Agent {
    client: AgentClient<UnixStream>,
    key: PublicKey,
    socket: PathBuf,
    until: Instant,
}

/// Why there is no signature, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error(
        "no ssh-agent answers at {} ({error}); start it on the host, and mount the directory of its socket into the \
         sidecar", .socket.display()
    )]
    Away { socket: PathBuf, error: io::Error },
    #[error("what answers at {} is no ssh-agent ({error})", .socket.display())]
    Unreadable { socket: PathBuf, error: Error },
    #[error("the ssh-agent at {} has not answered in time; if it asks somebody, say yes there and try again", .0.display())]
    Slow(PathBuf),
    #[error("the ssh-agent at {} shows no keys; on the host: ssh-add FILE, or, if it is locked: ssh-add -X", .0.display())]
    Empty(PathBuf),
    #[error("the ssh-agent at {} does not have the key {key}; on the host: ssh-add FILE", .socket.display())]
    Lacks { socket: PathBuf, key: Fingerprint },
    #[error("the key {key} is of type {kind}, which is not supported; use one of Ed25519, ECDSA or RSA")]
    Type { key: Fingerprint, kind: String },
    #[error(
        "the ssh-agent at {} refuses to sign: somebody whom it asked said no (ssh-add -c), it was locked (ssh-add -X), \
         or the key is for other hosts (ssh-add -h)", .0.display()
    )]
    Refused(PathBuf),
    #[error("the connection to the server is gone")]
    Gone(#[from] russh::SendError),
}

impl Agent {
    /// `of` is the server's connection: keys that an agent lets out for some hosts only are for those.
    pub(super) async fn with(
        held: &AgentKey,
        of: Option<&AgentSessionBinding>,
        until: Instant,
    ) -> Result<Self, AgentError> {
        let AgentKey { socket, key } = held;
        let asked = async {
            let mut client = AgentClient::connect_uds(socket).await?;
            if let Some(binding) = of {
                match client.bind_session(binding, false).await {
                    // Not every agent knows of this.
                    Ok(()) | Err(Error::AgentFailure) => {}
                    Err(error) => return Err(error),
                }
            }
            let identities = client.request_identities().await?;
            Ok((client, identities))
        };
        let (client, identities) = in_time(socket, until, asked).await?;
        if identities.is_empty() {
            return Err(AgentError::Empty(socket.clone()));
        }
        // A certificate would be another identity of the same key.
        let mut keys = identities.into_iter().filter_map(|identity| match identity {
            AgentIdentity::PublicKey { key, .. } => Some(key),
            AgentIdentity::Certificate { .. } => None,
        });
        let found = keys.find(|found| found.fingerprint(HashAlg::Sha256) == *key);
        let found = found.ok_or_else(|| AgentError::Lacks { socket: socket.clone(), key: *key })?;
        match found.algorithm() {
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. } => {
                Ok(Self { client, key: found, socket: socket.clone(), until })
            }
            other => Err(AgentError::Type { key: *key, kind: other.as_str().to_owned() }),
        }
    }

    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl Signer for Agent {
    type Error = AgentError;

    async fn auth_sign(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        text: Vec<u8>,
    ) -> Result<Vec<u8>, AgentError> {
        in_time(&self.socket, self.until, self.client.sign_request(key, hash, text)).await
    }
}

async fn in_time<T>(
    socket: &Path,
    until: Instant,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, AgentError> {
    let socket = || socket.to_path_buf();
    match timeout_at(until, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::IO(error))) => Err(AgentError::Away { socket: socket(), error }),
        Ok(Err(Error::AgentFailure)) => Err(AgentError::Refused(socket())),
        Ok(Err(error)) => Err(AgentError::Unreadable { socket: socket(), error }),
        Err(_) => Err(AgentError::Slow(socket())),
    }
}
