//! The guarded names of a container, and the directories in which they are: told of what happens there, they are guarded
//! again. All of it within the container's mount namespace, by descriptors and single names: no path of the container's is
//! resolved once it runs.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use understudy_control::sys::{self, MountIs, ReadLease};

use super::events::{Events, Overflow, Read};
use super::inode::{Directory, Identity, clone_of, identity, look};
use super::is_git_configuration;
use super::judge::{Found, Happened, Reason, Since, Tampered, Verdict, judged};
use super::target::{Known, Target, content};
use crate::mounted::Mounts;
use crate::workspace::guard::Guarded;

/// How long it is gone after what happens, before it is too much: much less than the kernel waits for a lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a name that is replaced again and again is tried.
const TRIES: usize = 1000;

pub(super) struct Tree {
    events: Events,
    directories: Vec<Directory>,
    targets: Vec<Target>,
}

impl Tree {
    pub(super) fn new(guards: &[Guarded]) -> Result<Self> {
        let mut tree = Self { events: Events::new()?, directories: Vec::new(), targets: Vec::new() };
        let mounts = Mounts::read().context("/proc/self/mountinfo")?;
        let mut all = Vec::new();
        for guarded in guards {
            let points = mounts.guards(guarded);
            if points.is_empty() {
                bail!("{} is not guarded", guarded.place.shown());
            }
            all.extend(points.into_iter().map(|(mount, point)| (point.to_owned(), mount, guarded)));
        }
        let mut by_path = HashMap::new();
        for (point, mount, guarded) in &all {
            tree.add(point, *mount, guarded, &mut by_path)?;
        }
        // Somebody may have replaced one before it was watched.
        for index in 0..tree.targets.len() {
            if !tree.is_guarded(index, None)? {
                bail!("{} was replaced while the container started", tree.shown(index));
            }
            let (target, directory) = tree.place(index)?;
            if !target.is_directory {
                let text = directory.bare.read(Path::new(&target.name));
                let known = text.and_then(|text| Known::of(&target.name, text));
                let known = known.with_context(|| target.shown.clone())?;
                tree.target(index)?.known = known;
            }
        }
        Ok(tree)
    }

    fn add(
        &mut self,
        point: &Path,
        mount: u64,
        guarded: &Guarded,
        by_path: &mut HashMap<PathBuf, usize>,
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
        let directory = match by_path.get(parent) {
            Some(directory) => *directory,
            None => {
                let at = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
                let at = at.with_context(|| parent.display().to_string())?;
                let directory = Directory::new(at).with_context(|| parent.display().to_string())?;
                self.directories.push(directory);
                let index = self.directories.len() - 1;
                by_path.insert(parent.to_owned(), index);
                index
            }
        };
        let index = self.targets.len();
        self.targets.push(Target {
            directory,
            name: name.to_owned(),
            is_directory: seen.is(FileType::Directory),
            git_configuration: false,
            mount,
            shown: guarded.place.shown(),
            since: Since::default(),
            off: false,
            renewed: false,
            lease: None,
            waiting: None,
            known: Known::default(),
        });
        let (target, directory) = self.place(index)?;
        let git_configuration = is_git_configuration(&directory.bare_at, &target.name);
        self.target(index)?.git_configuration = git_configuration;
        let (_, directory) = self.place(index)?;
        let watch = self.events.watch(directory).with_context(|| {
            format!("{} cannot be watched (fs.inotify.max_user_watches)", parent.display())
        })?;
        self.events.expect(watch, name, index);
        Ok(())
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Whether something is to be looked at again without being told.
    pub(super) fn is_waiting(&self) -> bool {
        self.targets.iter().any(|target| target.waiting.is_some())
    }

    /// Whether somebody wants to write what is held.
    pub(super) fn wanted(&self) -> Result<Option<Tampered>> {
        self.of_held(Reason::Wanted, |lease| Ok(lease.is_wanted()?))
    }

    /// Whether what is held got another name, by which it can be written once it is held no more.
    pub(super) fn linked(&self) -> Result<Option<Tampered>> {
        self.of_held(Reason::Linked, |lease| Ok(fstat(lease.file())?.st_nlink > 1))
    }

    fn of_held(&self, reason: Reason, is: impl Fn(&ReadLease) -> Result<bool>) -> Result<Option<Tampered>> {
        for target in &self.targets {
            if target.lease.as_ref().map(&is).transpose()? == Some(true) {
                return Ok(Some(Tampered { path: target.shown.clone(), reason }));
            }
        }
        Ok(None)
    }

    /// The container has ended, and with its mount namespace the guards would go. Nobody is to write then by a descriptor of a
    /// directory that the container gave away: nothing can be written by its mounts any more. `false` while somebody has a
    /// file open for writing by one of them.
    pub(super) fn seal(&self) -> io::Result<bool> {
        let mut all = true;
        for directory in &self.directories {
            match sys::make_mount(&directory.at, MountIs::ReadOnly) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Takes in what happened, guards what is not guarded, and judges.
    pub(super) fn settle(&mut self, now: Instant) -> Result<Option<Tampered>> {
        self.take_in(Some(1))?;
        let mut tries = 0;
        while self.targets.iter().any(|target| target.off || (tries == 0 && target.since.arrived())) {
            // Who floods this process with events is not to keep it from what it has to do in time.
            if let Some(tampered) = self.wanted()? {
                return Ok(Some(tampered));
            }
            if tries == TRIES || now.elapsed() > PATIENCE {
                let off = self.targets.iter().position(|target| target.off).unwrap_or_default();
                return self.tampered(off, Reason::Unseen).map(Some);
            }
            tries += 1;
            for index in 0..self.targets.len() {
                if self.targets[index].off
                    && let Some(tampered) = self.guard(index)?
                {
                    return Ok(Some(tampered));
                }
                if self.targets[index].since.arrived() {
                    self.hold(index)?;
                }
            }
            // What happened until it was held: from then on nobody can have written it.
            if self.take_in(None)? == Read::Some {
                let arrived = self.targets.iter_mut().filter(|target| target.since.arrived());
                arrived.for_each(|target| target.since.happened(Happened::Unseen));
            }
        }
        for index in 0..self.targets.len() {
            if self.targets[index].since.is_to_be_judged()
                && let Some(tampered) = self.judge(index, now)?
            {
                return Ok(Some(tampered));
            }
        }
        Ok(None)
    }

    /// Up to so many buffers of events, or all.
    fn take_in(&mut self, buffers: Option<usize>) -> Result<Read> {
        let Self { events, targets, .. } = self;
        let told = |told| match told {
            Ok((index, what)) => {
                let target: Option<&mut Target> = targets.get_mut(index);
                if let Some(target) = target {
                    if what == Happened::Written && target.lease.is_some() && !target.since.arrived() {
                        target.since.was_cut();
                    }
                    target.since.happened(what);
                    target.off |= matches!(what, Happened::MovedIn | Happened::Made);
                }
            }
            Err(Overflow) => {
                for target in targets.iter_mut() {
                    target.since.happened(Happened::Unseen);
                    target.off = true;
                }
            }
        };
        match buffers {
            Some(buffers) => events.read(buffers, told),
            None => events.read_all(told),
        }
    }

    /// Lies a guard over what has that name now.
    fn guard(&mut self, index: usize) -> Result<Option<Tampered>> {
        for _ in 0..TRIES {
            match self.try_to_guard(index) {
                Ok(Tried::Again) | Err(Errno::NOENT | Errno::STALE) => {}
                Ok(Tried::Absent) => {
                    let target = self.target(index)?;
                    // What was held may come back with its guard, and was not held meanwhile.
                    target.renewed |= target.lease.take().is_some();
                    (target.off, target.waiting) = (false, None);
                    if target.since.was_taken_away() {
                        return self.tampered(index, Reason::Again).map(Some);
                    }
                    target.since = Since::default();
                    return Ok(None);
                }
                Ok(Tried::Untouched) => {
                    let target = self.target(index)?;
                    // It was guarded and judged before this was told: then something else had the name in between.
                    if target.lease.is_some() && target.since.came() && !target.git_configuration {
                        return self.tampered(index, Reason::Again).map(Some);
                    }
                    target.off = false;
                    target.since.forget_arrival();
                    return Ok(None);
                }
                Ok(Tried::Guarded) => {
                    self.target(index)?.off = false;
                    return Ok(None);
                }
                Ok(Tried::Other(reason)) => return self.tampered(index, reason).map(Some),
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
        let (target, directory) = self.place(index).map_err(|_| Errno::INVAL)?;
        let bare = match look(&directory.bare_at, &target.name) {
            Ok(bare) => identity(&bare)?,
            Err(Errno::NOENT) => return Ok(Tried::Absent),
            Err(errno) => return Err(errno),
        };
        if !bare.is(if target.is_directory { FileType::Directory } else { FileType::RegularFile }) {
            return Ok(Tried::Other(Reason::Kind));
        }
        let seen_at = look(&directory.at, &target.name)?;
        let seen = identity(&seen_at)?;
        if !bare.is_of(seen) {
            return Ok(Tried::Again);
        }
        if seen.mount == target.mount {
            return Ok(if target.renewed { Tried::Guarded } else { Tried::Untouched });
        }
        if target.is_directory {
            return Ok(Tried::Other(Reason::Directory));
        }
        if seen.mount != directory.mount {
            return Ok(Tried::Again);
        }
        let guard = clone_of(&seen_at)?;
        sys::make_mount(&guard, MountIs::ReadOnly)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&guard, c"", &seen_at, c"", flags)?;
        let mount = identity(&guard)?.mount;
        if let Some(target) = self.targets.get_mut(index) {
            (target.mount, target.renewed, target.lease) = (mount, true, None);
        }
        // Whether it lies over what has the name by now.
        let guarded = self.is_guarded(index, None).map_err(|_| Errno::STALE)?;
        Ok(if guarded { Tried::Guarded } else { Tried::Again })
    }

    /// Keeps everybody from writing the file that was guarded again, unless somebody does already.
    fn hold(&mut self, index: usize) -> Result<()> {
        let (target, directory) = self.place(index)?;
        if target.off || target.is_directory || target.lease.is_some() {
            return Ok(());
        }
        let held =
            directory.bare.file(Path::new(&target.name)).map_err(anyhow::Error::from).and_then(|file| {
                let identity = identity(&file)?;
                // What cannot be told is not vouched for.
                let lease = ReadLease::on(file).context("whether it is open for writing cannot be told")?;
                Ok((identity, lease))
            });
        let shown = target.shown.clone();
        let is_this = self.is_guarded(index, held.as_ref().ok().map(|(identity, _)| *identity))?;
        let target = self.target(index)?;
        if is_this {
            target.lease = held.context(shown)?.1;
        } else {
            // Replaced once more.
            target.off = true;
        }
        Ok(())
    }

    fn judge(&mut self, index: usize, now: Instant) -> Result<Option<Tampered>> {
        let target = self.target(index)?;
        let mut known = Known::default();
        let mut found = Found {
            git_configuration: target.git_configuration,
            open: target.lease.is_none(),
            ..Found::default()
        };
        if let Some(lease) = &target.lease {
            let text = content(lease.file());
            known =
                text.and_then(|text| Known::of(&target.name, text)).with_context(|| target.shown.clone())?;
            found.links = fstat(lease.file())?.st_nlink as u64;
            found.commands = known.commands_beyond(&target.known);
            found.leads_elsewhere = known.leads_elsewhere_than(&target.known);
        }
        let waited = target.waiting.map_or(Duration::ZERO, |from| now.saturating_duration_since(from));
        match judged(&target.since, &found, waited) {
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

    /// Whether what has the name, `this` if that is asked, has the guard over it.
    fn is_guarded(&self, index: usize, this: Option<Identity>) -> Result<bool> {
        let (target, directory) = self.place(index)?;
        let bare = look(&directory.bare_at, &target.name).and_then(identity);
        let seen = look(&directory.at, &target.name).and_then(identity);
        match (bare, seen) {
            (Ok(bare), Ok(seen)) => {
                Ok(bare.is_of(seen) && seen.mount == target.mount && this.is_none_or(|this| this.is_of(seen)))
            }
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => Ok(false),
            (Err(errno), _) | (_, Err(errno)) => Err(io::Error::from(errno).into()),
        }
    }

    fn place(&self, index: usize) -> Result<(&Target, &Directory)> {
        let target = self.targets.get(index).context("no such name")?;
        Ok((target, self.directories.get(target.directory).context("no such directory")?))
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
    /// It is not what it was, and cannot be guarded.
    Other(Reason),
}
