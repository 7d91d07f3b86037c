//! The files that a container sees as `/run/understudy/`.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use understudy_control::{PlacedFile, Placement, Write};

use super::{Work, profile};
use crate::installation::write_whole;
use crate::place::toml;
use crate::trust::{File, Trust};

/// Writes them below the container's own directory, readable for the container's user, whatever its number.
pub(super) fn write(container: &Path, trust: &Trust, work: &Work<'_>) -> Result<PathBuf> {
    let Work { prepared, bound, guards, directory, .. } = work;
    let guest = container.join("guest");
    let made = fs::DirBuilder::new().mode(0o755).create(&guest);
    made.with_context(|| format!("{} cannot be made", guest.display()))?;
    for ours in File::ALL {
        file(&guest, ours.name(), trust.content(ours))?;
    }
    // It answers at once or, between two sidecars, not at all: asked again after the usual 5 s, a client would wait for long.
    let resolv = format!("nameserver {}\noptions timeout:1 attempts:5\n", prepared.nameserver);
    file(&guest, "resolv.conf", resolv.as_bytes())?;
    file(&guest, "mounts.json", &serde_json::to_vec(bound)?)?;
    let guarded: Vec<_> = guards.all.iter().map(|guard| &guard.expected).collect();
    file(&guest, "guards.json", &serde_json::to_vec(&guarded)?)?;
    let (ours, others): (Vec<_>, Vec<_>) =
        prepared.placement.files.iter().cloned().partition(|placed| placed.path.starts_with(DIRECTORY));
    let files = others.into_iter().map(|placed| in_directory(placed, directory)).collect::<Result<_>>()?;
    let placement = Placement { files, ..prepared.placement.clone() };
    file(&guest, "place.json", &serde_json::to_vec(&placement)?)?;
    for placed in &ours {
        file(&guest, free(&guest, &placed.path)?, placed.content.as_bytes())?;
    }
    fs::set_permissions(&guest, fs::Permissions::from_mode(0o755))
        .with_context(|| guest.display().to_string())?;
    Ok(guest)
}

/// What it says of the container's working directory names it.
fn in_directory(placed: PlacedFile, directory: &Path) -> Result<PlacedFile> {
    if placed.write != Write::FillToml {
        return Ok(placed);
    }
    let content = toml::for_directory(&placed.content, directory).with_context(|| placed.path.clone())?;
    Ok(PlacedFile { content, ..placed })
}

/// Where the container sees them.
const DIRECTORY: &str = "/run/understudy/";

/// The name of a file that the sidecar has placed here, where a variable can name it whatever the container's home is.
fn free<'p>(guest: &Path, path: &'p str) -> Result<&'p str> {
    let name = path.strip_prefix(DIRECTORY).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        bail!("{path:?} is no name of a file below {DIRECTORY}");
    }
    if name == profile::FILE || guest.join(name).exists() {
        bail!("{path} is a file of the hook's own");
    }
    Ok(name)
}

pub(super) fn file(guest: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = guest.join(name);
    write_whole(&path, content, 0o644)?;
    // Whatever the umask took away.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precreate::tests::prepared;
    use crate::workspace::guard::Guards;

    fn written(paths: &[&str]) -> Result<(tempfile::TempDir, Placement)> {
        let placed = |path: &&str| PlacedFile {
            path: (*path).to_owned(),
            mode: 0o444,
            write: Write::Replace,
            content: "stand-in".to_owned(),
        };
        written_files(paths.iter().map(placed).collect())
    }

    fn written_files(files: Vec<PlacedFile>) -> Result<(tempfile::TempDir, Placement)> {
        let directory = tempfile::tempdir().unwrap();
        let mut prepared = prepared();
        prepared.placement.files = files;
        let guards = Guards::default();
        let work = Work {
            prepared: &prepared,
            root: Path::new("/"),
            directory: Path::new("/work"),
            bound: &[],
            guards: &guards,
            shared: false,
            image: None,
        };
        let guest = write(directory.path(), &Trust::default(), &work)?;
        let placement = serde_json::from_slice(&fs::read(guest.join("place.json"))?)?;
        Ok((directory, placement))
    }

    #[test]
    fn toml_names_the_working_directory_and_nothing_else_does() {
        let content = "[a.\"{directory}\"]\nb = 1\n";
        let file = |write| PlacedFile { path: "~/x".into(), mode: 0o600, write, content: content.into() };
        let (_directory, placement) =
            written_files(vec![file(Write::FillToml), file(Write::Create)]).unwrap();
        let written: Vec<&str> = placement.files.iter().map(|file| file.content.as_str()).collect();
        assert_eq!(written, ["[a.\"/work\"]\nb = 1\n", content]);
    }

    #[test]
    fn what_is_to_lie_there_does_and_is_placed_nowhere_else() {
        let (directory, placement) = written(&["/run/understudy/key.pem", "~/.other"]).unwrap();
        let path = directory.path().join("guest/key.pem");
        assert_eq!(fs::read_to_string(&path).unwrap(), "stand-in");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let left: Vec<&str> = placement.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(left, ["~/.other"]);
        for wrong in ["ca.crt", "place.json", "profile.sh", "", "../x", "a/b", ".x", "A"] {
            assert!(written(&[&format!("/run/understudy/{wrong}")]).is_err(), "{wrong}");
        }
    }
}
