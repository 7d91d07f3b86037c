//! Which inode a name has, and which mount it is seen through.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use understudy_control::sys::{self, MountIs};

use crate::workspace::folder::Folder;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    pub(super) mount: u64,
    mode: u32,
}

impl Identity {
    pub(super) fn is_of(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    pub(super) fn is(self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.mode) == kind
    }
}

pub(super) fn identity(file: impl AsFd) -> rustix::io::Result<Identity> {
    let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    if status.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        // Before Linux 5.8.
        return Err(Errno::NOSYS);
    }
    Ok(Identity {
        device: (status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        mount: status.stx_mnt_id,
        mode: status.stx_mode.into(),
    })
}

pub(super) fn look(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// One in which guarded names are.
pub(super) struct Directory {
    /// As the container sees it, what is mounted in it included.
    pub(super) at: OwnedFd,
    /// The same directory, and nothing is mounted in it.
    pub(super) bare: Folder,
    pub(super) bare_at: OwnedFd,
    pub(super) mount: u64,
}

impl Directory {
    pub(super) fn new(at: OwnedFd) -> io::Result<Self> {
        let bare_at = clone_of(&at)?;
        sys::make_mount(&bare_at, MountIs::Private)?;
        let mount = identity(&at)?.mount;
        let bare = Folder::from(bare_at.try_clone()?);
        Ok(Self { at, bare, bare_at, mount })
    }
}

/// A mount of its own of what `seen` is, without what is mounted in it.
pub(super) fn clone_of(seen: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(seen, c"", flags)
}
