//! The files of a directory that somebody hostile filled: regular ones, of a bounded size, never through a link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

const LARGEST: u64 = 16 * 1024 * 1024;
const DEEPEST: usize = 8;
const MOST_ENTRIES: usize = 50_000;
const MOST_FILES: usize = 500;
/// What package managers put there is not the project's own.
const PASSED_OVER: [&str; 8] =
    ["node_modules", ".git", "target", "vendor", ".venv", "venv", "__pycache__", ".yarn"];

pub(super) struct Content {
    /// From the directory, shown without control characters.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) problems: Vec<String>,
    entries: usize,
    files: usize,
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
    let mut left = vec![(String::new(), root)];
    while let Some((path, directory)) = left.pop() {
        let mut below = Vec::new();
        let names = match names(&directory, &mut read) {
            Ok(names) => names,
            Err(error) => {
                read.problems.push(format!("{}: {error}", if path.is_empty() { "." } else { &path }));
                continue;
            }
        };
        for name in names {
            let shown = shown(&path, &name);
            let plain = std::str::from_utf8(&name).is_ok_and(|name| name.chars().all(|c| !c.is_control()));
            let problem = match look(directory.as_fd(), &name) {
                Err(error) => error.to_string(),
                Ok(Kind::Directory(_)) if PASSED_OVER.iter().any(|other| other.as_bytes() == name) => {
                    continue;
                }
                Ok(Kind::Directory(_)) if shown.split('/').count() >= DEEPEST => {
                    format!("not read, since it is {DEEPEST} directories deep")
                }
                Ok(Kind::Directory(fd)) => {
                    below.push((shown, fd));
                    continue;
                }
                _ if !plain || !wanted(&shown) => continue,
                Ok(Kind::Link) => "a symbolic link, which is not followed".to_owned(),
                Ok(Kind::Other) => "not a regular file".to_owned(),
                Ok(Kind::Regular(_)) if read.files == MOST_FILES => {
                    read.problems.push(format!("{shown}: not read, since {MOST_FILES} files were"));
                    return Ok(read);
                }
                Ok(Kind::Regular(fd)) => {
                    read.files += 1;
                    match content(&fd) {
                        Ok(bytes) => {
                            take(Content { path: shown, bytes });
                            continue;
                        }
                        Err(error) => error.to_string(),
                    }
                }
            };
            read.problems.push(format!("{shown}: {problem}"));
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
    Directory(OwnedFd),
    /// Seen, not opened yet.
    Regular(OwnedFd),
    Link,
    Other,
}

/// What `name` is, without opening what could block or act (openat2(2), `O_PATH`).
fn look(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Kind> {
    let name = OsStr::from_bytes(name);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let seen = match openat2(directory, name, flags, Mode::empty(), resolve) {
        Ok(seen) => seen,
        Err(Errno::LOOP) => return Ok(Kind::Link),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(fstat(&seen)?.st_mode) {
        FileType::RegularFile => Ok(Kind::Regular(seen)),
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(Kind::Directory(openat2(directory, name, flags, Mode::empty(), resolve)?))
        }
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
        .flat_map(|c| match c.is_control() || is_invisible(c) {
            true => c.escape_unicode().collect::<Vec<char>>(),
            false => vec![c],
        })
        .collect();
    if directory.is_empty() { name } else { format!("{directory}/{name}") }
}

/// Changes how what stands around it is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
