//! The installation's key: 32 random bytes in the state volume, from which all stand-ins are derived.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

pub type InstallationKey = Zeroizing<[u8; 32]>;

/// Reads `installation.key` in `state`, or makes it (0600, synced, whole or not at all). A key that others can read,
/// or of another length, is an error: a new one would change every stand-in.
pub fn load_or_create(state: &Path) -> Result<InstallationKey> {
    let path = state.join("installation.key");
    match fs::File::open(&path) {
        Ok(mut file) => {
            let mode = file.metadata().with_context(|| path.display().to_string())?.mode() & 0o7777;
            if mode & 0o077 != 0 {
                bail!("{} has mode {mode:04o}: others may read it (run: chmod 600 it)", path.display());
            }
            let mut bytes = Zeroizing::new(Vec::new());
            (&mut file).take(64).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
            let Ok(key) = <[u8; 32]>::try_from(bytes.as_slice()) else {
                bail!(
                    "{} does not hold 32 bytes; restore it from a backup, or remove it: all stand-ins change then",
                    path.display()
                );
            };
            Ok(Zeroizing::new(key))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// 32 bytes from the kernel.
pub fn random() -> Result<InstallationKey> {
    let mut key = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(&mut key[..]).ok().context("the kernel gives no random bytes")?;
    Ok(key)
}

fn create(path: &Path) -> Result<InstallationKey> {
    let key = random()?;
    let fresh = path.with_extension("key.new");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&key[..])?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().with_context(|| {
        format!(
            "{} cannot be written (mount a volume there: -v understudy-state:/var/lib/understudy)",
            path.display()
        )
    })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let key = load_or_create(dir.path()).unwrap();
        assert_eq!(load_or_create(dir.path()).unwrap(), key);
        assert_ne!(load_or_create(tempfile::tempdir().unwrap().path()).unwrap(), key);
    }

    #[test]
    fn a_readable_or_damaged_key_is_an_error_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(dir.path()).unwrap();
        let path = dir.path().join("installation.key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(load_or_create(dir.path()).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [1; 31]).unwrap();
        assert!(load_or_create(dir.path()).is_err());
        assert_eq!(fs::read(&path).unwrap(), [1; 31]);
    }
}
