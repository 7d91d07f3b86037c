//! Real credentials in what would be mounted, and in annotations: the sidecar, which alone knows them, looks.
//!
//! Files that are mounted by themselves, and those in the top directory of what is mounted, such as a project's `.env`. It is a
//! net: what lies deeper, and what is large, is not looked at.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;
use understudy_control::search::{LARGEST_TEXT, MOST_TEXT, MOST_TEXTS, Text, seal};
use understudy_control::{CallError, Client, Refusal, Reply, Request};

use super::annotations::is_ours;
use super::config::Config;
use super::guard::shown;
use super::prepare::{PATIENCE, unreachable};
use crate::installation::Installation;
use crate::workspace::folder::{Folder, Kind};

/// Where credentials are kept: looked at first, however many names a directory has.
const FIRST: [&str; 8] =
    [".env", ".env.local", ".env.production", ".envrc", ".netrc", ".npmrc", ".pypirc", ".git-credentials"];
/// Names of a directory that are looked at.
const MOST_NAMES: usize = 4096;
/// Characters of what something is called.
const LONGEST_NAME: usize = 240;

/// Something of the host that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Searched {
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
}

impl Searched {
    pub(crate) fn of(mount: &Mount, source: &Path) -> Self {
        Self { source: source.to_owned(), destination: mount.destination().clone() }
    }
}

/// Notes of what looks like a credential.
///
/// # Errors
/// If there is a real one, or nobody could look.
pub(crate) fn ask(
    installation: &Installation,
    config: &Config,
    mounted: &[Searched],
) -> Result<Vec<String>, Refusal> {
    let Texts { all, left_out } = texts(config, mounted)?;
    let left_out = left_out.then(|| LEFT_OUT.to_owned());
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(
            format!("the mounted files cannot be handed to the sidecar: {error}"),
            "run: understudy-hook doctor",
        )
    };
    let memory = seal(all.iter().map(|(_, text)| text.as_slice())).map_err(|error| failed(&error))?;
    let named = all.into_iter().map(|(name, text)| Text { name, length: text.len() }).collect();
    let client = Client::new(installation.control(), PATIENCE);
    match client.call(Request::Search(named), &[memory.as_fd()]) {
        Ok(Reply::Searched(notes)) => Ok(notes.into_iter().chain(left_out).collect()),
        Ok(_) => Err(unreachable(&CallError::Unexpected)),
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(error) => Err(unreachable(&error)),
    }
}

const LEFT_OUT: &str = "not all mounted files were searched for real credentials: there are too many";

#[derive(Default)]
struct Texts {
    all: Vec<(String, Vec<u8>)>,
    /// There was no room for some.
    left_out: bool,
}

impl Texts {
    fn add(&mut self, name: &str, text: Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let taken: usize = self.all.iter().map(|(_, text)| text.len()).sum();
        if self.is_full() || text.len() > LARGEST_TEXT || taken + text.len() > MOST_TEXT {
            self.left_out = true;
        } else {
            self.all.push((name.chars().take(LONGEST_NAME).collect(), text));
        }
    }

    fn is_full(&self) -> bool {
        self.all.len() >= MOST_TEXTS
    }
}

fn texts(config: &Config, mounted: &[Searched]) -> Result<Texts, Refusal> {
    let mut texts = Texts::default();
    // Ours are asked with all else.
    for (key, value) in config.annotations().filter(|(key, _)| !is_ours(key)) {
        texts.add(&format!("annotation {}", shown(Path::new(key))), format!("{key}={value}").into_bytes());
    }
    let (files, directories): (Vec<_>, Vec<_>) = mounted.iter().partition(|mount| mount.source.is_file());
    for Searched { source, destination } in files {
        let look = || -> io::Result<Option<Vec<u8>>> {
            let real = std::fs::canonicalize(source)?;
            match (real.parent(), real.file_name()) {
                (Some(parent), Some(name)) => read(&Folder::open(parent)?, Path::new(name)),
                _ => Ok(None),
            }
        };
        if let Some(text) = seen(look(), source)? {
            texts.add(&called(source, destination), text);
        }
    }
    for Searched { source, destination } in directories {
        let look = || -> io::Result<Option<(Folder, Vec<PathBuf>, bool)>> {
            let folder = Folder::open(source)?;
            let all = folder.list(Path::new(""), MOST_NAMES)?;
            let more = all.len() >= MOST_NAMES;
            let others = all.into_iter().filter(|(_, is_directory)| !is_directory);
            let mut others: Vec<PathBuf> = others.map(|(name, _)| name.into()).collect();
            others.retain(|name| !FIRST.iter().any(|first| name == Path::new(first)));
            others.sort_by_key(|name| !name.as_os_str().as_encoded_bytes().starts_with(b"."));
            let names: Vec<PathBuf> = FIRST.iter().map(PathBuf::from).chain(others).collect();
            Ok(Some((folder, names, more)))
        };
        let Some((folder, names, more)) = seen(look(), source)? else { continue };
        texts.left_out |= more;
        for name in names {
            if texts.is_full() {
                texts.left_out = true;
                break;
            }
            let path = source.join(&name);
            if let Some(text) = seen(read(&folder, &name), &path)? {
                texts.add(&called(&path, &destination.join(&name)), text);
            }
        }
    }
    Ok(texts)
}

fn called(path: &Path, destination: &Path) -> String {
    format!("file {} (mounted at {})", shown(path), shown(destination))
}

/// A regular file that is not large. What it is is looked at before it is opened.
fn read(folder: &Folder, name: &Path) -> io::Result<Option<Vec<u8>>> {
    if !matches!(folder.kind(name)?, Some(Kind::File | Kind::Program)) {
        return Ok(None);
    }
    let file = folder.file(name)?;
    let largest = u64::try_from(LARGEST_TEXT).unwrap_or(u64::MAX);
    if file.metadata()?.len() > largest {
        return Ok(None);
    }
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, largest + 1), &mut text)?;
    Ok((text.len() <= LARGEST_TEXT).then_some(text))
}

/// What is gone, or what this user may not read, nobody in the container reads either.
fn seen<T>(found: io::Result<Option<T>>, path: &Path) -> Result<Option<T>, Refusal> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match found {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(None),
        Err(error) => Err(Refusal::new(
            format!("{} cannot be searched for real credentials: {error}", shown(path)),
            format!("make {} readable, or remove the mount of it", shown(path)),
        )),
        Ok(found) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::super::tests::{Tree, config_of};
    use super::*;

    fn found(tree: &Tree, sources: &[PathBuf]) -> Vec<(String, String)> {
        let mounted = |source: &PathBuf| Searched { source: source.clone(), destination: "/work".into() };
        let mounted: Vec<_> = sources.iter().map(mounted).collect();
        let texts = texts(&tree.config(), &mounted).unwrap().all.into_iter();
        let texts = texts.filter(|(name, _)| name.starts_with("file "));
        texts.map(|(name, text)| (name, String::from_utf8(text).unwrap())).collect()
    }

    #[test]
    fn files_at_the_top_are_read_dotfiles_first_and_nothing_else_is() {
        let tree = Tree::new();
        let project = tree.home().join("project");
        fs::create_dir_all(project.join("deep")).unwrap();
        for (name, text) in [("a.txt", "a"), (".env", "e"), ("empty", ""), ("deep/.env", "d")] {
            fs::write(project.join(name), text).unwrap();
        }
        fs::write(project.join("huge"), vec![b'x'; LARGEST_TEXT + 1]).unwrap();
        fs::write(project.join("largest"), vec![b'x'; LARGEST_TEXT]).unwrap();
        let outside = tree.home().join("outside");
        fs::write(&outside, "o").unwrap();
        symlink(&outside, project.join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            project.join("fifo"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(project.join("socket")).unwrap();
        let all = found(&tree, std::slice::from_ref(&project));
        let told: Vec<_> = all.iter().map(|(name, text)| (name.as_str(), text.len())).collect();
        let called = |name: &str| format!("file {} (mounted at /work/{name})", project.join(name).display());
        assert_eq!(
            told,
            [(called(".env").as_str(), 1), (&called("a.txt"), 1), (&called("largest"), LARGEST_TEXT)]
        );
        // What is mounted by itself may be named by a link: it is what Podman would mount.
        assert_eq!(found(&tree, &[project.join("link")])[0].1, "o");
        assert!(found(&tree, &[project.join("fifo"), project.join("huge"), project.join("gone")]).is_empty());
    }

    #[test]
    fn no_more_is_read_than_can_be_handed_over_and_single_files_come_first() {
        let tree = Tree::new();
        let project = tree.home().join("project");
        fs::create_dir_all(&project).unwrap();
        for number in 0..2 * MOST_TEXTS {
            fs::write(project.join(number.to_string()), "x").unwrap();
        }
        let file = tree.home().join("file");
        fs::write(&file, "x").unwrap();
        let all = found(&tree, &[project.clone(), file.clone()]);
        assert!(all.len() <= MOST_TEXTS && all.len() > MOST_TEXTS / 2);
        assert!(all[0].0.contains(&file.display().to_string()));
        for number in 0..20 {
            fs::write(project.join(format!(".{number}")), vec![b'x'; LARGEST_TEXT]).unwrap();
        }
        let total: usize = found(&tree, &[project]).iter().map(|(_, text)| text.len()).sum();
        assert!(total <= MOST_TEXT && total > MOST_TEXT - 2 * LARGEST_TEXT, "{total}");
    }

    #[test]
    fn no_crowd_of_names_hides_where_credentials_are_kept_and_what_is_left_out_is_told() {
        let tree = Tree::new();
        let project = tree.home().join("project");
        fs::create_dir_all(&project).unwrap();
        fs::write(project.join(".env"), "e").unwrap();
        let searched = [Searched { source: project.clone(), destination: "/work".into() }];
        assert!(!texts(&tree.config(), &searched).unwrap().left_out);
        for number in 0..=MOST_NAMES {
            fs::write(project.join(format!(".a{number}")), "x").unwrap();
        }
        let found = texts(&tree.config(), &searched).unwrap();
        assert!(found.left_out && found.all.iter().any(|(_, text)| text == b"e"));
    }

    #[test]
    fn annotations_of_others_are_searched_too() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["annotations"]["org.example.note"] = json!("a value");
        document["annotations"]["understudy.harness"] = json!("generic");
        let texts = texts(&config_of(&document), &[]).unwrap().all;
        let of =
            |key: &str| texts.iter().find(|(name, _)| name.ends_with(key)).map(|(_, text)| text.as_slice());
        assert_eq!(of("org.example.note"), Some(b"org.example.note=a value".as_slice()));
        assert_eq!(of("understudy.harness"), None);
    }
}
