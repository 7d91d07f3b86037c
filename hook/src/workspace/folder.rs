//! A directory that others may write to while it is looked at: nothing in it leads out of it (openat2(2)), no link in it is
//! followed, nothing is waited for, and what is read has a limit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat, openat2};
use rustix::io::Errno;

/// Configurations of git's are some hundred bytes.
pub(crate) const LARGEST: u64 = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    /// With an execute bit.
    Program,
    Folder,
    /// The path, or something on the way.
    Link,
    /// A device, a socket, a FIFO.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    Directory,
    /// With this content.
    File(&'static str),
}

impl From<OwnedFd> for Folder {
    /// Of a directory.
    fn from(directory: OwnedFd) -> Self {
        Self(directory)
    }
}

impl Folder {
    /// Links on the way to `path` are followed, those of what it is not.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// `None` if there is no such thing.
    pub(crate) fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        let seen = match self.within(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(seen) => seen,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => return Ok(Some(Kind::Link)),
            Err(errno) => return Err(errno.into()),
        };
        let status = fstat(&seen)?;
        Ok(Some(match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile if status.st_mode & 0o111 != 0 => Kind::Program,
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        }))
    }

    pub(crate) fn is_folder(&self, path: &Path) -> io::Result<bool> {
        Ok(self.kind(path)? == Some(Kind::Folder))
    }

    /// A regular file's content.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_up_to(path, LARGEST)
    }

    /// `largest` in bytes; a larger one is an error.
    pub(crate) fn read_up_to(&self, path: &Path, largest: u64) -> io::Result<Vec<u8>> {
        let file = self.file(path)?;
        let mut bytes = Vec::new();
        file.take(largest + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > largest {
            return Err(io::Error::other(format!("larger than {largest} bytes")));
        }
        Ok(bytes)
    }

    /// A regular file, to be read.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        let file =
            self.within(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let file: File = file.into();
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// Names in a directory, in order, and whether each is a directory itself; `limit` of them at the most.
    pub(crate) fn list(&self, path: &Path, limit: usize) -> io::Result<Vec<(OsString, bool)>> {
        let directory = self.within(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)?.take(limit.saturating_add(2)) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let is_directory = match entry.file_type() {
                FileType::Unknown => self.is_folder(&path.join(&name))?,
                kind => kind == FileType::Directory,
            };
            names.push((name, is_directory));
        }
        names.sort();
        Ok(names)
    }

    /// Makes what git would make, as its directory's owner.
    pub(crate) fn make(&self, path: &Path, what: Make) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = self.within(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let status = fstat(&parent)?;
        match what {
            Make::Directory => mkdirat(&parent, name, Mode::from_raw_mode(0o755))?,
            Make::File(content) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file: File = openat(&parent, name, flags, Mode::from_raw_mode(0o644))?.into();
                (&file).write_all(content.as_bytes())?;
            }
        }
        let (uid, gid) = (rustix::fs::Uid::from_raw(status.st_uid), rustix::fs::Gid::from_raw(status.st_gid));
        // An owner that this user namespace has no number for cannot be given; it is this user's then.
        let _ = rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    fn within(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // A rename that another process makes meanwhile is told by EAGAIN.
        for _ in 0..16 {
            match openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_or_anywhere_else() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let inside = scratch.path();
        fs::create_dir(inside.join("real")).unwrap();
        fs::write(inside.join("real/file"), "y").unwrap();
        symlink(outside.path(), inside.join("out")).unwrap();
        symlink("real", inside.join("near")).unwrap();
        symlink("real/file", inside.join("link")).unwrap();
        let folder = Folder::open(inside).unwrap();
        for path in ["out", "near", "link", "out/secret", "near/file"] {
            assert_eq!(folder.kind(Path::new(path)).unwrap(), Some(Kind::Link), "{path}");
            assert!(folder.read(Path::new(path)).is_err(), "{path}");
            assert!(folder.list(Path::new(path), 9).is_err(), "{path}");
        }
        assert!(folder.kind(Path::new("../x")).is_err());
        assert!(folder.read(Path::new("/etc/passwd")).is_err());
        assert_eq!(folder.read(Path::new("real/file")).unwrap(), b"y");
        assert_eq!(folder.kind(Path::new("absent/x")).unwrap(), None);
        assert_eq!(folder.kind(Path::new("real/file/x")).unwrap(), None);
    }

    #[test]
    fn what_would_block_or_flood_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let fifo = scratch.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        fs::write(scratch.path().join("huge"), vec![0; LARGEST as usize + 1]).unwrap();
        let folder = Folder::open(scratch.path()).unwrap();
        assert_eq!(folder.kind(Path::new("fifo")).unwrap(), Some(Kind::Other));
        assert!(folder.read(Path::new("fifo")).is_err());
        assert!(folder.read(Path::new("huge")).unwrap_err().to_string().contains("larger"));
    }
}
