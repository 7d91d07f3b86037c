//! Logging in at a server that is known by its host key: with a key that is here, or that an ssh-agent keeps.

use std::sync::Arc;

use russh::client::{AuthResult, Handle, Handler};
use russh::keys::ssh_key::{Algorithm, Fingerprint};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKey};
use tokio::time::Instant;

use super::agent::{Agent, AgentError};
use crate::credentials::ssh::{Real, RsaSigner, SignError, SshKey};

/// What the server made of the key.
pub(super) struct Answered {
    pub(super) let_in: bool,
    pub(super) key: Fingerprint,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Signature(#[from] SignError),
    #[error(transparent)]
    Server(#[from] russh::Error),
    #[error("it takes RSA keys with SHA-1 alone, which is not supported; use an Ed25519 key")]
    Sha1,
}

/// `until` is for what an agent does.
pub(super) async fn log_in(
    handle: &mut Handle<impl Handler>,
    user: &str,
    key: &SshKey,
    until: Instant,
) -> Result<Answered, LoginError> {
    match key.real() {
        Real::Plain(real) => {
            let key = real.public_key().clone();
            let real = PrivateKeyWithHashAlg::new(Arc::clone(real), None);
            Ok(answered(handle.authenticate_publickey(user, real).await?, &key))
        }
        Real::Rsa(public, pair) => {
            let hash = Some(rsa_hash(handle).await?);
            let mut signer = RsaSigner::new(Arc::clone(pair));
            let answer = handle.authenticate_publickey_with(user, public.clone(), hash, &mut signer).await?;
            Ok(answered(answer, public))
        }
        Real::Agent(held) => {
            let mut agent = Agent::with(held, handle.agent_session_binding(), until).await?;
            let key = agent.key().clone();
            let hash = match key.algorithm() {
                Algorithm::Rsa { .. } => Some(rsa_hash(handle).await?),
                _ => None,
            };
            let answer = handle.authenticate_publickey_with(user, key.clone(), hash, &mut agent).await?;
            Ok(answered(answer, &key))
        }
    }
}

/// RFC 8332 section 3.3.
async fn rsa_hash(handle: &Handle<impl Handler>) -> Result<HashAlg, LoginError> {
    // Who says nothing is asked for the better one.
    let offered = handle.best_supported_rsa_hash().await?.unwrap_or(Some(HashAlg::Sha512));
    offered.ok_or(LoginError::Sha1)
}

fn answered(answer: AuthResult, key: &PublicKey) -> Answered {
    Answered { let_in: answer.success(), key: key.fingerprint(HashAlg::Sha256) }
}
