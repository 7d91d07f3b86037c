//! `refusals/` in the runtime directory: why containers were refused, and what hooks inside of them said.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use understudy_control::{ContainerId, Refusal};

use crate::installation::{Installation, write_whole};

const NEWEST: usize = 50;
const FAILURE: &str = "failure";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) id: ContainerId,
    pub(crate) name: Option<String>,
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// Keeps the refusal, and forgets all but the newest.
pub(crate) fn note(
    installation: &Installation,
    id: &ContainerId,
    name: Option<&str>,
    refusal: &Refusal,
) -> Result<()> {
    let directory = directory(installation)?;
    let note = Note {
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        id: id.clone(),
        name: name.map(str::to_owned),
        reason: refusal.reason.clone(),
        remedy: refusal.remedy.clone(),
    };
    write_whole(&directory.join(format!("{id}.json")), &serde_json::to_vec(&note)?, 0o600)?;
    forget(&directory, "json")
}

/// A stage failed before it could refuse: Podman shows the stage's arguments, `why` shows this.
pub(crate) fn note_failure(installation: &Installation, error: &anyhow::Error) -> Result<()> {
    let text = format!("{error:#}");
    write_whole(&directory(installation)?.join(FAILURE), text.as_bytes(), 0o600)
}

/// The newest failure of a stage, and when it was in seconds since 1970.
pub(crate) fn failure(installation: &Installation) -> Option<(u64, String)> {
    let path = installation.refusals().join(FAILURE);
    let time = fs::metadata(&path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some((time, fs::read_to_string(path).ok()?))
}

/// Where the runtime writes what hooks say on their stderr. Not beside the container's record, which is gone once the
/// container is.
pub(crate) fn said_by_hooks(installation: &Installation, id: &ContainerId) -> Result<PathBuf> {
    let directory = directory(installation)?;
    let path = directory.join(format!("{id}.stderr"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
        }
        _ => {}
    }
    forget(&directory, "stderr")?;
    Ok(path)
}

/// The container has gone: a file in which its hooks said nothing is of no use.
pub(crate) fn forget_silent(installation: &Installation, id: &ContainerId) -> Result<()> {
    let path = installation.refusals().join(format!("{id}.stderr"));
    if !fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0) {
        return Ok(());
    }
    fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))
}

/// Newest first. Files that are not ours or are damaged are left out.
pub(crate) fn all(installation: &Installation) -> Vec<Note> {
    let mut notes: Vec<Note> = files(&installation.refusals(), "json")
        .into_iter()
        .filter_map(|(_, path)| serde_json::from_slice(&fs::read(path).ok()?).ok())
        .collect();
    notes.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.id.cmp(&b.id)));
    notes
}

/// What hooks of one container said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Seconds since 1970, of the last word.
    pub(crate) time: u64,
    pub(crate) id: String,
    pub(crate) text: String,
}

/// Newest first; those that said nothing are left out.
pub(crate) fn said(installation: &Installation) -> Vec<Said> {
    files(&installation.refusals(), "stderr")
        .into_iter()
        .filter_map(|(time, path)| {
            let text = String::from_utf8_lossy(&fs::read(&path).ok()?).trim().to_owned();
            (!text.is_empty()).then_some(())?;
            let time = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
            Some(Said { time, id: path.file_stem()?.to_str()?.to_owned(), text })
        })
        .collect()
}

fn directory(installation: &Installation) -> Result<PathBuf> {
    let path = installation.refusals();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.with_context(|| format!("{} cannot be made", path.display()))?;
    Ok(path)
}

fn forget(directory: &Path, extension: &str) -> Result<()> {
    for (_, path) in files(directory, extension).into_iter().skip(NEWEST) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Newest first.
fn files(directory: &Path, extension: &str) -> Vec<(SystemTime, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precreate::tests::installation;

    fn id(number: usize) -> ContainerId {
        format!("{number:064x}").parse().unwrap()
    }

    #[test]
    fn notes_come_back_and_only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let installation = installation(dir.path());
        for number in 0..NEWEST + 5 {
            note(&installation, &id(number), Some("n"), &Refusal::new("why", "what")).unwrap();
        }
        let all = all(&installation);
        assert_eq!(all.len(), NEWEST);
        assert_eq!((all[0].reason.as_str(), all[0].remedy.as_str()), ("why", "what"));
    }

    #[test]
    fn what_hooks_say_is_found_and_starts_empty_again() {
        let dir = tempfile::tempdir().unwrap();
        let installation = installation(dir.path());
        let path = said_by_hooks(&installation, &id(1)).unwrap();
        fs::write(&path, "place: no home\n").unwrap();
        let all = said(&installation);
        assert_eq!(
            (all.len(), all[0].id.as_str(), all[0].text.as_str()),
            (1, id(1).as_str(), "place: no home")
        );
        assert!(all[0].time > 0);
        said_by_hooks(&installation, &id(1)).unwrap();
        assert!(said(&installation).is_empty());
        fs::write(&path, "again\n").unwrap();
        forget_silent(&installation, &id(1)).unwrap();
        assert!(path.exists());
        fs::write(&path, "").unwrap();
        forget_silent(&installation, &id(1)).unwrap();
        assert!(!path.exists());
        forget_silent(&installation, &id(1)).unwrap();
    }
}
