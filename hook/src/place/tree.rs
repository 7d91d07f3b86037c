//! Files in a tree that somebody else made: no symlink followed but where it says so, nothing waited for, sizes capped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The largest file that is read, in bytes.
pub(crate) const MAX_FILE: u64 = 1024 * 1024;

/// An open directory, and its path for messages.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("{0} is a symbolic link, which is not followed (replace it by what it points to)")]
    Symlink(PathBuf),
    #[error("{0} is not a directory")]
    NotDirectory(PathBuf),
    #[error("{0} is not a regular file")]
    NotRegular(PathBuf),
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

impl TreeError {
    /// Whether the place does not let itself be written to: a read-only file system, another user's directory, a file
    /// that is a mount of its own.
    pub(crate) fn is_unwritable(&self) -> bool {
        let Self::Io(_, error) = self else { return false };
        [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::BUSY]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    }
}

impl Directory {
    pub(crate) fn root() -> Result<Self, TreeError> {
        Self::open(Path::new("/"))
    }

    /// `path` becomes the root of what is shown and resolved.
    pub(crate) fn open(path: &Path) -> Result<Self, TreeError> {
        let descriptor = rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map_err(|errno| TreeError::Io(path.to_owned(), errno.into()))?;
        Ok(Self { descriptor, path: PathBuf::from("/") })
    }

    pub(crate) fn again(&self) -> Result<Self, TreeError> {
        let descriptor =
            self.descriptor.try_clone().map_err(|error| TreeError::Io(self.path.clone(), error))?;
        Ok(Self { descriptor, path: self.path.clone() })
    }

    /// The content of a file below this root. Its path is ours, but symlinks of the image in it are followed, as far as
    /// they stay below the root. `None` if there is none.
    pub(crate) fn find(&self, path: &Path) -> Result<Option<Vec<u8>>, TreeError> {
        let shown = self.path.join(path);
        match rustix::fs::openat2(&self.descriptor, path, READ, Mode::empty(), BELOW) {
            Ok(file) => content(file.into(), shown).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(TreeError::Io(shown, errno.into())),
        }
    }

    /// The directory `path` below this root; symlinks are followed as far as they stay below it. If it is missing it is
    /// made, if that is asked for, and then without following any.
    pub(crate) fn resolve(&self, path: &Path, create: bool) -> Result<Option<Self>, TreeError> {
        match rustix::fs::openat2(&self.descriptor, path, DIRECTORY, Mode::empty(), BELOW) {
            Ok(descriptor) => Ok(Some(Self { descriptor, path: path.to_owned() })),
            Err(Errno::NOENT) if create => {
                let parts: Vec<&str> = path
                    .components()
                    .filter_map(|part| match part {
                        Component::Normal(part) => part.to_str(),
                        _ => None,
                    })
                    .collect();
                self.descend(&parts, true)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => Err(TreeError::NotDirectory(path.to_owned())),
            Err(errno) => Err(TreeError::Io(path.to_owned(), errno.into())),
        }
    }

    /// Down through `names`, none of which may be a symlink. Missing directories are made (0700) if that is asked for.
    pub(crate) fn descend(&self, names: &[&str], create: bool) -> Result<Option<Self>, TreeError> {
        let mut here = self.again()?;
        for name in names {
            match here.enter(name)? {
                Some(below) => here = below,
                None if create => {
                    let path = here.path.join(name);
                    match rustix::fs::mkdirat(&here.descriptor, *name, Mode::RWXU) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(TreeError::Io(path, errno.into())),
                    }
                    here = here
                        .enter(name)?
                        .ok_or_else(|| TreeError::Io(path, io::ErrorKind::NotFound.into()))?;
                }
                None => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    fn enter(&self, name: &str) -> Result<Option<Self>, TreeError> {
        let path = self.path.join(name);
        match rustix::fs::openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Ok(Some(Self { descriptor, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(match self.kind(name) {
                Ok(FileType::Symlink) => TreeError::Symlink(path),
                _ => TreeError::NotDirectory(path),
            }),
            Err(errno) => Err(TreeError::Io(path, errno.into())),
        }
    }

    fn kind(&self, name: &str) -> rustix::io::Result<FileType> {
        let stat = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// The content of the regular file `name` in here; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, TreeError> {
        let path = self.path.join(name);
        match rustix::fs::openat(&self.descriptor, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => content(file.into(), path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(TreeError::Symlink(path)),
            // A socket, or a device without a driver.
            Err(Errno::NXIO | Errno::NODEV) => Err(TreeError::NotRegular(path)),
            Err(errno) => Err(TreeError::Io(path, errno.into())),
        }
    }

    /// Puts a new file in place of `name`, so that other names of an old one are not written through.
    pub(crate) fn write(&self, name: &str, content: &[u8], mode: u32) -> Result<(), TreeError> {
        let fresh = format!(".understudy-{}", std::process::id());
        let written = self.write_fresh(&fresh, content, mode).and_then(|()| {
            rustix::fs::renameat(&self.descriptor, &fresh, &self.descriptor, name).map_err(io::Error::from)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.descriptor, &fresh, AtFlags::empty());
        }
        written.map_err(|error| TreeError::Io(self.path.join(name), error))
    }

    fn write_fresh(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        // Left by a start that was cut short; process numbers in a container are the same each time.
        let _ = rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file: File =
            rustix::fs::openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR)?.into();
        file.write_all(content)?;
        // After the fact, since the image's umask must not matter.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Non-blocking, so that a FIFO does not hold up the start.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

const BELOW: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

fn content(file: File, path: PathBuf) -> Result<Vec<u8>, TreeError> {
    let metadata = file.metadata().map_err(|error| TreeError::Io(path.clone(), error))?;
    if !metadata.is_file() {
        return Err(TreeError::NotRegular(path));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    if let Err(error) = file.take(MAX_FILE + 1).read_to_end(&mut bytes) {
        return Err(TreeError::Io(path, error));
    }
    if bytes.len() as u64 > MAX_FILE { Err(TreeError::TooLarge(path)) } else { Ok(bytes) }
}
