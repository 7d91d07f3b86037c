//! Everything that the operator configured, as it is at one moment: what containers are given is decided from it.

mod live;

use std::sync::Arc;

use understudy_control::{Prepare, Refusal};
use understudy_harnesses::Harnesses;
use understudy_policies::{Ceiling, Policies, Rule};

pub use live::{Live, Remember};

use crate::ceiling;
use crate::config::Settings;
use crate::credentials::expiry::Day;
use crate::credentials::{Asked, Catalogue, Rights, Terms, Vault, grants, rights, terms};

#[derive(Debug)]
pub struct Configuration {
    pub settings: Settings,
    pub harnesses: Harnesses,
    pub policies: Policies,
    /// What the user lets annotations and policies ask for.
    pub ceiling: Ceiling,
    pub catalogue: Arc<Catalogue>,
    pub vault: Arc<Vault>,
    /// One line for each file that cannot be used any more, or not before the next start: what it said before is what
    /// is in here.
    stale: Vec<String>,
}

impl Configuration {
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.stale.clone();
        problems.extend(self.harnesses.problems());
        problems.extend(self.policies.problems());
        problems.extend(self.vault.problems(Day::today()));
        problems.extend(grants::warnings(&self.vault, &self.harnesses));
        problems
    }

    /// One line each for what works, and should be looked at.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.vault.warnings(Day::today());
        warnings.extend(self.policies.warnings());
        warnings
    }

    pub fn terms(&self, prepare: &Prepare) -> Result<Terms, Refusal> {
        let terms = terms(prepare, &self.harnesses, &self.policies, &self.vault)?;
        ceiling::apply(terms, prepare, &self.ceiling)
    }

    /// What a running container may do: nothing, where it goes beyond a ceiling now. `decided` are the operator's rules
    /// for it.
    pub fn rights(&self, asked: &Asked, decided: Vec<Rule>) -> Rights {
        let rights = rights(asked, &self.harnesses, &self.policies, &self.vault);
        let rights = ceiling::limit(rights, &asked.harness, &asked.prepare, &self.ceiling)
            .unwrap_or_else(|refusal| Rights::none(asked, refusal.reason));
        ceiling::with_decided(rights, decided, &asked.prepare.managed, &self.ceiling)
    }
}
