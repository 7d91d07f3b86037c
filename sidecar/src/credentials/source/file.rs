//! `file = "/abs"`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::Surroundings;
use crate::credentials::secret::READ_LIMIT;

pub(super) fn read(path: &Path, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = open(path).map_err(|error| error.to_string())?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("not a regular file".to_owned());
    }
    if !around.is_mounted_for_us(path) {
        private(path, found.mode(), found.uid(), rustix::process::geteuid().as_raw())?;
    }
    whole(file).map_err(|error| error.to_string())
}

/// Not blocking: a FIFO would hang the start for ever.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Never more than a byte beyond the longest value: a buffer that grew would leave copies behind.
pub(super) fn whole(file: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(READ_LIMIT));
    file.take(READ_LIMIT as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn private(path: &Path, mode: u32, owner: u32, own: u32) -> Result<(), String> {
    let path = path.display();
    if owner != own && owner != 0 {
        return Err(format!("it belongs to uid {owner}, who could change it; run: chown {own} {path}"));
    }
    if mode & 0o077 != 0 {
        return Err(format!("others may read it (mode {:03o}); run: chmod 600 {path}", mode & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn around(secrets: &Path) -> Surroundings {
        Surroundings {
            podman_secrets: secrets.to_owned(),
            credentials: None,
            host_run: false,
            ..Surroundings::default()
        }
    }

    #[test]
    fn only_its_owner_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        fs::write(&path, "a value").unwrap();
        let elsewhere = around(Path::new("/nonexistent"));
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read(&path, &elsewhere);
            assert_eq!(read.is_ok(), good, "{mode:o}");
            if let Err(error) = read {
                assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
            }
        }
        // Podman's secrets are 0444 whatever one does.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(read(&path, &around(directory.path())).unwrap().as_slice(), b"a value");
    }

    #[test]
    fn it_belongs_to_us_or_to_root() {
        let path = Path::new("/v");
        assert!(private(path, 0o600, 1000, 1000).is_ok() && private(path, 0o600, 0, 1000).is_ok());
        let error = private(path, 0o600, 1001, 1000).unwrap_err();
        assert!(error.contains("uid 1001") && error.contains("chown 1000 /v"), "{error}");
    }

    #[test]
    fn only_a_regular_file_is_read_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        for path in [fifo, directory.path().to_owned(), PathBuf::from("/dev/null")] {
            let error = read(&path, &around(Path::new("/nonexistent"))).unwrap_err();
            assert_eq!(error, "not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn a_large_file_is_not_read_to_its_end() {
        assert_eq!(whole(io::repeat(b'a')).unwrap().len(), READ_LIMIT);
        assert_eq!(whole(io::repeat(b'a')).unwrap().capacity(), READ_LIMIT);
    }
}
