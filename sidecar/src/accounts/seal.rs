//! Records at rest, encrypted if there is a key: AES-256-GCM (NIST SP 800-38D) with a random nonce, bound to the name of
//! the account, so that one cannot be put in the place of another. What is not sealed is read as it is: that is how a store
//! comes to be sealed. What is sealed is never replaced by who cannot open it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const VERSION: u32 = 1;
const KEY: usize = 32;

/// What the credential of systemd, and the secret of Podman, is called that holds the key.
pub const CREDENTIAL: &str = "understudy-store-key";

pub struct StoreKey {
    key: LessSafeKey,
    /// Tells one key from another, and nothing of it.
    id: String,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the store's key {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the store's key {path}: expected 32 bytes, as `head -c 32 /dev/urandom` makes them, found {found}"
    )]
    Length { path: PathBuf, found: String },
    #[error("the store's key {path}: others may read it (mode {mode:03o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error(
        "it is encrypted with key {0}, and no key was given; give it with --store-key, or as the credential or Podman secret `{CREDENTIAL}`"
    )]
    NoKey(String),
    #[error("it is encrypted with key {theirs}, and the key that was given is {ours}; give the right one")]
    WrongKey { theirs: String, ours: String },
    #[error(
        "it was changed after it was encrypted, or belongs to another account; restore it from a backup, or delete it and log in again"
    )]
    Tampered,
    #[error("it is encrypted in format {0}, and this program knows format {VERSION}; use the newer program")]
    Version(u32),
    #[error("it could not be encrypted: {0}")]
    Fault(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    sealed: u32,
    key: String,
    nonce: String,
    data: String,
}

impl StoreKey {
    pub fn from_bytes(bytes: &[u8; KEY]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        let hash = digest::digest(&digest::SHA256, &[b"understudy store key ".as_slice(), bytes].concat());
        let id = hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { key, id })
    }

    /// `mounted` says that its mode is not for the operator to choose.
    pub fn read(path: &Path, mounted: bool) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        if !mounted && mode & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(KEY + 1));
        file.take(KEY as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
        let key = <&[u8; KEY]>::try_from(bytes.as_slice()).ok().and_then(Self::from_bytes);
        let found = if bytes.len() > KEY { "more".to_owned() } else { bytes.len().to_string() };
        key.ok_or(KeyError::Length { path: path.to_owned(), found })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn seal(&self, name: &str, plain: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| SealError::Fault("the kernel gives no random bytes"))?;
        let mut data = Zeroizing::new(plain.to_vec());
        let sealed =
            self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad(name), &mut *data);
        sealed.map_err(|_| SealError::Fault("it is too long"))?;
        let sealed = Sealed {
            sealed: VERSION,
            key: self.id.clone(),
            nonce: BASE64_STANDARD.encode(nonce),
            data: BASE64_STANDARD.encode(&*data),
        };
        serde_json::to_vec(&sealed).map(Zeroizing::new).map_err(|_| SealError::Fault("it is no JSON"))
    }
}

/// What was sealed; None if it is not. Cut short, it is neither, and no record.
pub(super) fn open(
    key: Option<&StoreKey>,
    name: &str,
    bytes: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>, SealError> {
    let Ok(sealed) = serde_json::from_slice::<Sealed>(bytes) else { return Ok(None) };
    if sealed.sealed != VERSION {
        return Err(SealError::Version(sealed.sealed));
    }
    // It may be anybody's text.
    let theirs: String = sealed.key.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let key = key.ok_or_else(|| SealError::NoKey(theirs.clone()))?;
    if sealed.key != key.id {
        return Err(SealError::WrongKey { theirs, ours: key.id.clone() });
    }
    let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| SealError::Tampered);
    let nonce = Nonce::try_assume_unique_for_key(&decoded(&sealed.nonce)?);
    let nonce = nonce.map_err(|_| SealError::Tampered)?;
    let mut data = Zeroizing::new(decoded(&sealed.data)?);
    let opened = key.key.open_in_place(nonce, aad(name), &mut data);
    Ok(Some(Zeroizing::new(opened.map_err(|_| SealError::Tampered)?.to_vec())))
}

fn aad(name: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("understudy account {name}").into_bytes())
}

impl std::fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> StoreKey {
        StoreKey::from_bytes(&[byte; KEY]).unwrap()
    }

    #[test]
    fn it_comes_back_with_its_key_and_its_name_alone() {
        let sealed = key(1).seal("work", b"the-refresh-token").unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("the-refresh"));
        assert_eq!(open(Some(&key(1)), "work", &sealed).unwrap().unwrap().as_slice(), b"the-refresh-token");
        assert_ne!(key(1).seal("work", b"the-refresh-token").unwrap(), sealed);
        assert_eq!(open(Some(&key(1)), "other", &sealed), Err(SealError::Tampered));
        let (ours, theirs) = (key(2).id, key(1).id);
        assert_eq!(open(None, "work", &sealed), Err(SealError::NoKey(theirs.clone())));
        assert_eq!(open(Some(&key(2)), "work", &sealed), Err(SealError::WrongKey { theirs, ours }));
        assert_eq!(open(Some(&key(1)), "work", b"{\"version\":1}"), Ok(None));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let sealed = key(1).seal("work", b"{\"a\":\"token\"}").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            // It may be no sealed text any more, but never another one.
            let opened = open(Some(&key(1)), "work", &changed);
            assert!(!matches!(opened, Ok(Some(_))), "{at}: {}", String::from_utf8_lossy(&changed));
        }
        for length in 0..sealed.len() {
            assert_eq!(open(Some(&key(1)), "work", &sealed[..length]), Ok(None));
        }
    }

    #[test]
    fn a_key_is_32_bytes_of_the_operators_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let write = |bytes: &[u8], mode| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            StoreKey::read(&path, false).map(|key| key.id().to_owned()).map_err(|error| error.to_string())
        };
        assert!(write(&[7; 32], 0o600).is_ok());
        for (bytes, mode, said) in [
            (vec![7; 31], 0o600, "found 31"),
            (vec![7; 64], 0o600, "found more"),
            (vec![7; 32], 0o644, "others may read it"),
        ] {
            assert!(write(&bytes, mode).unwrap_err().contains(said));
        }
        assert!(StoreKey::read(&path, true).is_ok());
    }
}
