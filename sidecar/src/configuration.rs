//! Everything that the operator configured, loaded once: what containers are given is decided from it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use understudy_control::{Prepare, Refusal};
use understudy_harnesses::Harnesses;
use understudy_policies::{Ceiling, Policies};

use crate::ceiling;
use crate::config::{Directories, Settings};
use crate::credentials::expiry::Day;
use crate::credentials::{
    Catalogue, InstallationKey, KnownStandIns, Loading, Surroundings, Terms, Vault, grants, terms,
};

#[derive(Debug)]
pub struct Configuration {
    pub settings: Settings,
    pub harnesses: Harnesses,
    pub policies: Policies,
    /// What the user lets annotations and policies ask for.
    pub ceiling: Ceiling,
    pub catalogue: Arc<Catalogue>,
    pub vault: Arc<Vault>,
}

impl Configuration {
    /// A broken `sidecar.toml`, `secrets.toml`, `ceiling.toml` or provider of the catalogue is an error; a broken policy,
    /// descriptor or secret is a problem that
    /// closes what depends on it.
    pub fn load(directories: &Directories) -> Result<Self> {
        let settings = Settings::load(&directories.sidecar_toml())?;
        let key = InstallationKey::load_or_create(&directories.state.join("installation.key")).context(
            "the installation's key (mount a volume for it: -v understudy-state:/var/lib/understudy)",
        )?;
        let catalogue = Arc::new(Catalogue::load(&directories.catalogue())?);
        let vault = Vault::load(
            &directories.secrets_toml(),
            Loading {
                key: &key,
                around: &Surroundings::of_this_process(),
                known: &KnownStandIns::load(&directories.state.join("stand-ins.json"))?,
                previous: None,
                ask_again: true,
            },
        )?;
        Ok(Self {
            settings,
            harnesses: Harnesses::load(Some(&directories.harnesses())),
            policies: Policies::load(Some(&directories.policies())),
            ceiling: ceiling::load(&directories.ceiling_toml())?,
            catalogue,
            vault: Arc::new(vault),
        })
    }

    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.harnesses.problems();
        problems.extend(self.policies.problems());
        problems.extend(self.vault.problems(Day::today()));
        problems.extend(grants::warnings(&self.vault, &self.harnesses));
        problems
    }

    pub fn terms(&self, prepare: &Prepare) -> Result<Terms, Refusal> {
        let terms = terms(prepare, &self.harnesses, &self.policies, &self.vault)?;
        ceiling::apply(terms, prepare, &self.ceiling)
    }
}
