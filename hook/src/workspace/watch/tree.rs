//! The guarded names of a container, and the directories in which they are: told of what happens there, they are guarded
//! again. All of it within the container's mount namespace, by descriptors and single names: no path of the container's is
//! resolved once it runs.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use understudy_control::sys::{self, MountIs};

use super::judge::{File, Found, Happened, Reason, Since, Tampered, Verdict, judged};
use super::{in_directory, is_git_configuration};
use crate::mounted::Mounts;
use crate::record::fingerprint;
use crate::workspace::config;
use crate::workspace::folder::Folder;
use crate::workspace::guard::Guarded;
use crate::workspace::run::runs;

/// How often a name that is replaced again and again is tried.
const TRIES: usize = 1000;
/// The kernel's queue holds 16384 events of 272 bytes at the most by default: so many buffers, and all that was in it is read.
const BUFFERS: usize = 80;
const BUFFER: usize = 64 * 1024;

pub(super) struct Tree {
    inotify: OwnedFd,
    directories: Vec<Directory>,
    targets: Vec<Target>,
    /// By watch and name.
    names: HashMap<i32, HashMap<Vec<u8>, Vec<usize>>>,
}

struct Directory {
    /// As the container sees it, what is mounted in it included.
    at: OwnedFd,
    /// The same directory, and nothing is mounted in it.
    bare: Folder,
    bare_at: OwnedFd,
    mount: u64,
    /// The pinned target that it is.
    of: Option<usize>,
}

struct Target {
    directory: usize,
    name: OsString,
    /// If not, it is a directory that is only kept in its place.
    read_only: bool,
    is_directory: bool,
    /// The number of the mount that lies over it.
    mount: u64,
    shown: String,
    since: Since,
    /// It arrived, and is not known to be guarded since then.
    off: bool,
    /// It was guarded again, and is not judged yet.
    renewed: bool,
    waiting: Option<Instant>,
    /// As it was before.
    known: Known,
}

#[derive(Default)]
struct Known {
    /// Name, and what tells its value from another one: values are not for messages.
    commands: BTreeSet<(String, u64)>,
    /// Of a file that only says where git is to look.
    content: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
    mode: u32,
}

impl Tree {
    pub(super) fn new(guards: &[Guarded]) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|errno| {
            let advice = "more than this user may have: raise fs.inotify.max_user_instances";
            anyhow!("no more directories can be watched ({errno}; if it is EMFILE, {advice})")
        })?;
        let mut tree = Self { inotify, directories: Vec::new(), targets: Vec::new(), names: HashMap::new() };
        let mounts = Mounts::read().context("/proc/self/mountinfo")?;
        let mut all = Vec::new();
        for guarded in guards {
            let points = mounts.guards(guarded);
            if points.is_empty() {
                bail!("{} is not guarded", guarded.place.shown());
            }
            all.extend(points.into_iter().map(|(mount, point)| (point.to_owned(), mount, guarded)));
        }
        // What contains comes before what is contained.
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let mut by_path = HashMap::new();
        for (point, mount, guarded) in &all {
            tree.add(point, *mount, guarded, &mut by_path)?;
        }
        // Somebody may have replaced one before it was watched.
        for index in 0..tree.targets.len() {
            if !tree.is_guarded(index)? {
                bail!("{} was replaced while the container started", tree.shown(index));
            }
            let known = tree.known(index)?;
            tree.target(index)?.known = known;
        }
        Ok(tree)
    }

    fn add(
        &mut self,
        point: &Path,
        mount: u64,
        guarded: &Guarded,
        by_path: &mut HashMap<PathBuf, (Option<usize>, Option<usize>)>,
    ) -> Result<()> {
        let seen = open(point, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let seen = seen.with_context(|| point.display().to_string())?;
        let seen = identity(&seen)?;
        if seen.mount != mount {
            if Mounts::read()?.has(mount) {
                // Something that the user mounts lies over it: nothing of it can be reached.
                return Ok(());
            }
            bail!("{} was replaced while the container started", guarded.place.shown());
        }
        let (Some(parent), Some(name)) = (point.parent(), point.file_name()) else {
            bail!("{} has no name", point.display());
        };
        let known = by_path.get(parent).copied().unwrap_or_default();
        let directory = match known {
            (_, Some(directory)) => directory,
            (of, None) => {
                let at = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
                let at = at.with_context(|| parent.display().to_string())?;
                let directory = Directory::new(at, of).with_context(|| parent.display().to_string())?;
                self.directories.push(directory);
                let index = self.directories.len() - 1;
                self.watch(index).with_context(|| {
                    format!("{} cannot be watched (fs.inotify.max_user_watches)", parent.display())
                })?;
                by_path.insert(parent.to_owned(), (of, Some(index)));
                index
            }
        };
        let index = self.targets.len();
        self.targets.push(Target {
            directory,
            name: name.to_owned(),
            read_only: guarded.read_only,
            is_directory: is(seen, FileType::Directory),
            mount,
            shown: guarded.place.shown(),
            since: Since::default(),
            off: false,
            renewed: false,
            waiting: None,
            known: Known::default(),
        });
        let watch = self.watch(directory)?;
        self.names.entry(watch).or_default().entry(name.as_bytes().to_owned()).or_default().push(index);
        if !guarded.read_only {
            by_path.insert(point.to_owned(), (Some(index), None));
        }
        Ok(())
    }

    pub(super) fn events(&self) -> &OwnedFd {
        &self.inotify
    }

    /// Whether something is to be looked at again without being told.
    pub(super) fn is_waiting(&self) -> bool {
        self.targets.iter().any(|target| target.waiting.is_some())
    }

    /// Takes in what happened, guards what is not guarded, and judges.
    pub(super) fn settle(&mut self, now: Instant) -> Result<Option<Tampered>> {
        self.take_in(1)?;
        for _ in 0..TRIES {
            let off: Vec<_> = (0..self.targets.len()).filter(|index| self.targets[*index].off).collect();
            if off.is_empty() {
                break;
            }
            for index in off {
                if let Some(tampered) = self.guard(index)? {
                    return Ok(Some(tampered));
                }
            }
            // What happened until then.
            self.take_in(BUFFERS)?;
        }
        for index in 0..self.targets.len() {
            let target = &self.targets[index];
            if !target.since.arrived() || target.off {
                continue;
            }
            if let Some(tampered) = self.judge(index, now)? {
                return Ok(Some(tampered));
            }
        }
        Ok(None)
    }

    /// Reads up to so many buffers of events.
    fn take_in(&mut self, buffers: usize) -> Result<()> {
        let Self { inotify, targets, names, .. } = self;
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&*inotify, &mut buffer);
        let mut read = 0;
        loop {
            if reader.is_buffer_empty() {
                if read == buffers {
                    return Ok(());
                }
                read += 1;
            }
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(io::Error::from(errno)).context("inotify"),
            };
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                for target in targets.iter_mut() {
                    target.since.happened(Happened::Unseen);
                    target.off = true;
                }
                continue;
            }
            let found = event.file_name().and_then(|name| names.get(&event.wd())?.get(name.to_bytes()));
            let Some(what) = happened(events) else { continue };
            for index in found.into_iter().flatten() {
                let Some(target) = targets.get_mut(*index) else { continue };
                target.since.happened(what);
                target.off |= matches!(what, Happened::MovedIn | Happened::Made);
            }
        }
    }

    /// Lies a guard over what has that name now.
    fn guard(&mut self, index: usize) -> Result<Option<Tampered>> {
        for _ in 0..TRIES {
            match self.try_to_guard(index) {
                Ok(Tried::Again) | Err(Errno::NOENT | Errno::STALE) => {}
                Ok(Tried::Absent) => {
                    let target = self.target(index)?;
                    (target.off, target.waiting) = (false, None);
                    if target.since.was_taken_away() {
                        return self.tampered(index, Reason::Again).map(Some);
                    }
                    (target.since, target.renewed) = (Since::default(), false);
                    return Ok(None);
                }
                Ok(Tried::Untouched) => {
                    let target = self.target(index)?;
                    (target.off, target.since) = (false, Since::default());
                    return Ok(None);
                }
                Ok(Tried::Guarded) => {
                    self.target(index)?.off = false;
                    return Ok(None);
                }
                Ok(Tried::Other) => return self.tampered(index, Reason::Kind).map(Some),
                Err(errno) => {
                    let shown = self.shown(index);
                    return Err(io::Error::from(errno))
                        .with_context(|| format!("{shown} cannot be guarded again"));
                }
            }
        }
        self.tampered(index, Reason::Again).map(Some)
    }

    fn try_to_guard(&mut self, index: usize) -> rustix::io::Result<Tried> {
        let Some((target, directory)) = self.place(index) else { return Err(Errno::INVAL) };
        let bare = match look(&directory.bare_at, &target.name) {
            Ok(bare) => identity(&bare)?,
            Err(Errno::NOENT) => return Ok(Tried::Absent),
            Err(errno) => return Err(errno),
        };
        if !is(bare, if target.is_directory { FileType::Directory } else { FileType::RegularFile }) {
            return Ok(Tried::Other);
        }
        let seen_at = look(&directory.at, &target.name)?;
        let seen = identity(&seen_at)?;
        if !bare.is_of(seen) {
            return Ok(Tried::Again);
        }
        if seen.mount == target.mount {
            return Ok(if target.renewed { Tried::Guarded } else { Tried::Untouched });
        }
        if seen.mount != directory.mount {
            return Ok(Tried::Again);
        }
        let flags =
            OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let guard = open_tree(&seen_at, c"", flags)?;
        let kind = if target.read_only { MountIs::ReadOnly } else { MountIs::Writable };
        sys::make_mount(&guard, kind).map_err(|error| errno_of(&error))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&guard, c"", &seen_at, c"", flags)?;
        let mount = identity(&guard)?.mount;
        if let Some(target) = self.targets.get_mut(index) {
            (target.mount, target.renewed) = (mount, true);
        }
        // Whether it lies over what has the name by now.
        let guarded = self.is_guarded(index).map_err(|_| Errno::STALE)?;
        if !guarded {
            return Ok(Tried::Again);
        }
        self.enter(index)?;
        Ok(Tried::Guarded)
    }

    /// A directory that was kept in its place is another one: what is in it is guarded anew.
    fn enter(&mut self, index: usize) -> rustix::io::Result<()> {
        for number in 0..self.directories.len() {
            if self.directories[number].of != Some(index) {
                continue;
            }
            let Some((target, directory)) = self.place(index) else { continue };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let at = openat(&directory.at, &target.name, flags, Mode::empty())?;
            self.directories[number] = Directory::new(at, Some(index)).map_err(|error| errno_of(&error))?;
            let watch = self.watch(number).map_err(|error| errno_of(&error))?;
            for child in 0..self.targets.len() {
                if self.targets[child].directory == number {
                    let target = &mut self.targets[child];
                    target.off = true;
                    target.since.happened(Happened::Made);
                    let of_name = self.names.entry(watch).or_default();
                    let of_name = of_name.entry(target.name.as_bytes().to_owned()).or_default();
                    if !of_name.contains(&child) {
                        of_name.push(child);
                    }
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, index: usize, now: Instant) -> Result<Option<Tampered>> {
        let since = self.targets[index].since.clone();
        let target = self.target(index)?;
        if !target.read_only {
            // What is in it is judged.
            (target.since, target.renewed) = (Since::default(), false);
            return Ok(None);
        }
        let known = match self.known(index) {
            Ok(known) => known,
            Err(_) if !self.is_guarded(index)? => {
                // Replaced once more; it is told of that.
                self.targets[index].off = true;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let found = self.found(index, &known)?;
        let target = self.target(index)?;
        let waited = target.waiting.map_or(Duration::ZERO, |from| now.saturating_duration_since(from));
        match judged(&since, &found, waited) {
            Verdict::Stands => {
                (target.since, target.waiting, target.known) = (Since::default(), None, known);
                target.renewed = false;
                Ok(None)
            }
            Verdict::Wait => {
                target.waiting.get_or_insert(now);
                Ok(None)
            }
            Verdict::Tampered(reason) => self.tampered(index, reason).map(Some),
        }
    }

    fn found(&self, index: usize, known: &Known) -> Result<Found> {
        let (target, directory) = self.place(index).context("no such name")?;
        let name = Path::new(&target.name);
        if target.is_directory {
            let empty = directory.bare.list(name, 1)?.is_empty();
            return Ok(Found::Directory { empty, hooks: target.name == "hooks" });
        }
        let file = directory.bare.file(name)?;
        let status = rustix::fs::fstat(&file)?;
        // What cannot be told is not vouched for.
        let open = sys::is_open_for_writing(&file)
            .with_context(|| format!("{}: whether it is open for writing cannot be told", target.shown))?;
        Ok(Found::File(File {
            links: status.st_nlink as u64,
            open,
            commands: known
                .commands
                .difference(&target.known.commands)
                .map(|(name, _)| name.clone())
                .collect(),
            leads_elsewhere: known.content != target.known.content,
            git_configuration: is_git_configuration(&target.name),
        }))
    }

    fn known(&self, index: usize) -> Result<Known> {
        let (target, directory) = self.place(index).context("no such name")?;
        if target.is_directory {
            return Ok(Known::default());
        }
        let text = directory.bare.read(Path::new(&target.name)).with_context(|| target.shown.clone())?;
        let settings = config::parse(&text).with_context(|| target.shown.clone())?;
        let commands = settings.iter().filter(|entry| runs(entry));
        let commands = commands.map(|entry| (entry.name(), fingerprint(&entry.value))).collect();
        let content = if target.name == "commondir" { text } else { Vec::new() };
        Ok(Known { commands, content })
    }

    fn is_guarded(&self, index: usize) -> Result<bool> {
        let (target, directory) = self.place(index).context("no such name")?;
        let bare = look(&directory.bare_at, &target.name).and_then(|bare| identity(&bare));
        let seen = look(&directory.at, &target.name).and_then(|seen| identity(&seen));
        match (bare, seen) {
            (Ok(bare), Ok(seen)) => Ok(bare.is_of(seen) && seen.mount == target.mount),
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => Ok(false),
            (Err(errno), _) | (_, Err(errno)) => Err(io::Error::from(errno).into()),
        }
    }

    /// The number of its watch, which is the same for each place at which one directory is mounted.
    fn watch(&self, directory: usize) -> io::Result<i32> {
        let directory = self.directories.get(directory).ok_or(io::ErrorKind::NotFound)?;
        let told = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        in_directory(&directory.bare_at, || inotify::add_watch(&self.inotify, c".", told))
    }

    fn place(&self, index: usize) -> Option<(&Target, &Directory)> {
        let target = self.targets.get(index)?;
        Some((target, self.directories.get(target.directory)?))
    }

    fn target(&mut self, index: usize) -> Result<&mut Target> {
        self.targets.get_mut(index).context("no such name")
    }

    fn shown(&self, index: usize) -> String {
        self.targets.get(index).map(|target| target.shown.clone()).unwrap_or_default()
    }

    fn tampered(&self, index: usize, reason: Reason) -> Result<Tampered> {
        Ok(Tampered { path: self.shown(index), reason })
    }
}

enum Tried {
    Guarded,
    /// As it was.
    Untouched,
    Absent,
    /// It changed meanwhile.
    Again,
    /// It is not what it was.
    Other,
}

impl Directory {
    fn new(at: OwnedFd, of: Option<usize>) -> io::Result<Self> {
        let flags =
            OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let bare_at = open_tree(&at, c"", flags)?;
        sys::make_mount(&bare_at, MountIs::Private)?;
        let mount = identity(&at)?.mount;
        let bare = Folder::from(bare_at.try_clone()?);
        Ok(Self { at, bare, bare_at, mount, of })
    }
}

impl Identity {
    fn is_of(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

fn identity(file: &OwnedFd) -> rustix::io::Result<Identity> {
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

fn is(identity: Identity, kind: FileType) -> bool {
    FileType::from_raw_mode(identity.mode) == kind
}

fn look(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
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
