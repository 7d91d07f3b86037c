//! The key that stand-ins are derived from: made once for each installation, so that its stand-ins stay the same and
//! those of two installations differ.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

/// Clones are the same key.
///
/// 32 bytes from the system's random generator.
#[derive(Clone)]
pub struct InstallationKey(hmac::Key);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path}: expected 32 bytes, found {found}; restore it from a backup, or delete it to get new stand-ins"
    )]
    Length { path: PathBuf, found: usize },
    #[error("{path}: others may read it (mode {mode:03o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
    #[error("the system's random generator failed")]
    Random,
}

impl InstallationKey {
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Reads the key file, or makes it (0600, written whole or not at all).
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        match File::open(path) {
            Ok(file) => Self::read(path, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path)?;
                Self::read(path, &File::open(path).map_err(io)?)
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Reads the key file; one that is not there is not made, and the key is one that nobody has.
    ///
    /// # Errors
    /// If there is a file, and it cannot be used.
    pub fn load_or_draw(path: &Path) -> Result<Self, KeyError> {
        match File::open(path) {
            Ok(file) => Self::read(path, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::from_bytes(&*drawn()?)),
            Err(source) => Err(KeyError::Io { path: path.to_owned(), source }),
        }
    }

    /// Tells one key from another, and nothing of it.
    pub fn tag(&self) -> String {
        let tag = hmac::sign(&self.0, b"understudy installation 1");
        tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(in crate::credentials) fn hmac(&self) -> &hmac::Key {
        &self.0
    }

    fn read(path: &Path, file: &File) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(33));
        file.take(33).read_to_end(&mut bytes).map_err(io)?;
        match <&[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(key) => Ok(Self::from_bytes(key)),
            Err(_) => Err(KeyError::Length { path: path.to_owned(), found: bytes.len() }),
        }
    }
}

fn drawn() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let mut bytes = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(bytes.as_mut_slice()).map_err(|_| KeyError::Random)?;
    Ok(bytes)
}

/// A second process that does the same at the same time finds the file of the first one.
fn create(path: &Path) -> Result<(), KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let bytes = drawn()?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
            file.write_all(bytes.as_slice())?;
            file.sync_all()
        });
    let linked = written.and_then(|()| match std::fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = std::fs::remove_file(&new);
    linked.map_err(io)
}

impl fmt::Debug for InstallationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallationKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("installation.key");
        let tag = |key: &InstallationKey| hmac::sign(key.hmac(), b"x").as_ref().to_vec();
        let first = tag(&InstallationKey::load_or_create(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(tag(&InstallationKey::load_or_create(&path).unwrap()), first);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(tag(&InstallationKey::load_or_create(&path).unwrap()), first);
    }

    #[test]
    fn a_key_file_that_is_wrong_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("installation.key");
        for (length, found) in [(0, 0), (31, 31), (40, 33)] {
            std::fs::write(&path, vec![7; length]).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let error = InstallationKey::load_or_create(&path).unwrap_err();
            assert!(matches!(error, KeyError::Length { found: n, .. } if n == found), "{error}");
        }
        std::fs::write(&path, [7; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(InstallationKey::load_or_create(&path), Err(KeyError::Mode { mode: 0o640, .. })));
        assert!(InstallationKey::load_or_create(&directory.path().join("no/such")).is_err());
    }
}
