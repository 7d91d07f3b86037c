//! What inotify(7) tells of guarded names.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result, anyhow};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::in_directory;
use super::inode::Directory;
use super::judge::Happened;

/// The kernel's queue holds 16384 events of 272 bytes at the most by default: so many buffers, and all that was in it is read.
const BUFFERS: usize = 80;
const BUFFER: usize = 64 * 1024;

pub(super) struct Events {
    inotify: OwnedFd,
    /// Numbers of targets by watch and name.
    names: HashMap<i32, HashMap<Vec<u8>, Vec<usize>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Until there was no more.
    All,
    /// There is more.
    Some,
}

/// More happened than the queue holds.
pub(super) struct Overflow;

impl Events {
    pub(super) fn new() -> Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|errno| {
            let advice = "more than this user may have: raise fs.inotify.max_user_instances";
            anyhow!("no more directories can be watched ({errno}; if it is EMFILE, {advice})")
        })?;
        Ok(Self { inotify, names: HashMap::new() })
    }

    pub(super) fn queue(&self) -> &OwnedFd {
        &self.inotify
    }

    /// Tells of what happens to its names from now on. The number is the same for each place at which one directory is mounted.
    pub(super) fn watch(&self, directory: &Directory) -> io::Result<i32> {
        let told = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            // not what is done to a file that had the name before
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        in_directory(&directory.bare_at, || inotify::add_watch(&self.inotify, c".", told))
    }

    pub(super) fn expect(&mut self, watch: i32, name: &OsStr, target: usize) {
        self.names.entry(watch).or_default().entry(name.as_bytes().to_owned()).or_default().push(target);
    }

    /// What there is, in order; all of it unless it comes faster than it can be read.
    pub(super) fn read_all(
        &self,
        told: impl FnMut(std::result::Result<(usize, Happened), Overflow>),
    ) -> Result<Read> {
        self.read(BUFFERS, told)
    }

    /// Reads up to so many buffers of events.
    pub(super) fn read(
        &self,
        buffers: usize,
        mut told: impl FnMut(std::result::Result<(usize, Happened), Overflow>),
    ) -> Result<Read> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut read = 0;
        loop {
            if reader.is_buffer_empty() {
                if read == buffers {
                    return Ok(Read::Some);
                }
                read += 1;
            }
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(Read::All),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(io::Error::from(errno)).context("inotify"),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told(Err(Overflow));
                continue;
            }
            let Some(what) = happened(event.events()) else { continue };
            let of = event.file_name().and_then(|name| self.names.get(&event.wd())?.get(name.to_bytes()));
            of.into_iter().flatten().for_each(|target| told(Ok((*target, what))));
        }
    }
}

fn happened(events: ReadFlags) -> Option<Happened> {
    if events.contains(ReadFlags::MOVED_TO) {
        Some(Happened::MovedIn)
    } else if events.contains(ReadFlags::CREATE) {
        Some(Happened::Made)
    } else if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
        Some(Happened::Gone)
    } else if events.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE) {
        Some(Happened::Written)
    } else {
        None
    }
}
