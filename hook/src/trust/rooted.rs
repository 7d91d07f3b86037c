//! Opens a file below a directory that somebody hostile filled.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

const LARGEST: u64 = 4 * 1024 * 1024;

/// A file's content, and its path without links.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) bytes: Vec<u8>,
    pub(super) real: PathBuf,
}

/// Reads a regular file. Links are resolved as if `root` were `/` (openat2(2)); what is not a regular file is seen
/// without being opened, so that no FIFO blocks and no device does anything. None if there is no such file.
pub(super) fn read(root: &Path, path: &str) -> io::Result<Option<Seen>> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let seen = match openat2(&root, path, flags, Mode::empty(), resolve) {
        Ok(seen) => seen,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let status = fstat(&seen)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    if u64::try_from(status.st_size).is_ok_and(|size| size > LARGEST) {
        return Err(io::Error::other(format!("larger than {LARGEST} bytes")));
    }
    // The very file that was looked at, whatever its name means by now.
    let same = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = openat(CWD, same, flags, Mode::empty())?.into();
    let real = below(&root, &seen)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("larger than {LARGEST} bytes")));
    }
    Ok(Some(Seen { bytes, real }))
}

/// Where a file of this path would be made below `root`, or is.
#[derive(Debug)]
pub(super) struct Spot {
    /// The path without links.
    pub(super) real: PathBuf,
    /// Its size, if there is a regular file.
    pub(super) size: Option<u64>,
}

/// Looks where a mount at `path` would come to lie; what is missing of its directories would be made. None if its
/// directory must be there, and is not.
///
/// # Errors
/// If something else than directories and a regular file lies on the way: a link that leads nowhere is one, since whoever
/// makes the file would follow it.
pub(super) fn spot(root: &Path, path: &str, make_directory: bool) -> io::Result<Option<Spot>> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = Path::new(path);
    let mut last = None;
    for known in path.ancestors() {
        match openat2(&root, known, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(seen) => {
                last = Some((known, seen));
                break;
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let Some((known, seen)) = last else { return Err(io::Error::other("not a path")) };
    let status = fstat(&seen)?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if known == path {
        return match kind {
            FileType::RegularFile => {
                Ok(Some(Spot { real: below(&root, &seen)?, size: u64::try_from(status.st_size).ok() }))
            }
            _ => Err(io::Error::other("not a regular file")),
        };
    }
    if kind != FileType::Directory {
        return Err(io::Error::other(format!("{} is not a directory", known.display())));
    }
    if path.parent() != Some(known) && !make_directory {
        return Ok(None);
    }
    let missing = path.strip_prefix(known).map_err(|_| io::Error::other("not a path"))?;
    let next = missing.components().next().ok_or_else(|| io::Error::other("not a path"))?;
    match openat(&seen, next.as_os_str(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(Some(Spot { real: below(&root, &seen)?.join(missing), size: None })),
        Ok(_) => Err(io::Error::other("a link that leads nowhere is on the way")),
        Err(errno) => Err(errno.into()),
    }
}

/// Where `seen` is when `root` is `/`.
fn below(root: &OwnedFd, seen: &OwnedFd) -> io::Result<PathBuf> {
    let path = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let (root, seen) = (path(root)?, path(seen)?);
    let inside = seen.strip_prefix(&root).map_err(|_| io::Error::other("not below the container's root"))?;
    Ok(Path::new("/").join(inside))
}
