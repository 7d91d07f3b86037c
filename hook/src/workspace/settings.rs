//! What git is told by all the files that it reads: a repository's, the user's, the machine's, and those that they include.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::config::{self, Entry};
use super::plan::{Unguardable, inside};

/// git's own limit (`MAX_INCLUDE_DEPTH` of config.c).
const DEEPEST: usize = 10;
const LARGEST: u64 = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) entries: Vec<Entry>,
    /// Absolute, on the host; whether such a file is there or not, and whatever the condition.
    pub(crate) included: BTreeSet<PathBuf>,
}

impl Settings {
    /// Those that hold for every repository: of the machine and of the users that have these homes.
    pub(crate) fn of_users(homes: &[PathBuf]) -> Result<Self, Unguardable> {
        let of_home = |home: &PathBuf| [home.join(".gitconfig"), home.join(".config/git/config")];
        let files: Vec<_> =
            std::iter::once(PathBuf::from("/etc/gitconfig")).chain(homes.iter().flat_map(of_home)).collect();
        Self::read(&files, homes, on_host)
    }

    /// `read` answers with nothing for a file that is not there.
    pub(super) fn read(
        files: &[PathBuf],
        homes: &[PathBuf],
        read: impl Fn(&Path) -> Result<Vec<u8>, Unguardable>,
    ) -> Result<Self, Unguardable> {
        let mut settings = Self::default();
        let mut seen = BTreeSet::new();
        // The nearest first: what is also included from farther away is read as deep as it may be.
        let mut left: VecDeque<_> = files.iter().map(|file| (file.clone(), 0)).collect();
        while let Some((file, depth)) = left.pop_front() {
            if depth > DEEPEST || !seen.insert(file.clone()) {
                continue;
            }
            for entry in config::parse(&read(&file)?) {
                if is_include(&entry) {
                    let base = file.parent().unwrap_or(Path::new("/"));
                    for path in located(&entry.value, base, homes) {
                        settings.included.insert(path.clone());
                        left.push_back((path, depth + 1));
                    }
                }
                settings.entries.push(entry);
            }
        }
        Ok(settings)
    }
}

pub(super) fn is_include(entry: &Entry) -> bool {
    entry.is("include", "path") || entry.is("includeif", "path")
}

/// Where a value of git's type `pathname` leads from the directory at `base`; which of the users it is is not known here.
pub(super) fn located(value: &str, base: &Path, homes: &[PathBuf]) -> Vec<PathBuf> {
    match value.strip_prefix("~/") {
        Some(below) => homes.iter().map(|home| home.join(below)).collect(),
        // Another user's home, git's own prefix.
        None if value.is_empty() || value.starts_with(['~', '%']) => Vec::new(),
        None => vec![base.join(value)],
    }
}

/// The absolute `path` as one in the mount at `at_host`, which has no links in it; `None` if it is not in there.
pub(super) fn in_mount(at_host: &Path, path: &Path) -> Option<PathBuf> {
    let top = Path::new("");
    // By a link outside of it, or a way round.
    inside(at_host, top, path).or_else(|| inside(at_host, top, &real(path)?))
}

/// Without links, as far as it exists, and without `..`.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let (mut real, rest) = path
        .ancestors()
        .find_map(|above| Some((fs::canonicalize(above).ok()?, path.strip_prefix(above).ok()?)))?;
    for part in rest.components() {
        if part == Component::ParentDir {
            real.pop();
        } else {
            real.push(part);
        }
    }
    Some(real)
}

/// What this user may not read is not this user's configuration.
pub(super) fn on_host(path: &Path) -> Result<Vec<u8>, Unguardable> {
    let read = || -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: File = open(path, flags, Mode::empty())?.into();
        let mut bytes = Vec::new();
        if file.metadata()?.is_file() {
            file.take(LARGEST).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    match read() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(Vec::new())
        }
        other => other.map_err(|error| Unguardable::Io(path.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_read_as_deep_as_git_reads_them_and_no_circle_is_endless() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at(".config/git")).unwrap();
        fs::write(at(".gitconfig"), "[include]\npath = 1\n[a]\nb = first\n").unwrap();
        fs::write(at(".config/git/config"), "[includeIf \"gitdir:~/x/\"]\npath = ~/other\n[a]\nxdg\n")
            .unwrap();
        fs::write(at("other"), "[include]\npath = .gitconfig\npath = absent\npath = ~root/x\n[a]\nother\n")
            .unwrap();
        for depth in 1..12 {
            let text = format!("[include]\npath = {}\n[depth]\nd{depth}\n", depth + 1);
            fs::write(at(&depth.to_string()), text).unwrap();
        }
        let homes = [home.path().to_owned()];
        let settings = Settings::of_users(&homes).unwrap();
        let has = |name: &str| settings.entries.iter().filter(|entry| entry.name() == name).count();
        for name in ["a.b", "a.xdg", "a.other", "depth.d1", "depth.d10"] {
            assert_eq!(has(name), 1, "{name}");
        }
        assert_eq!(has("depth.d11"), 0);
        assert!(settings.included.contains(&at("absent")) && settings.included.contains(&at("other")));
    }

    #[test]
    fn a_way_round_and_a_link_from_outside_lead_into_the_mount() {
        let scratch = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(scratch.path()).unwrap();
        fs::create_dir_all(root.join("project/in")).unwrap();
        std::os::unix::fs::symlink("project", root.join("link")).unwrap();
        let found = |path: &str| in_mount(&root.join("project"), &root.join(path));
        for path in ["project/in/hooks", "link/in/hooks", "project/../link/in/hooks", "project/x/../in/hooks"]
        {
            assert_eq!(found(path), Some("in/hooks".into()), "{path}");
        }
        assert_eq!(found("elsewhere/hooks"), None);
        assert_eq!(found("project/../elsewhere"), None);
    }
}
