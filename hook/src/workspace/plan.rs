//! Which paths of a mounted directory are to be guarded, and how; as far as it can be told by looking. Links are never
//! followed: what lies where something is to be guarded and is one, is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::folder::{Folder, Kind, Make};
use super::git::Repositories;
use super::protected::{ALL, Relaxed, matches};
use super::settings::Settings;

/// How deep repositories are looked for, and among how many names: a start takes milliseconds.
const DEEPEST: usize = 3;
const MOST_NAMES: usize = 20_000;

/// Directories of what tools make or fetch: what is in them is nobody's work tree, unless a repository says so.
const NOT_SEARCHED: [&str; 6] = ["node_modules", "target", "vendor", ".venv", "__pycache__", ".cache"];

/// Relative to the mount's source.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Mounted onto themselves read-only, directories with all that is in them.
    pub(crate) read_only: BTreeSet<PathBuf>,
    /// Directories mounted onto themselves, so that they stay what they are called.
    pub(crate) pinned: BTreeSet<PathBuf>,
    /// What must be there to be guarded, and means nothing to git; a directory before what is in it.
    pub(crate) to_make: BTreeMap<PathBuf, Make>,
    /// Some directories were too many or too deep to be searched.
    pub(crate) incomplete: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Unguardable {
    #[error("{0} is a symbolic link, and cannot be guarded")]
    Link(PathBuf),
    #[error("it has too many repositories, or too much of git's configuration")]
    TooMany,
    #[error("core.hooksPath is {0}: all that lies in there is a hook")]
    AllHooks(PathBuf),
    #[error("{0} makes git read another repository's configuration than its own")]
    CommonDirectory(PathBuf),
    #[error("{0} cannot be examined: {1}")]
    Io(PathBuf, io::Error),
}

/// Who runs git on the host, as far as it is known.
#[derive(Debug)]
pub(crate) struct Users<'a> {
    pub(crate) homes: &'a [PathBuf],
    pub(crate) settings: Settings,
}

impl<'a> Users<'a> {
    pub(crate) fn at(homes: &'a [PathBuf]) -> Self {
        Self { homes, settings: Settings::of_users(homes) }
    }
}

impl Plan {
    /// `at_host` is the path of `folder` without links.
    pub(crate) fn of(
        folder: &Folder,
        at_host: &Path,
        relaxed: &Relaxed,
        users: &Users<'_>,
    ) -> Result<Self, Unguardable> {
        let git = Repositories::new(folder, at_host, relaxed, users);
        let mut search = Search { folder, at_host, relaxed, git, left: MOST_NAMES };
        if !relaxed.everything() {
            let top = PathBuf::new();
            search.directory(&top, 0)?;
            let work_trees = search.git.guard()?;
            for at in std::iter::once(&top).chain(work_trees.iter().filter(|at| **at != top)) {
                search.files(at)?;
            }
        }
        Ok(search.git.plan.settled())
    }

    pub(crate) fn guard(&mut self, path: PathBuf) {
        self.read_only.insert(path);
    }

    pub(crate) fn make(&mut self, path: PathBuf, what: Make) {
        self.to_make.entry(path).or_insert(what);
    }

    pub(crate) fn pin(&mut self, path: PathBuf) {
        self.pinned.insert(path);
    }

    /// What lies in something read-only needs no more, and no directory on the way may be renamed.
    fn settled(mut self) -> Self {
        let all = std::mem::take(&mut self.read_only);
        for path in &all {
            if !path.ancestors().skip(1).any(|above| all.contains(above)) {
                self.read_only.insert(path.clone());
            }
        }
        let ways = self.read_only.iter().chain(&self.pinned).flat_map(|path| path.ancestors().skip(1));
        let ways: Vec<_> = ways.map(Path::to_owned).collect();
        self.pinned.extend(ways);
        self.pinned.retain(|path| {
            !path.as_os_str().is_empty() && !path.ancestors().any(|above| self.read_only.contains(above))
        });
        self
    }
}

struct Search<'a> {
    folder: &'a Folder,
    at_host: &'a Path,
    relaxed: &'a Relaxed,
    git: Repositories<'a>,
    left: usize,
}

impl Search<'_> {
    fn directory(&mut self, at: &Path, depth: usize) -> Result<(), Unguardable> {
        let names = self.names(at)?;
        let has = |name: &str| names.iter().any(|(other, _)| other == name);
        if has("HEAD") && has("objects") && has("refs") {
            self.git.git_directory(at.to_owned(), None);
            return Ok(());
        }
        if has(".git") {
            self.git.work_tree(at.to_owned());
        }
        for (name, is_directory) in names {
            if !is_directory || name == ".git" || NOT_SEARCHED.iter().any(|not| name == *not) {
                continue;
            }
            if depth == DEEPEST {
                self.git.plan.incomplete = true;
                break;
            }
            self.directory(&at.join(name), depth + 1)?;
        }
        Ok(())
    }

    /// The table's, in a directory.
    fn files(&mut self, at: &Path) -> Result<(), Unguardable> {
        let paths = ALL.iter().filter(|protected| !self.relaxed.allows(protected.name));
        for path in paths.flat_map(|protected| protected.paths) {
            let path = at.join(path);
            let (Some(parent), Some(pattern)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
            else {
                continue;
            };
            if !pattern.contains('*') {
                self.file(path.clone())?;
                continue;
            }
            if !matches!(self.kind(parent)?, Some(Kind::Folder)) {
                continue;
            }
            for (name, _) in self.names(parent)? {
                if matches(pattern, &name) {
                    self.file(parent.join(name))?;
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf) -> Result<(), Unguardable> {
        match self.kind(&path)? {
            Some(Kind::File | Kind::Program | Kind::Folder) => self.git.plan.guard(path),
            Some(Kind::Link) => return Err(Unguardable::Link(self.at_host.join(path))),
            Some(Kind::Other) | None => {}
        }
        Ok(())
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>, Unguardable> {
        self.folder.kind(path).map_err(|error| Unguardable::Io(self.at_host.join(path), error))
    }

    /// None of a directory that is gone meanwhile, or is not this user's to read.
    fn names(&mut self, at: &Path) -> Result<Vec<(std::ffi::OsString, bool)>, Unguardable> {
        let names = match self.folder.list(at, self.left) {
            Ok(names) => names,
            Err(error) if at.as_os_str().is_empty() => {
                return Err(Unguardable::Io(self.at_host.to_owned(), error));
            }
            Err(_) => Vec::new(),
        };
        self.left = self.left.saturating_sub(names.len());
        self.git.plan.incomplete |= self.left == 0;
        Ok(names)
    }
}

/// `path`, which a configuration names, below the directory at `base`; as it is without what exists being asked. `None` if
/// it leads out of the mount, which is at `at_host`.
pub(crate) fn inside(at_host: &Path, base: &Path, path: &Path) -> Option<PathBuf> {
    let relative =
        if path.is_absolute() { path.strip_prefix(at_host).ok()?.to_owned() } else { base.join(path) };
    let mut parts = PathBuf::new();
    for component in relative.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir if parts.pop() => {}
            _ => return None,
        }
    }
    (!parts.as_os_str().is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for path in files {
            let path = tree.path().join(path);
            if path.display().to_string().ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let text = match path.ends_with("commondir") {
                    true if path.parent().unwrap().parent().unwrap().ends_with("worktrees") => "../..\n",
                    true => ".\n",
                    false => "",
                };
                fs::write(path, text).unwrap();
            }
        }
        tree
    }

    const REPOSITORY: [&str; 6] =
        [".git/HEAD", ".git/objects/", ".git/refs/", ".git/config", ".git/hooks/x.sample", ".git/commondir"];

    fn planned(tree: &tempfile::TempDir, relaxed: &str) -> Result<Plan, Unguardable> {
        let folder = Folder::open(tree.path()).unwrap();
        let homes = [tree.path().join("home")];
        Plan::of(&folder, tree.path(), &Relaxed::asked(Some(relaxed)).unwrap(), &Users::at(&homes))
    }

    fn paths(all: &BTreeSet<PathBuf>) -> Vec<&str> {
        all.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_repository_keeps_hooks_and_configuration() {
        let tree = tree(&REPOSITORY);
        let plan = planned(&tree, "").unwrap();
        assert_eq!(
            paths(&plan.read_only),
            [".git/commondir", ".git/config", ".git/config.worktree", ".git/hooks"]
        );
        assert_eq!(paths(&plan.pinned), [".git"]);
        assert_eq!(plan.to_make.keys().collect::<Vec<_>>(), [Path::new(".git/config.worktree")]);
        assert!(!plan.incomplete);
        assert_eq!(planned(&tree, "off").unwrap(), Plan::default());
        let relaxed = planned(&tree, "git-config").unwrap();
        assert_eq!((paths(&relaxed.read_only), paths(&relaxed.pinned)), (vec![".git/hooks"], vec![".git"]));
    }

    #[test]
    fn what_git_would_make_is_made_where_a_repository_is_and_only_there() {
        let bare = tree(&[".git/HEAD", ".git/objects/", ".git/refs/"]);
        let plan = planned(&bare, "").unwrap();
        let made: Vec<_> = plan.to_make.iter().map(|(path, what)| (path.to_str().unwrap(), *what)).collect();
        assert_eq!(
            made,
            [
                (".git/commondir", Make::File(".\n")),
                (".git/config", Make::File("")),
                (".git/config.worktree", Make::File("")),
                (".git/hooks", Make::Directory)
            ]
        );
        assert_eq!(planned(&tree(&["src/main.rs"]), "").unwrap(), Plan::default());
        let empty = planned(&tree(&[".git/"]), "").unwrap();
        assert_eq!((paths(&empty.read_only), empty.to_make.len()), (vec![".git"], 0));
    }

    #[test]
    fn what_the_configuration_leads_to_is_guarded_too() {
        let tree = tree(&[&REPOSITORY[..], &["hooks/pre-commit", ".gitconfig"]].concat());
        let config = "[core]\nhooksPath = ./hooks\n[include]\npath = ../.gitconfig\n[includeIf \"onbranch:x\"]\npath=/etc/x\n";
        fs::write(tree.path().join(".git/config"), config).unwrap();
        let plan = planned(&tree, "").unwrap();
        assert_eq!(
            paths(&plan.read_only),
            [".git/commondir", ".git/config", ".git/config.worktree", ".git/hooks", ".gitconfig", "hooks"]
        );
        let absolute = format!("[core]\nhookspath = {}/hooks\n", tree.path().display());
        fs::write(tree.path().join(".git/config"), absolute).unwrap();
        assert!(paths(&planned(&tree, "").unwrap().read_only).contains(&"hooks"));
    }

    #[test]
    fn submodules_and_linked_worktrees_are_guarded_in_the_main_repository() {
        let tree = tree(
            &[
                &REPOSITORY[..],
                &[
                    ".git/modules/lib/HEAD",
                    ".git/modules/lib/objects/",
                    ".git/modules/lib/refs/",
                    ".git/modules/lib/config",
                    ".git/modules/lib/hooks/",
                    ".git/worktrees/w/commondir",
                    ".git/worktrees/w/gitdir",
                    "lib/.git",
                ],
            ]
            .concat(),
        );
        fs::write(tree.path().join("lib/.git"), "gitdir: ../.git/modules/lib\n").unwrap();
        let plan = planned(&tree, "").unwrap();
        assert_eq!(
            paths(&plan.read_only),
            [
                ".git/commondir",
                ".git/config",
                ".git/config.worktree",
                ".git/hooks",
                ".git/modules/lib/commondir",
                ".git/modules/lib/config",
                ".git/modules/lib/config.worktree",
                ".git/modules/lib/hooks",
                ".git/worktrees/w/commondir",
                ".git/worktrees/w/config.worktree",
                ".git/worktrees/w/gitdir",
                "lib/.git"
            ]
        );
        assert_eq!(
            paths(&plan.pinned),
            [".git", ".git/modules", ".git/modules/lib", ".git/worktrees", ".git/worktrees/w", "lib"]
        );
    }

    #[test]
    fn a_mount_of_a_git_directory_or_of_many_projects_is_searched() {
        let tree = tree(&[
            "a/b/.git/HEAD",
            "a/b/.git/objects/",
            "a/b/.git/refs/",
            "a/b/.git/config",
            "a/b/.git/hooks/",
        ]);
        let plan = planned(&tree, "").unwrap();
        assert_eq!(
            paths(&plan.read_only),
            ["a/b/.git/commondir", "a/b/.git/config", "a/b/.git/config.worktree", "a/b/.git/hooks"]
        );
        assert_eq!(paths(&plan.pinned), ["a", "a/b", "a/b/.git"]);
        let folder = Folder::open(&tree.path().join("a/b/.git")).unwrap();
        let bare =
            Plan::of(&folder, &tree.path().join("a/b/.git"), &Relaxed::default(), &Users::at(&[])).unwrap();
        assert_eq!(
            (paths(&bare.read_only), bare.pinned.len()),
            (vec!["commondir", "config", "config.worktree", "hooks"], 0)
        );
    }

    #[test]
    fn files_of_host_tools_are_guarded_if_they_are_there() {
        let tree = tree(&[
            ".envrc",
            ".vscode/tasks.json",
            ".claude/settings.local.json",
            ".claude/notes.md",
            "compose.yaml",
            "dev-compose.yml",
            "Dockerfile.dev",
            "app.container",
            "src/Dockerfile",
        ]);
        let plan = planned(&tree, "").unwrap();
        assert_eq!(
            paths(&plan.read_only),
            [
                ".claude/settings.local.json",
                ".envrc",
                ".vscode",
                "Dockerfile.dev",
                "app.container",
                "compose.yaml",
                "dev-compose.yml"
            ]
        );
        assert_eq!(paths(&plan.pinned), [".claude"]);
        let some = planned(&tree, "vscode,compose,containerfile,quadlet,claude").unwrap();
        assert_eq!((paths(&some.read_only), some.pinned.len()), (vec![".envrc"], 0));
    }

    #[test]
    fn links_are_refused_and_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        for (link, what) in
            [(".git", ".git"), (".envrc", ".envrc"), (".git/hooks", "hooks"), (".git/config", "config")]
        {
            let tree = tree(if link.starts_with(".git/") { &REPOSITORY[..3] } else { &[] });
            symlink(outside.path(), tree.path().join(link)).unwrap();
            let error = planned(&tree, "").unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("symbolic link"), "{error}");
            planned(&tree, "off").unwrap();
        }
        let tree = tree(&[]);
        symlink(outside.path(), tree.path().join(".claude")).unwrap();
        assert!(planned(&tree, "").unwrap_err().to_string().contains(".claude"));
    }

    #[test]
    fn another_repositorys_configuration_is_refused() {
        let tree = tree(&REPOSITORY);
        fs::write(tree.path().join(".git/commondir"), "/tmp/evil\n").unwrap();
        let error = planned(&tree, "").unwrap_err().to_string();
        assert!(error.contains(".git/commondir"), "{error}");
    }

    #[test]
    fn what_is_too_deep_is_told() {
        let tree = tree(&["a/b/c/d/e/x", "node_modules/a/b/c/d/e"]);
        assert!(planned(&tree, "").unwrap().incomplete);
        assert!(!planned(&self::tree(&["node_modules/a/b/c/d/e"]), "").unwrap().incomplete);
    }

    #[test]
    fn a_path_out_of_the_mount_is_none() {
        let inside = |base: &str, path: &str| inside(Path::new("/w"), Path::new(base), Path::new(path));
        assert_eq!(inside("a", "../b/./c"), Some("b/c".into()));
        assert_eq!(inside("", "../b"), None);
        assert_eq!(inside("a", "/w/x"), Some("x".into()));
        assert_eq!(inside("a", "/wx"), None);
        assert_eq!(inside("a", ".."), None);
    }
}
