//! A private key, the stand-in for it, and the sidecar's own host key. Both that containers see are Ed25519 (RFC 8709),
//! drawn from the installation's key, so the same after every restart.

use std::fmt;
use std::sync::Arc;

use ring::hmac;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, PublicKey};
use zeroize::Zeroizing;

use super::super::installation_key::InstallationKey;
use super::super::secret::SecretValue;
use super::super::source::AgentKey;
use super::rsa;

/// Of the lines of a key's text, the shortest that is searched for by itself.
const LINE: usize = 40;

/// A private key that is granted to containers, and what they have instead.
pub struct SshKey {
    real: Real,
    stand_in: PublicKey,
    stand_in_pem: String,
    stand_in_text: String,
    lines: Vec<SecretValue>,
}

/// Where the real key is, and what signs with it.
pub(crate) enum Real {
    /// Ed25519 or ECDSA.
    Plain(Arc<PrivateKey>),
    Rsa(PublicKey, Arc<ring::rsa::KeyPair>),
    /// Not here.
    Agent(AgentKey),
}

/// What the sidecar shows where it answers for a server.
pub struct HostKey(PrivateKey);

/// Why a file is not a key that can be used. Says nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it is empty")]
    Empty,
    #[error("it is not a private key of OpenSSH (which begins with -----BEGIN OPENSSH PRIVATE KEY-----)")]
    NotOpenSsh,
    #[error("it is a public key; put the private one there (the file without `.pub`)")]
    Public,
    #[error(
        "it is a private key in another form than OpenSSH's; convert a copy: ssh-keygen -p -N '' -f COPY"
    )]
    OtherForm,
    #[error(
        "it is encrypted with a passphrase, which nobody could enter; take it off a copy: ssh-keygen -p -N '' -f COPY"
    )]
    Encrypted,
    #[error("it is of type {0}, which is not supported; make another one: ssh-keygen -t ed25519")]
    Type(&'static str),
    #[error(
        "it is an RSA key of fewer than 2048 bits or more than 4096, or damaged; make another one: ssh-keygen -t ed25519"
    )]
    Rsa,
    #[error("the key is damaged")]
    Damaged,
}

impl SshKey {
    /// With its value, which is the text of the key in one line. `name` is the secret's.
    pub(in crate::credentials) fn read(
        bytes: &[u8],
        key: &InstallationKey,
        name: &str,
    ) -> Result<(Self, SecretValue), KeyError> {
        let real = parse(bytes)?;
        let text = std::str::from_utf8(bytes).map_err(|_| KeyError::NotOpenSsh)?;
        let one_line = Zeroizing::new(body(text));
        let value = SecretValue::from_bytes(one_line.as_bytes()).map_err(|_| KeyError::Damaged)?;
        // The first line is the same for all keys of a type.
        let lines = text.lines().filter(|line| !line.starts_with('-')).skip(1).map(str::trim);
        let lines = lines.filter(|line| line.len() >= LINE);
        let lines = lines.filter_map(|line| SecretValue::from_bytes(line.as_bytes()).ok()).collect();
        let real = match real.key_data() {
            KeypairData::Rsa(written) => {
                let pair = rsa::pair(written).ok_or(KeyError::Rsa)?;
                Real::Rsa(real.public_key().clone(), Arc::new(pair))
            }
            _ => Real::Plain(Arc::new(real)),
        };
        Ok((Self::with(real, lines, key, name)?, value))
    }

    /// Of a real key that an agent keeps: nothing of it is known here that could be searched for.
    pub(in crate::credentials) fn kept(
        by: AgentKey,
        key: &InstallationKey,
        name: &str,
    ) -> Result<Self, KeyError> {
        Self::with(Real::Agent(by), Vec::new(), key, name)
    }

    fn with(
        real: Real,
        lines: Vec<SecretValue>,
        key: &InstallationKey,
        name: &str,
    ) -> Result<Self, KeyError> {
        let stand_in = derived(key, &[b"understudy ssh key 1", name.as_bytes()]);
        let pem = stand_in.to_openssh(LineEnding::LF).map_err(|_| KeyError::Damaged)?.to_string();
        let (public, text) = (stand_in.public_key().clone(), body(&pem));
        Ok(Self { real, stand_in: public, stand_in_text: text, stand_in_pem: pem, lines })
    }

    /// Every use of this is a place where the real key is put to work.
    pub(crate) fn real(&self) -> &Real {
        &self.real
    }

    /// What a container proves that it has.
    pub fn stand_in(&self) -> &PublicKey {
        &self.stand_in
    }

    /// The stand-in's private key, as it is placed.
    pub fn stand_in_pem(&self) -> &str {
        &self.stand_in_pem
    }

    /// The same in one line, without its frame.
    pub fn stand_in_text(&self) -> &str {
        &self.stand_in_text
    }

    /// Lines of the real key's text that no other key has.
    pub(in crate::credentials) fn lines(&self) -> &[SecretValue] {
        &self.lines
    }
}

impl HostKey {
    pub(in crate::credentials) fn of(key: &InstallationKey) -> Self {
        Self(derived(key, &[b"understudy ssh host key 1"]))
    }

    pub fn public(&self) -> &PublicKey {
        self.0.public_key()
    }

    pub(crate) fn into_private(self) -> PrivateKey {
        self.0
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshKey(..)")
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey(..)")
    }
}

fn parse(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    let begins = |with: &str| bytes.starts_with(with.as_bytes());
    if bytes.trim_ascii().is_empty() {
        return Err(KeyError::Empty);
    }
    if begins("ssh-") || begins("ecdsa-") {
        return Err(KeyError::Public);
    }
    if !begins("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return Err(if begins("-----BEGIN ") { KeyError::OtherForm } else { KeyError::NotOpenSsh });
    }
    let key = PrivateKey::from_openssh(bytes).map_err(|_| KeyError::Damaged)?;
    match key.key_data() {
        KeypairData::Ed25519(_) | KeypairData::Ecdsa(_) | KeypairData::Rsa(_) => Ok(key),
        KeypairData::Encrypted(_) => Err(KeyError::Encrypted),
        KeypairData::Dsa(_) => Err(KeyError::Type("DSA")),
        KeypairData::SkEcdsaSha2NistP256(_) | KeypairData::SkEd25519(_) => {
            Err(KeyError::Type("FIDO (a security key)"))
        }
        _ => Err(KeyError::Type("another one")),
    }
}

fn derived(key: &InstallationKey, context: &[&[u8]]) -> PrivateKey {
    let mut seed = hmac::Context::with_key(key.hmac());
    for part in context {
        seed.update(part);
        seed.update(&[0]);
    }
    let mut bytes = Zeroizing::new([0; 32]);
    bytes.copy_from_slice(seed.sign().as_ref());
    PrivateKey::from(Ed25519Keypair::from_seed(&bytes))
}

/// What is between the first line and the last.
fn body(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with('-')).map(str::trim).collect()
}
