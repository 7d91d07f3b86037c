//! Where an installation keeps its things: `installation.json` in the state directory that each stage is told.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use understudy_control::{ControlDirectory, ImageId};

/// Written by `install`, read by every stage. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Installation {
    /// The hook's package version; a stage of another version refuses to work on it.
    pub(crate) version: String,
    /// The state directory itself.
    pub(crate) state: PathBuf,
    /// The runtime directory: `control/`, `containers/`, `refusals/`.
    pub(crate) runtime: PathBuf,
    /// The configuration directory, which is mounted into the sidecar.
    pub(crate) configuration: PathBuf,
    /// Home directories whose credential stores must not be mounted.
    pub(crate) homes: Vec<PathBuf>,
    /// The `nft` binary.
    pub(crate) nft: PathBuf,
    /// Ids of the images that may be the sidecar.
    pub(crate) sidecar_images: BTreeSet<ImageId>,
}

impl Installation {
    pub(crate) fn load(state: &Path) -> Result<Self> {
        let path = Self::file(state);
        let text = fs::read(&path)
            .with_context(|| format!("{} cannot be read (run: understudy-hook install)", path.display()))?;
        let installation: Self =
            serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
        if installation.version != env!("CARGO_PKG_VERSION") {
            bail!(
                "{} was written by version {}, this is {} (run: understudy-hook install)",
                path.display(),
                installation.version,
                env!("CARGO_PKG_VERSION")
            );
        }
        Ok(installation)
    }

    /// Whole or not at all.
    pub(crate) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        write_whole(&Self::file(&self.state), &text, 0o600)
    }

    pub(crate) fn file(state: &Path) -> PathBuf {
        state.join("installation.json")
    }

    pub(crate) fn control(&self) -> ControlDirectory {
        ControlDirectory::new(self.runtime.join("control"))
    }

    /// One directory for each container that was prepared.
    pub(crate) fn containers(&self) -> PathBuf {
        self.runtime.join("containers")
    }

    /// What `why` shows.
    pub(crate) fn refusals(&self) -> PathBuf {
        self.runtime.join("refusals")
    }

    /// Holds the hook's binary and nothing else; mounted into containers.
    pub(crate) fn guest_binary_directory(&self) -> PathBuf {
        guest_binary_directory(&self.state)
    }
}

/// The same, of a state directory whose `installation.json` may not be this user's to read.
pub(crate) fn guest_binary_directory(state: &Path) -> PathBuf {
    state.join("guest")
}

/// Writes beside `path`, syncs, renames.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension(format!("new.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}
