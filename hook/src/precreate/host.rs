//! What the guard asks the host's file system.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::mounted::{Mounts, Place};

/// Directories of sockets are small; a larger one is somebody's data.
const MOST_ENTRIES: usize = 4096;

/// Names a file or directory however it is reached: links and bind mounts do not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Socket,
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
}

/// Something that exists, every link on the way to it followed.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// Of the thing itself, then of its parents, up to the root.
    pub(crate) ancestry: Vec<Identity>,
    /// Where it lies in its own file system, which is another place than its path says below a bind mount.
    pub(crate) place: Place,
}

impl Found {
    pub(crate) fn is(&self, other: &Found) -> bool {
        self.ancestry.first() == other.ancestry.first()
    }

    pub(crate) fn lies_in(&self, other: &Found) -> bool {
        other.ancestry.first().is_some_and(|identity| self.ancestry.contains(identity))
            || self.place.lies_in(&other.place)
    }
}

pub(crate) trait Host {
    /// None if there is no such thing.
    fn find(&self, path: &Path) -> io::Result<Option<Found>>;

    /// A socket in a directory, not in those below it, on which a program listens. None if it is no directory, or not one
    /// that may be read.
    fn listener_in(&self, directory: &Path) -> Option<PathBuf>;

    /// What is mounted below a path, each with whether it is read-only.
    fn mounted_below(&self, path: &Path) -> io::Result<Vec<(Place, bool)>>;

    /// The driver that `/proc/devices` names for a character device's major number.
    fn driver(&self, major: u32) -> Option<String>;
}

/// Its mounts are read once.
#[derive(Default)]
pub(crate) struct Kernel(OnceCell<Mounts>);

impl Kernel {
    fn mounts(&self) -> io::Result<&Mounts> {
        match self.0.get() {
            Some(mounts) => Ok(mounts),
            None => {
                let read = Mounts::read()?;
                Ok(self.0.get_or_init(|| read))
            }
        }
    }
}

impl Host for Kernel {
    fn find(&self, path: &Path) -> io::Result<Option<Found>> {
        let gone = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        // One system call, where the next takes one for each part of the path; most of what is asked for is not there.
        if fs::metadata(path).is_err_and(|error| gone(&error)) {
            return Ok(None);
        }
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = fs::symlink_metadata(&real)?;
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        let kind = match metadata.file_type() {
            kind if kind.is_socket() => Kind::Socket,
            kind if kind.is_char_device() => Kind::CharacterDevice(major, minor),
            kind if kind.is_block_device() => Kind::BlockDevice(major, minor),
            _ => Kind::Plain,
        };
        let ancestry = real
            .ancestors()
            .map(|path| {
                let metadata = fs::symlink_metadata(path)?;
                Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
            })
            .collect::<io::Result<_>>()?;
        let place = self.mounts()?.place(&real)?;
        Ok(Some(Found { kind, ancestry, place }))
    }

    fn listener_in(&self, directory: &Path) -> Option<PathBuf> {
        let entries = fs::read_dir(directory).ok()?.take(MOST_ENTRIES).flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
            .map(|entry| entry.path())
            .find(|path| is_listened_on(path))
    }

    fn mounted_below(&self, path: &Path) -> io::Result<Vec<(Place, bool)>> {
        self.mounts()?.below(&fs::canonicalize(path)?)
    }

    fn driver(&self, major: u32) -> Option<String> {
        let text = fs::read_to_string("/proc/devices").ok()?;
        let characters = text.split("Block devices:").next()?;
        characters.lines().find_map(|line| {
            let (number, name) = line.trim().split_once(' ')?;
            (number.parse() == Ok(major)).then(|| name.trim().to_owned())
        })
    }
}

/// A program that died leaves its socket behind, and then nothing answers. What cannot be told counts as listening.
fn is_listened_on(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let attempt = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    !matches!(attempt(), Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT))
}
