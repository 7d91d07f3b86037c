//! The directory that holds the socket and the hello secret, and the checks that make it trustworthy.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::HelloSecret;

/// A directory of mode 0700 that belongs to the caller, with `control.sock` and `hello` in it, both 0600.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlDirectory(PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} belongs to uid {found}, expected {expected}: another user could pose as the sidecar")]
    Owner { path: PathBuf, found: u32, expected: u32 },
    #[error("{path} has mode {mode:04o}: others may reach it (run: chmod go-rwx {path})")]
    Mode { path: PathBuf, mode: u32 },
    #[error("{path} is not a {expected}")]
    Kind { path: PathBuf, expected: &'static str },
    #[error("{path} does not hold 64 hexadecimal digits; restart the sidecar, which writes it")]
    Hello { path: PathBuf },
}

impl DirectoryError {
    /// Whether something is not there, and nothing else is wrong.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl ControlDirectory {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    pub fn hello(&self) -> PathBuf {
        self.0.join("hello")
    }

    /// Makes the directory if it is missing, then checks it.
    pub fn create(&self) -> Result<(), DirectoryError> {
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0) {
            Ok(()) => self.check(),
            Err(source) => Err(DirectoryError::Io { path: self.0.clone(), source }),
        }
    }

    /// It is a directory, not a link to one; it is the caller's; nobody else may enter it.
    pub fn check(&self) -> Result<(), DirectoryError> {
        let metadata = self.metadata(&self.0)?;
        if !metadata.is_dir() {
            return Err(DirectoryError::Kind { path: self.0.clone(), expected: "directory" });
        }
        owned_and_private(&self.0, &metadata)
    }

    /// The socket is a socket, the caller's, and closed to others.
    pub fn check_socket(&self) -> Result<(), DirectoryError> {
        use std::os::unix::fs::FileTypeExt;
        self.check()?;
        let path = self.socket();
        let metadata = self.metadata(&path)?;
        if !metadata.file_type().is_socket() {
            return Err(DirectoryError::Kind { path, expected: "socket" });
        }
        owned_and_private(&path, &metadata)
    }

    pub fn read_hello(&self) -> Result<HelloSecret, DirectoryError> {
        let path = self.hello();
        let io_error = |source| DirectoryError::Io { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| io_error(e.into()))?.into();
        let metadata = file.metadata().map_err(io_error)?;
        if !metadata.is_file() {
            return Err(DirectoryError::Kind { path, expected: "regular file" });
        }
        owned_and_private(&path, &metadata)?;
        let mut text = String::new();
        (&file).take(128).read_to_string(&mut text).map_err(io_error)?;
        HelloSecret::from_hex(text.trim_end()).ok_or(DirectoryError::Hello { path })
    }

    /// Replaces the hello secret; whole or not at all.
    pub fn write_hello(&self, secret: &HelloSecret) -> Result<(), DirectoryError> {
        let path = self.hello();
        let io_error = |source| DirectoryError::Io { path: path.clone(), source };
        let fresh = self.0.join("hello.new");
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error(e)),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(io_error)?;
        file.write_all(secret.0.as_bytes()).map_err(io_error)?;
        fs::rename(&fresh, &path).map_err(io_error)
    }

    fn metadata(&self, path: &Path) -> Result<fs::Metadata, DirectoryError> {
        fs::symlink_metadata(path).map_err(|source| DirectoryError::Io { path: path.to_owned(), source })
    }
}

fn owned_and_private(path: &Path, metadata: &fs::Metadata) -> Result<(), DirectoryError> {
    let expected = rustix::process::geteuid().as_raw();
    if metadata.uid() != expected {
        return Err(DirectoryError::Owner { path: path.to_owned(), found: metadata.uid(), expected });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(DirectoryError::Mode { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn secret(digit: &str) -> HelloSecret {
        HelloSecret::from_hex(&digit.repeat(64)).unwrap()
    }

    #[test]
    fn a_hello_secret_survives_and_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDirectory::new(dir.path().join("c"));
        control.create().unwrap();
        control.write_hello(&secret("a")).unwrap();
        control.write_hello(&secret("b")).unwrap();
        assert!(control.read_hello().unwrap().matches(&secret("b")));
    }

    #[test]
    fn a_directory_open_to_others_or_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(
            ControlDirectory::new(&open).check(),
            Err(DirectoryError::Mode { mode: 0o750, .. })
        ));

        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(matches!(ControlDirectory::new(&link).check(), Err(DirectoryError::Kind { .. })));
    }

    #[test]
    fn a_hello_file_that_is_open_linked_a_fifo_or_garbage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDirectory::new(dir.path().join("c"));
        control.create().unwrap();
        let hello = control.hello();

        fs::write(&hello, "a".repeat(64)).unwrap();
        fs::set_permissions(&hello, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(control.read_hello(), Err(DirectoryError::Mode { .. })));

        fs::write(&hello, "short").unwrap();
        fs::set_permissions(&hello, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(control.read_hello(), Err(DirectoryError::Hello { .. })));

        fs::remove_file(&hello).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &hello).unwrap();
        assert!(matches!(control.read_hello(), Err(DirectoryError::Io { .. })));

        fs::remove_file(&hello).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &hello, rustix::fs::FileType::Fifo, Mode::from(0o600), 0)
            .unwrap();
        assert!(matches!(control.read_hello(), Err(DirectoryError::Kind { .. })));
    }
}
