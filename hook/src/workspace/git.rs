//! Where git keeps what it runs, gitrepository-layout(5): in the repositories that are found, and in those to which they lead
//! wherever these lie, submodules and linked worktrees.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::config::{self, Entry};
use super::folder::{Folder, Kind, Make};
use super::index;
use super::plan::{Plan, Unguardable, Users, inside};
use super::protected::{CONFIG, HOOKS, Relaxed};
use super::run::{runs, words};
use super::settings::{self, Settings, in_mount, located};

/// How deep submodules are looked for in `modules`: their names may have slashes, and they may have submodules.
const DEEPEST_MODULE: usize = 6;
/// Who can make this file in a repository has git take configuration and hooks from wherever it says; what says `.` changes
/// nothing, and cannot be made.
pub(super) const COMMON: &str = "commondir";
/// A main or a linked work tree's own configuration.
pub(super) const OF_WORK_TREE: &str = "config.worktree";
/// Names in one directory of git's.
const MOST: usize = 4096;
/// Repositories and work trees; each takes some mounts.
const MOST_REPOSITORIES: usize = 2048;
/// Bytes: of a work tree with a million files, and of all work trees.
const LARGEST_INDEX: u64 = 256 * 1024 * 1024;
const ALL_INDEXES: u64 = 512 * 1024 * 1024;
/// Of all repositories.
const MOST_SETTINGS: usize = 200_000;
/// Paths to guard or to make: more than that is not mounted, and nothing of it is made.
const MOST_PATHS: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// What has a `.git`.
    WorkTree(PathBuf),
    GitDirectory {
        at: PathBuf,
        /// Where its hooks run, unless it is bare.
        work_tree: Option<PathBuf>,
    },
}

pub(super) struct Repositories<'a> {
    folder: &'a Folder,
    at_host: &'a Path,
    relaxed: &'a Relaxed,
    users: &'a Users<'a>,
    pub(super) plan: Plan,
    found: BTreeSet<Found>,
    left: Vec<Found>,
    indexes: u64,
    settings: Cell<usize>,
}

impl<'a> Repositories<'a> {
    pub(super) fn new(
        folder: &'a Folder,
        at_host: &'a Path,
        relaxed: &'a Relaxed,
        users: &'a Users<'a>,
    ) -> Self {
        let (plan, found, left) = Default::default();
        let (indexes, settings) = (ALL_INDEXES, Cell::new(MOST_SETTINGS));
        Self { folder, at_host, relaxed, users, plan, found, left, indexes, settings }
    }

    /// What has a `.git`, at `at`.
    pub(super) fn work_tree(&mut self, at: PathBuf) {
        self.add(Found::WorkTree(at));
    }

    pub(super) fn git_directory(&mut self, at: PathBuf, work_tree: Option<PathBuf>) {
        self.add(Found::GitDirectory { at, work_tree });
    }

    /// Guards them and all to which they lead; answers with the work trees.
    pub(super) fn guard(&mut self) -> Result<Vec<PathBuf>, Unguardable> {
        while let Some(next) = self.left.pop() {
            if self.found.len() > MOST_REPOSITORIES {
                return Err(Unguardable::TooMany);
            }
            match next {
                Found::WorkTree(at) => self.guard_work_tree(&at)?,
                Found::GitDirectory { at, work_tree } => {
                    self.guard_git_directory(&at, work_tree.as_deref())?;
                }
            }
            if self.plan.read_only.len() + self.plan.to_make.len() > MOST_PATHS {
                return Err(Unguardable::TooMany);
            }
        }
        let work_trees = self.found.iter().filter_map(|found| match found {
            Found::WorkTree(at) => Some(at.clone()),
            Found::GitDirectory { .. } => None,
        });
        Ok(work_trees.collect())
    }

    fn add(&mut self, found: Found) {
        if self.found.insert(found.clone()) {
            self.left.push(found);
        }
    }

    fn guard_work_tree(&mut self, at: &Path) -> Result<(), Unguardable> {
        let git = at.join(".git");
        match self.kind(&git)? {
            Some(Kind::Folder) => self.git_directory(git, Some(at.to_owned())),
            Some(Kind::Link) => return Err(Unguardable::Link(self.at_host.join(git))),
            // A submodule's, a linked worktree's: it says which repository this is.
            Some(Kind::File | Kind::Program) if !self.relaxed.allows(CONFIG) => {
                if let Some(named) = git_file(self.folder, &git).and_then(|path| self.inside(at, &path)) {
                    self.named_by_work_tree(named, at)?;
                }
                self.plan.guard(git);
            }
            _ => {}
        }
        Ok(())
    }

    /// The git directory of a submodule, of a linked worktree, or of whom `git init --separate-git-dir` gave one.
    fn named_by_work_tree(&mut self, named: PathBuf, work_tree: &Path) -> Result<(), Unguardable> {
        let common = named.join(COMMON);
        if self.kind(&common)?.is_some() && !is_own(self.folder, &common) {
            let main = self.main_of(&named)?;
            self.git_directory(main, None);
            return Ok(());
        }
        match self.kind(&named)? {
            Some(_) => self.git_directory(named, Some(work_tree.to_owned())),
            None => self.required(named, Make::Directory)?,
        }
        Ok(())
    }

    fn guard_git_directory(&mut self, at: &Path, work_tree: Option<&Path>) -> Result<(), Unguardable> {
        if self.relaxed.allows(CONFIG) && self.relaxed.allows(HOOKS) {
            return Ok(());
        }
        let common = at.join(COMMON);
        if !self.relaxed.allows(CONFIG) && self.kind(&common)?.is_some() && !is_own(self.folder, &common) {
            return Err(Unguardable::CommonDirectory(self.at_host.join(common)));
        }
        if !is_git_directory(self.folder, at).map_err(|error| self.unexamined(at, error))? {
            // It is none yet, and would become one.
            self.plan.guard(at.to_owned());
            return Ok(());
        }
        self.plan.pin(at.to_owned());
        let entries = self.parsed(&at.join("config"))?;
        let settings = self.settings(&[at.join("config"), at.join(OF_WORK_TREE)])?;
        // A submodule's says where its work tree is.
        let configured = settings.entries.iter().filter(|entry| entry.is("core", "worktree"));
        let configured = configured.filter_map(|entry| self.inside(at, Path::new(&entry.value)));
        let work_trees: BTreeSet<PathBuf> =
            work_tree.map(Path::to_owned).into_iter().chain(configured).collect();
        // Those that a push from elsewhere has run are run in the git directory.
        for runs_in in work_trees.iter().map(PathBuf::as_path).chain([at]) {
            self.guard_what_it_leads_to(&settings, runs_in)?;
        }
        if !self.relaxed.allows(HOOKS) {
            self.required(at.join("hooks"), Make::Directory)?;
        }
        if !self.relaxed.allows(CONFIG) {
            self.configuration(at)?;
        }
        for work_tree in work_trees {
            self.submodules(at, &work_tree, &entries)?;
            self.work_tree(work_tree);
        }
        self.worktrees(at, &entries)?;
        self.modules(&at.join("modules"), DEEPEST_MODULE)
    }

    fn configuration(&mut self, at: &Path) -> Result<(), Unguardable> {
        self.required(at.join(COMMON), Make::File(".\n"))?;
        self.required(at.join("config"), Make::File(""))?;
        // Read once `extensions.worktreeConfig` is on: `git sparse-checkout set` switches it on.
        self.required(at.join(OF_WORK_TREE), Make::File(""))?;
        self.present(at.join("info/attributes"))
    }

    /// Of a repository, with those of the users.
    fn settings(&self, files: &[PathBuf]) -> Result<Settings, Unguardable> {
        let files: Vec<_> = files.iter().map(|file| self.at_host.join(file)).collect();
        let mut settings =
            Settings::read(&files, self.users.homes, |path| match in_mount(self.at_host, path) {
                Some(below) => self.parsed(&below),
                None => Ok(settings::on_host(path)),
            })?;
        let left = self.settings.get().checked_sub(settings.entries.len());
        self.settings.set(left.ok_or(Unguardable::TooMany)?);
        let Settings { entries, included } = &self.users.settings;
        settings.entries.extend(entries.iter().cloned());
        settings.included.extend(included.iter().cloned());
        Ok(settings)
    }

    /// Files that are included, hooks, and files that commands name, which are run in the directory `runs_in`. What git
    /// includes or runs if it is there is made, empty: who made it would choose what git runs.
    fn guard_what_it_leads_to(&mut self, settings: &Settings, runs_in: &Path) -> Result<(), Unguardable> {
        let at_host = self.at_host;
        let here = at_host.join(runs_in);
        // Those of the users come last.
        let own = settings.entries.len().saturating_sub(self.users.settings.entries.len());
        if !self.relaxed.allows(HOOKS) {
            let all = settings.entries.iter().enumerate();
            for (number, entry) in all.filter(|(_, entry)| entry.is("core", "hookspath")) {
                for path in located(&entry.value, &here, self.users.homes) {
                    match in_mount(at_host, &path) {
                        Some(path) => self.required(path, Make::Directory)?,
                        None if number < own
                            && settings::real(&path).is_some_and(|path| at_host.starts_with(path)) =>
                        {
                            return Err(Unguardable::AllHooks(path));
                        }
                        None => {}
                    }
                }
            }
        }
        if self.relaxed.allows(CONFIG) {
            return Ok(());
        }
        for path in settings.included.iter().filter_map(|path| in_mount(at_host, path)) {
            self.required(path, Make::File(""))?;
        }
        let paths = |entry: &&Entry| {
            settings::is_include(entry) || entry.is("core", "hookspath") || entry.is("core", "worktree")
        };
        for entry in settings.entries.iter().filter(|entry| runs(entry) && !paths(entry)) {
            for path in words(&entry.value).flat_map(|word| located(word, &here, self.users.homes)) {
                match in_mount(at_host, &path) {
                    Some(path) if matches!(self.kind(&path)?, Some(Kind::File | Kind::Program)) => {
                        self.plan.guard(path);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Every one that the index names, wherever it is. One without a `.git` has not been fetched.
    fn submodules(&mut self, at: &Path, work_tree: &Path, entries: &[Entry]) -> Result<(), Unguardable> {
        let long = entries.iter().any(|entry| {
            entry.is("extensions", "objectformat") && entry.value.eq_ignore_ascii_case("sha256")
        });
        let id = if long { 32 } else { 20 };
        let mut file = at.join("index");
        // A split index has its other entries in one other file.
        for _ in 0..2 {
            let index = match self.folder.read_up_to(&file, LARGEST_INDEX.min(self.indexes)) {
                Ok(bytes) => {
                    self.indexes = self.indexes.saturating_sub(bytes.len() as u64);
                    index::parse(&bytes, id)
                        .ok_or_else(|| self.unexamined(&file, io::Error::other("it is not understood")))?
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(self.unexamined(&file, error)),
            };
            for path in index.submodules {
                match self.inside(work_tree, &path) {
                    Some(path) if self.kind(&path)? == Some(Kind::Folder) => self.work_tree(path),
                    _ => {}
                }
            }
            let Some(shared) = index.shared else { break };
            file = at.join(shared);
        }
        Ok(())
    }

    /// Who writes a linked worktree's `commondir` or `gitdir` chooses its configuration.
    fn worktrees(&mut self, at: &Path, entries: &[Entry]) -> Result<(), Unguardable> {
        let all = at.join("worktrees");
        for name in self.directories(&all)? {
            let linked = all.join(name);
            if !self.relaxed.allows(CONFIG) {
                if self.kind(&linked.join(COMMON))?.is_some() {
                    self.main_of(&linked)?;
                    self.plan.guard(linked.join(COMMON));
                }
                self.present(linked.join("gitdir"))?;
                self.required(linked.join(OF_WORK_TREE), Make::File(""))?;
            }
            // It names the `.git` of the work tree.
            let text = self.text(&linked.join("gitdir"))?;
            let git = self.inside(&linked, Path::new(OsStr::from_bytes(text.trim_ascii())));
            if let Some(work_tree) = git.as_deref().and_then(Path::parent).map(Path::to_owned) {
                let settings = self.settings(&[at.join("config"), linked.join(OF_WORK_TREE)])?;
                self.guard_what_it_leads_to(&settings, &work_tree)?;
                self.submodules(&linked, &work_tree, entries)?;
                self.work_tree(work_tree);
            }
            self.modules(&linked.join("modules"), DEEPEST_MODULE)?;
        }
        Ok(())
    }

    /// The repository that a linked worktree belongs to, which is two directories above its git directory at `linked`.
    fn main_of(&self, linked: &Path) -> Result<PathBuf, Unguardable> {
        let common = linked.join(COMMON);
        let main = linked.parent().and_then(Path::parent).unwrap_or(Path::new(""));
        let text = self.text(&common)?;
        let named = Path::new(OsStr::from_bytes(text.trim_ascii()));
        if named == Path::new("../..") || named == self.at_host.join(main) {
            return Ok(main.to_owned());
        }
        Err(Unguardable::CommonDirectory(self.at_host.join(common)))
    }

    fn modules(&mut self, at: &Path, depth: usize) -> Result<(), Unguardable> {
        if depth == 0 {
            self.plan.incomplete = true;
            return Ok(());
        }
        for name in self.directories(at)? {
            let below = at.join(name);
            if passes_for_one(self.folder, &below).map_err(|error| self.unexamined(at, error))? {
                self.git_directory(below, None);
            } else {
                self.modules(&below, depth - 1)?;
            }
        }
        Ok(())
    }

    /// The names of those in the directory at `at`; none if there is no such thing.
    fn directories(&self, at: &Path) -> Result<Vec<std::ffi::OsString>, Unguardable> {
        match self.kind(at)? {
            Some(Kind::Folder) => {}
            Some(Kind::Link) => return Err(Unguardable::Link(self.at_host.join(at))),
            _ => return Ok(Vec::new()),
        }
        let names = self.folder.list(at, MOST).map_err(|error| self.unexamined(at, error))?;
        Ok(names.into_iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| name).collect())
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>, Unguardable> {
        self.folder.kind(path).map_err(|error| self.unexamined(path, error))
    }

    /// Nothing if there is no such file.
    fn text(&self, path: &Path) -> Result<Vec<u8>, Unguardable> {
        match self.kind(path)? {
            None => Ok(Vec::new()),
            Some(Kind::Link) => Err(Unguardable::Link(self.at_host.join(path))),
            Some(_) => self.folder.read(path).map_err(|error| self.unexamined(path, error)),
        }
    }

    /// The settings of a file in the mount; none if there is no such file.
    fn parsed(&self, path: &Path) -> Result<Vec<Entry>, Unguardable> {
        config::parse(&self.text(path)?).map_err(|error| self.unexamined(path, error))
    }

    fn inside(&self, base: &Path, path: &Path) -> Option<PathBuf> {
        inside(self.at_host, base, path)
    }

    fn unexamined(&self, path: &Path, error: io::Error) -> Unguardable {
        Unguardable::Io(self.at_host.join(path), error)
    }

    /// Guards what is there.
    fn present(&mut self, path: PathBuf) -> Result<(), Unguardable> {
        match self.kind(&path)? {
            Some(Kind::Link) => return Err(Unguardable::Link(self.at_host.join(path))),
            Some(Kind::File | Kind::Program | Kind::Folder) => self.plan.guard(path),
            Some(Kind::Other) | None => {}
        }
        Ok(())
    }

    /// Guards it, and has it made if it is not there, with the directories on the way.
    fn required(&mut self, path: PathBuf, what: Make) -> Result<(), Unguardable> {
        let ways: Vec<_> = path.ancestors().filter(|way| !way.as_os_str().is_empty()).collect();
        for way in ways.into_iter().rev() {
            match self.kind(way)? {
                Some(Kind::Link) => return Err(Unguardable::Link(self.at_host.join(way))),
                Some(Kind::Folder) => {}
                // Nothing can lie below it while it stays.
                Some(_) if way != path => {
                    self.plan.guard(way.to_owned());
                    return Ok(());
                }
                Some(_) => {}
                None => self.plan.make(way.to_owned(), if way == path { what } else { Make::Directory }),
            }
        }
        self.plan.guard(path);
        Ok(())
    }
}

/// Whether a `commondir` names the directory that it is in.
pub(super) fn is_own(folder: &Folder, common: &Path) -> bool {
    folder.read(common).is_ok_and(|text| text.trim_ascii() == b".")
}

/// `gitdir: PATH`.
pub(super) fn git_file(folder: &Folder, git: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(folder.read(git).ok()?).ok()?;
    Some(PathBuf::from(text.strip_prefix("gitdir:")?.trim()))
}

pub(super) fn is_git_directory(folder: &Folder, at: &Path) -> io::Result<bool> {
    Ok(folder.kind(&at.join("HEAD"))?.is_some()
        && folder.is_folder(&at.join("objects"))?
        && folder.is_folder(&at.join("refs"))?)
}

/// What takes its objects and its configuration from elsewhere is one for git, too.
pub(super) fn passes_for_one(folder: &Folder, at: &Path) -> io::Result<bool> {
    Ok(is_git_directory(folder, at)?
        || (folder.kind(&at.join("HEAD"))?.is_some() && folder.kind(&at.join(COMMON))?.is_some()))
}

#[cfg(test)]
mod tests;
