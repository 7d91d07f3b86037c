//! The files of a directory that somebody hostile filled: regular ones, of a bounded size, never through a link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

use crate::is_plain;

const LARGEST: u64 = 16 * 1024 * 1024;
const DEEPEST: usize = 8;
const MOST_ENTRIES: usize = 50_000;
const MOST_FILES: usize = 500;
/// Of all of them.
const MOST_BYTES: usize = 256 * 1024 * 1024;
const MOST_PROBLEMS: usize = 100;
/// What package managers put there is not the project's own.
const PASSED_OVER: [&str; 8] =
    ["node_modules", ".git", "target", "vendor", ".venv", "venv", "__pycache__", ".yarn"];

pub(super) struct Content {
    /// From the directory; letters and digits of any script, and what else ASCII has that is seen.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) problems: Vec<String>,
    /// Links that are no file which is wanted, and where the first one is.
    pub(super) links: usize,
    pub(super) first_link: String,
    entries: usize,
    files: usize,
    bytes: usize,
}

/// Gives every file whose path is `wanted` to `take`, in the order of their names.
pub(super) fn read(
    directory: &Path,
    wanted: impl Fn(&str) -> bool,
    mut take: impl FnMut(Content),
) -> io::Result<Read> {
    // The person who runs this named it, so it may be a link.
    let root = open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut read = Read::default();
    // By name: more directories can wait than a process may have open.
    let mut left = vec![(String::new(), PathBuf::from("."))];
    while let Some((path, real)) = left.pop() {
        let mut below = Vec::new();
        let opened = open_directory(root.as_fd(), &real);
        let names = opened.and_then(|opened| Ok((names(&opened, &mut read)?, opened)));
        let (names, directory) = match names {
            Ok(both) => both,
            Err(error) => {
                read.problem(if path.is_empty() { "." } else { &path }, &error.to_string());
                continue;
            }
        };
        for name in names {
            let shown = shown(&path, &name);
            let plain = std::str::from_utf8(&name).is_ok_and(|name| name.chars().all(|c| !c.is_control()));
            let problem = match look(directory.as_fd(), &name) {
                Err(error) => error.to_string(),
                Ok(Kind::Directory) if PASSED_OVER.iter().any(|other| other.as_bytes() == name) => {
                    continue;
                }
                Ok(Kind::Directory) if shown.split('/').count() >= DEEPEST => {
                    format!("not read, since it is {DEEPEST} directories deep")
                }
                Ok(Kind::Directory) => {
                    below.push((shown, real.join(OsStr::from_bytes(&name))));
                    continue;
                }
                Ok(Kind::Link) if !wanted(&shown) => {
                    read.links += 1;
                    if read.links == 1 {
                        read.first_link = shown;
                    }
                    continue;
                }
                _ if !plain || !wanted(&shown) => continue,
                Ok(Kind::Link) => "a symbolic link, which is not followed".to_owned(),
                Ok(Kind::Other) => "not a regular file".to_owned(),
                Ok(Kind::Regular(_)) if read.files == MOST_FILES => {
                    read.problem(&shown, &format!("not read, since {MOST_FILES} files were"));
                    return Ok(read);
                }
                Ok(Kind::Regular(fd)) => {
                    read.files += 1;
                    match content(&fd) {
                        Ok(bytes) if bytes.len() > MOST_BYTES.saturating_sub(read.bytes) => {
                            let most = MOST_BYTES / 1024 / 1024;
                            read.problem(&shown, &format!("not read, since {most} MiB were"));
                            return Ok(read);
                        }
                        Ok(bytes) => {
                            read.bytes += bytes.len();
                            take(Content { path: shown, bytes });
                            continue;
                        }
                        Err(error) => error.to_string(),
                    }
                }
            };
            read.problem(&shown, &problem);
        }
        below.reverse();
        left.extend(below);
    }
    Ok(read)
}

/// Sorted. Fewer than there are, if there are too many.
fn names(directory: &OwnedFd, read: &mut Read) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        read.entries += 1;
        if read.entries > MOST_ENTRIES {
            if read.entries == MOST_ENTRIES + 1 {
                read.problems.push(format!("more than {MOST_ENTRIES} files; not all of them were looked at"));
            }
            break;
        }
        names.push(name.to_vec());
    }
    names.sort();
    Ok(names)
}

enum Kind {
    Directory,
    /// Seen, not opened yet.
    Regular(OwnedFd),
    Link,
    Other,
}

impl Read {
    /// All of one project are too many to be read by a person.
    fn problem(&mut self, path: &str, what: &str) {
        match self.problems.len() {
            MOST_PROBLEMS => self.problems.push("more was not read than is told here".to_owned()),
            len if len < MOST_PROBLEMS => self.problems.push(format!("{path}: {what}")),
            _ => {}
        }
    }
}

const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn open_directory(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), BELOW)?)
}

/// What `name` is, without opening what could block or act (openat2(2), `O_PATH`).
fn look(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Kind> {
    let name = OsStr::from_bytes(name);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let seen = match openat2(directory, name, flags, Mode::empty(), BELOW) {
        Ok(seen) => seen,
        Err(Errno::LOOP) => return Ok(Kind::Link),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(fstat(&seen)?.st_mode) {
        FileType::RegularFile => Ok(Kind::Regular(seen)),
        FileType::Directory => Ok(Kind::Directory),
        _ => Ok(Kind::Other),
    }
}

fn content(seen: &OwnedFd) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(format!("larger than {} MiB", LARGEST / 1024 / 1024));
    if u64::try_from(fstat(seen)?.st_size).is_ok_and(|size| size > LARGEST) {
        return Err(too_large());
    }
    // The very file that was looked at, whatever its name means by now.
    let same = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = openat(CWD, same, flags, Mode::empty())?.into();
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(too_large());
    }
    Ok(bytes)
}

fn shown(directory: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name: String = name
        .chars()
        .map(|c| match is_plain(c) {
            true => c.to_string(),
            false => c.escape_unicode().to_string(),
        })
        .collect();
    if directory.is_empty() { name } else { format!("{directory}/{name}") }
}
