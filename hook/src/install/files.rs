//! Files that are written, with what they replaced kept, so that all of it can be undone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::installation::write_whole;

/// `installed.json` in the state directory: every file of the installation, in the order of writing.
#[derive(Debug)]
pub(super) struct Ledger {
    state: PathBuf,
    entries: Vec<Entry>,
    written: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: PathBuf,
    /// Where the file that was there before the first installation is kept.
    backup: Option<PathBuf>,
    mode: Option<u32>,
}

impl Ledger {
    /// The ledger of this state directory, or a new one.
    pub(super) fn open(state: &Path) -> Result<Self> {
        make_directory(state)?;
        Ok(Self::existing(state)?.unwrap_or_else(|| Self {
            state: state.to_owned(),
            entries: Vec::new(),
            written: Vec::new(),
        }))
    }

    pub(super) fn existing(state: &Path) -> Result<Option<Self>> {
        let path = state.join("installed.json");
        match fs::read(&path) {
            Ok(text) => {
                let entries = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is damaged", path.display()))?;
                Ok(Some(Self { state: state.to_owned(), entries, written: Vec::new() }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    /// Writes `path` whole, once what is there is kept.
    pub(super) fn write(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        self.about_to_write(path)?;
        write_whole(path, bytes, mode)?;
        // Whatever the umask took away: these are read by Podman and by containers.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("{} cannot be made readable", path.display()))
    }

    /// Keeps what is at `path`. The ledger knows of both before the file changes.
    pub(super) fn about_to_write(&mut self, path: &Path) -> Result<()> {
        let parent = path.parent().context("a file needs a directory")?;
        make_directory(parent)?;
        if !self.entries.iter().any(|entry| entry.path == path) {
            let entry = self.keep(path)?;
            self.entries.push(entry);
            self.save()?;
        }
        self.written.push(path.to_owned());
        Ok(())
    }

    pub(super) fn written(self) -> Vec<PathBuf> {
        self.written
    }

    /// Last written, first gone. What is gone already is fine.
    pub(super) fn undo(mut self) -> Result<Vec<PathBuf>> {
        let mut done = Vec::new();
        while let Some(last) = self.entries.len().checked_sub(1) {
            done.push(self.undo_one(last)?);
        }
        remove(&self.state.join("installed.json"))?;
        Ok(done)
    }

    /// Undoes what an earlier installation wrote under the name of `path` in another directory.
    pub(super) fn moved_to(&mut self, path: &Path) -> Result<()> {
        let elsewhere = |entry: &Entry| entry.path != path && entry.path.file_name() == path.file_name();
        while let Some(index) = self.entries.iter().position(elsewhere) {
            self.undo_one(index)?;
        }
        Ok(())
    }

    fn undo_one(&mut self, index: usize) -> Result<PathBuf> {
        let entry = self.entries[index].clone();
        match &entry.backup {
            Some(backup) => {
                let bytes =
                    fs::read(backup).with_context(|| format!("{} cannot be read", backup.display()))?;
                write_whole(&entry.path, &bytes, entry.mode.unwrap_or(0o644))?;
            }
            None => drop(remove(&entry.path)?),
        }
        self.entries.remove(index);
        self.save()?;
        if let Some(backup) = &entry.backup {
            remove(backup)?;
        }
        Ok(entry.path)
    }

    fn keep(&self, path: &Path) -> Result<Entry> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Entry { path: path.to_owned(), backup: None, mode: None });
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let directory = self.state.join("backup");
        make_directory(&directory)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let backup = directory.join(format!("{}-{name}", self.entries.len()));
        write_whole(&backup, &bytes, 0o600)?;
        let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o7777).ok();
        Ok(Entry { path: path.to_owned(), backup: Some(backup), mode })
    }

    fn save(&self) -> Result<()> {
        write_whole(&self.state.join("installed.json"), &serde_json::to_vec_pretty(&self.entries)?, 0o600)
    }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("{} cannot be made", path.display()))
}

/// Whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("{} cannot be removed", path.display())),
    }
}
