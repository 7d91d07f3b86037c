//! What git is told by all the files that it reads: a repository's, the user's, the machine's, and those that they include.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};

use super::config::{self, Entry};
use super::plan::{Unguardable, inside};

/// git's own limit (`MAX_INCLUDE_DEPTH` of config.c).
const DEEPEST: usize = 10;
const LARGEST: u64 = 1024 * 1024;
/// Of one repository, with all that it includes.
const MOST: usize = 40_000;
/// Where reading does something, or takes away from others (linux/magic.h): procfs, sysfs, tracefs, debugfs, securityfs,
/// configfs, cgroups.
const NO_FILES: [u64; 7] =
    [0x9fa0, 0x6265_6572, 0x7472_6163, 0x6462_6720, 0x7363_6673, 0x6265_6570, 0x6367_7270];

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) entries: Vec<Entry>,
    /// Absolute, on the host; whether such a file is there or not, and whatever the condition.
    pub(crate) included: BTreeSet<PathBuf>,
}

impl Settings {
    /// Those that hold for every repository: of the machine and of the users that have these homes. One user's that are
    /// too many are nobody's: they would keep the others' containers from starting.
    pub(crate) fn of_users(homes: &[PathBuf]) -> Self {
        let of_home = |home: &PathBuf| vec![home.join(".gitconfig"), home.join(".config/git/config")];
        let homes_there = homes.iter().filter(|home| home.is_dir());
        let mut all = Self::default();
        for files in std::iter::once(vec![PathBuf::from("/etc/gitconfig")]).chain(homes_there.map(of_home)) {
            let settings = Self::read(&files, homes, |path| Ok(on_host(path))).unwrap_or_default();
            all.entries.extend(settings.entries);
            all.included.extend(settings.included);
            // By a link, they may lie in what is mounted.
            all.included.extend(files);
        }
        all
    }

    /// `read` answers with nothing for a file that is not there.
    pub(super) fn read(
        files: &[PathBuf],
        homes: &[PathBuf],
        read: impl Fn(&Path) -> Result<Vec<Entry>, Unguardable>,
    ) -> Result<Self, Unguardable> {
        let mut settings = Self::default();
        let mut seen = BTreeSet::new();
        // The nearest first: what is also included from farther away is read as deep as it may be.
        let mut left: VecDeque<_> = files.iter().map(|file| (file.clone(), 0)).collect();
        while let Some((file, depth)) = left.pop_front() {
            if depth > DEEPEST || !seen.insert(file.clone()) {
                continue;
            }
            let entries = read(&file)?;
            if settings.entries.len() + entries.len() > MOST {
                return Err(Unguardable::TooMany);
            }
            for entry in entries {
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

/// Of a file out of the mount, whoever names it. What cannot be read here is not this user's configuration.
pub(super) fn on_host(path: &Path) -> Vec<Entry> {
    let read = || -> io::Result<Vec<Entry>> {
        let Some(file) = regular(path)? else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes)?;
        config::parse(&bytes)
    };
    read().unwrap_or_default()
}

/// Opened only once it is known to be a file: opening a device does something, and a repository's configuration may name one.
fn regular(path: &Path) -> io::Result<Option<File>> {
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
    if kind != FileType::RegularFile || NO_FILES.contains(&(fstatfs(&found)?.f_type as u64)) {
        return Ok(None);
    }
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(Some(open(again, flags, Mode::empty())?.into()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
        let settings = Settings::of_users(&homes);
        let has = |name: &str| settings.entries.iter().filter(|entry| entry.name() == name).count();
        for name in ["a.b", "a.xdg", "a.other", "depth.d1", "depth.d10"] {
            assert_eq!(has(name), 1, "{name}");
        }
        assert_eq!(has("depth.d11"), 0);
        assert!(settings.included.contains(&at("absent")) && settings.included.contains(&at("other")));
    }

    #[test]
    fn what_is_no_file_is_not_opened_and_nobody_s_mistake_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        fs::write(at("file"), "[a]\nb\n").unwrap();
        assert_eq!(on_host(&at("file")).len(), 1);
        assert!(regular(&at("file")).unwrap().is_some());
        for other in [at("fifo"), "/dev/null".into(), "/proc/self/status".into(), home.path().into()] {
            assert!(regular(&other).unwrap().is_none(), "{}", other.display());
        }
        std::os::unix::fs::symlink(".gitconfig", at(".gitconfig")).unwrap();
        assert!(Settings::of_users(&[home.path().to_owned()]).entries.iter().all(|entry| entry.key != "b"));
    }

    #[test]
    fn what_is_included_counts() {
        let file = |_: &Path| Ok(config::parse("k\n".repeat(15_000).as_bytes()).unwrap());
        let files: Vec<_> = (0..3).map(|number| PathBuf::from(format!("/{number}"))).collect();
        assert!(Settings::read(&files[..2], &[], file).is_ok());
        assert!(matches!(Settings::read(&files, &[], file), Err(Unguardable::TooMany)));
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
