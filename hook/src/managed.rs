//! The machine's ceiling, `/etc/understudy/managed.toml` and `managed.d/*.toml`: read on the host at every start, since the
//! sidecar's container sees only its user's configuration. The sidecar decides by it; the hook passes it on.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags};
use understudy_control::annotation::KNOWN;
use understudy_control::{ManagedFile, Refusal};
use understudy_policies::Ceiling;
use understudy_policies::ceiling::Required;

use crate::precreate::Described;

const ETC: &str = "/etc";

/// All files together; what the sidecar is asked must fit into one packet.
const LARGEST: u64 = 32 * 1024;

/// In the order in which they apply: `managed.toml`, then those of `managed.d` by name. None on most machines.
///
/// # Errors
/// If one cannot be read, or others than the machine's root could have written it: then nothing may start.
pub(crate) fn files() -> Result<Vec<ManagedFile>, Refusal> {
    read(Path::new(ETC))
}

/// What they say about containers without an annotation.
pub(crate) fn required(files: &[ManagedFile]) -> Result<Vec<Required>, Refusal> {
    let ceilings = files.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    Ok(ceilings.iter().filter_map(|ceiling| ceiling.required().cloned()).collect())
}

/// Whether a `[[require]]` of theirs is about some images only.
pub(crate) fn name_images(files: &[ManagedFile]) -> Result<bool, Refusal> {
    let ceilings = files.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    Ok(ceilings.iter().flat_map(Ceiling::requirements).any(|rule| !rule.of.is_for_all()))
}

/// The same files with what in them is not about a container of this image. Without a description, all of it is.
pub(crate) fn sparing(
    mut files: Vec<ManagedFile>,
    image: Option<&Described>,
) -> Result<Vec<ManagedFile>, Refusal> {
    for file in &mut files {
        let ceiling = parse(file)?;
        let others = ceiling
            .requirements()
            .iter()
            .enumerate()
            .filter(|(_, rule)| image.is_some_and(|image| !rule.of.matches(&image.names, &image.labels)));
        file.spared = others.map(|(at, _)| at).collect();
    }
    Ok(files)
}

fn parse(file: &ManagedFile) -> Result<Ceiling, Refusal> {
    Ceiling::parse("managed", &file.path, &file.text, &KNOWN)
        .map_err(|error| Refusal::new(error.to_string(), "the administrator of this machine must mend it"))
}

fn read(etc: &Path) -> Result<Vec<ManagedFile>, Refusal> {
    // As this process sees it: in a user namespace root may have no number, or another one.
    let root = fs::metadata(etc).map_err(|error| unreadable(etc, &error))?.uid();
    let directory = etc.join("understudy");
    let mut files = Vec::new();
    let mut left = LARGEST;
    let mut add = |path: &Path| -> Result<(), Refusal> {
        if let Some(text) = text(path, root, left)? {
            left = left.saturating_sub(text.len() as u64);
            files.push(ManagedFile::new(path.display().to_string(), text));
        }
        Ok(())
    };
    add(&directory.join("managed.toml"))?;
    let more = directory.join("managed.d");
    for path in listed(&more)? {
        add(&path)?;
        trusted(&more, &metadata(&more)?, root)?;
    }
    if !files.is_empty() {
        trusted(&directory, &metadata(&directory)?, root)?;
    }
    Ok(files)
}

/// Those whose names end in `.toml`, sorted.
fn listed(directory: &Path) -> Result<Vec<std::path::PathBuf>, Refusal> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(directory, &error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>().map_err(|error| unreadable(directory, &error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    Ok(paths)
}

fn text(path: &Path, root: u32, most: u64) -> Result<Option<String>, Refusal> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error.into())),
    };
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        return Err(refusal(format!("{} is not a file", path.display())));
    }
    trusted(path, &metadata, root)?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > most {
        return Err(refusal(format!(
            "{} and the files before it have more than {LARGEST} bytes",
            path.display()
        )));
    }
    Ok(Some(text))
}

fn metadata(path: &Path) -> Result<Metadata, Refusal> {
    fs::symlink_metadata(path).map_err(|error| unreadable(path, &error))
}

/// A user's own files do not pass for the machine's, nor does what anybody could have written.
fn trusted(path: &Path, metadata: &Metadata, root: u32) -> Result<(), Refusal> {
    let own = rustix::process::geteuid().as_raw();
    // A number that stands for everybody without one stands for strangers, too; but what this user, who has all power
    // in its namespace, cannot write, is none of its own.
    let writable = root != own && rustix::fs::access(path, Access::WRITE_OK).is_ok();
    if metadata.uid() == root && metadata.mode() & 0o022 == 0 && !writable {
        return Ok(());
    }
    Err(refusal(format!("{} can be written by others than root", path.display())))
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    refusal(format!("{} cannot be read: {error}", path.display()))
}

fn refusal(what: String) -> Refusal {
    Refusal::new(
        format!("the rules of this machine cannot be followed: {what}"),
        "as root: chown root, chmod 644 (directories: 755) what is in /etc/understudy",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Etc(tempfile::TempDir);

    impl Etc {
        fn new() -> Self {
            let etc = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(etc.path("managed.d")).unwrap();
            for directory in ["", "managed.d"] {
                etc.mode(directory, 0o755);
            }
            etc
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.0.path().join("understudy").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
            self.mode(name, 0o644);
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn texts(&self) -> Result<Vec<String>, String> {
            let files = read(self.0.path()).map_err(|refusal| refusal.reason)?;
            Ok(files.into_iter().map(|file| file.text).collect())
        }
    }

    #[test]
    fn no_file_is_no_rule() {
        assert!(Etc::new().texts().unwrap().is_empty());
        assert!(read(tempfile::tempdir().unwrap().path()).unwrap().is_empty());
    }

    #[test]
    fn files_come_in_order_with_their_paths() {
        let etc = Etc::new();
        etc.write("managed.d/b.toml", "b");
        etc.write("managed.d/a.toml", "a");
        etc.write("managed.d/a.toml.dpkg-old", "no");
        etc.write("managed.toml", "first");
        assert_eq!(etc.texts().unwrap(), ["first", "a", "b"]);
        let files = read(etc.0.path()).unwrap();
        assert_eq!(files[1].path, etc.path("managed.d/a.toml").display().to_string());
    }

    #[test]
    fn what_others_can_write_is_not_followed_and_not_passed_over() {
        for (name, mode) in
            [("managed.toml", 0o664), ("managed.toml", 0o646), ("", 0o775), ("managed.d", 0o777)]
        {
            let etc = Etc::new();
            etc.write("managed.toml", "");
            etc.write("managed.d/a.toml", "");
            etc.mode(name, mode);
            let error = etc.texts().unwrap_err();
            assert!(error.contains("can be written by others than root"), "{name}: {error}");
        }
    }

    #[test]
    fn what_belongs_to_somebody_else_than_etc_is_not_followed() {
        let etc = Etc::new();
        etc.write("managed.toml", "");
        let path = etc.path("managed.toml");
        let metadata = fs::metadata(&path).unwrap();
        assert!(trusted(&path, &metadata, metadata.uid()).is_ok());
        assert!(trusted(&path, &metadata, metadata.uid() + 1).is_err());
    }

    #[test]
    fn links_fifos_directories_and_floods_are_errors() {
        let etc = Etc::new();
        std::os::unix::fs::symlink("/etc/passwd", etc.path("managed.toml")).unwrap();
        assert!(etc.texts().unwrap_err().contains("cannot be read"));
        fs::remove_file(etc.path("managed.toml")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            etc.path("managed.toml"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert!(etc.texts().unwrap_err().contains("is not a file"));
        fs::remove_file(etc.path("managed.toml")).unwrap();
        fs::create_dir(etc.path("managed.toml")).unwrap();
        assert!(etc.texts().unwrap_err().contains("is not a file"));
        fs::remove_dir(etc.path("managed.toml")).unwrap();
        etc.write("managed.toml", &"#".repeat(LARGEST as usize));
        assert!(etc.texts().is_ok());
        etc.write("managed.d/a.toml", "#");
        assert!(etc.texts().unwrap_err().contains("more than"));
    }

    #[test]
    fn what_is_about_other_images_is_spared_where_the_image_is_known() {
        let text = "[[require]]\npolicy = \"a\"\n[[require]]\npolicy = \"b\"\nimages = \"*/agents/*\"\n\
                    [[require]]\npolicy = \"c\"\nlabels = \"agent=*\"\n";
        let image = |name: &str, label: &str| Described {
            names: vec![name.to_owned()],
            labels: vec![label.to_owned()],
        };
        for (image, spared) in [
            (None, vec![]),
            (Some(Described::default()), vec![1, 2]),
            (Some(image("localhost/agents/a:1", "x=y")), vec![2]),
            (Some(image("localhost/a:1", "agent=yes")), vec![1]),
            (Some(image("localhost/agents/a:1", "agent=yes")), vec![]),
        ] {
            let files = sparing(vec![ManagedFile::new("/m.toml", text)], image.as_ref()).unwrap();
            assert_eq!(files[0].spared, spared, "{image:?}");
        }
        assert!(sparing(vec![ManagedFile::new("/m.toml", "hots = 1")], None).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        let etc = Etc::new();
        fs::write(etc.path("managed.toml"), b"\xff").unwrap();
        assert!(etc.texts().unwrap_err().contains("cannot be read"));
    }
}
