//! `containers/<id>/record.json`: what a container was prepared with and where it runs, for the later stages.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use understudy_control::{ContainerId, NetnsId, Prepare};

use crate::installation::{Installation, write_whole};
use crate::precreate::Described;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// What the sidecar was asked; asked again by a re-attach. Its `env` and `args` are left empty.
    pub(crate) prepare: Prepare,
    /// Whether its network namespace is that of other containers, too.
    #[serde(default)]
    pub(crate) shared: bool,
    /// What its image was called when it started, for the machine's rules. None if that could not be told, or an older
    /// hook wrote this.
    #[serde(default)]
    pub(crate) image: Option<Described>,
    /// The process's environment as precreate wrote it, a `fingerprint` for each entry, for createRuntime to compare;
    /// empty afterwards.
    #[serde(default)]
    pub(crate) environment: Vec<u64>,
    /// Set by createRuntime.
    pub(crate) running: Option<Running>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Running {
    /// As the hook's pid namespace numbers it.
    pub(crate) pid: i32,
    /// Field 22 of proc_pid_stat(5), in clock ticks since boot: tells a process from a later one with its number.
    pub(crate) start_time: u64,
    pub(crate) netns: NetnsId,
}

/// Tells entries of an environment apart without keeping them. Nobody who could look for a collision chooses both.
pub(crate) fn fingerprint(entry: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.hash(&mut hasher);
    hasher.finish()
}

impl Record {
    pub(crate) fn directory(installation: &Installation, id: &ContainerId) -> PathBuf {
        installation.containers().join(id.as_str())
    }

    /// Makes the container's directory (0700) if it is missing.
    pub(crate) fn save(&self, installation: &Installation) -> Result<()> {
        let directory = Self::directory(installation, &self.prepare.id);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        write_whole(&directory.join("record.json"), &serde_json::to_vec(self)?, 0o600)
    }

    /// `None` when there is none.
    pub(crate) fn load(installation: &Installation, id: &ContainerId) -> Result<Option<Self>> {
        let path = Self::directory(installation, id).join("record.json");
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    /// Removes the record and the guest files; what is gone already is fine.
    pub(crate) fn remove(installation: &Installation, id: &ContainerId) -> Result<()> {
        let directory = Self::directory(installation, id);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{} cannot be removed", directory.display()))
            }
            _ => Ok(()),
        }
    }
}
