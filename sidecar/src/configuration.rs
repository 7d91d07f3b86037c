//! Everything that the operator configured, as it is at one moment: what containers are given is decided from it.

mod live;
mod spliced;

use std::sync::Arc;

use understudy_control::{PlacedFile, Prepare, Published, Refusal, annotation};
use understudy_harnesses::{Descriptor, Harnesses};
use understudy_policies::{Ceiling, Policies, Rule};

pub use live::{Live, Remember};

use crate::ceiling;
use crate::config::Settings;
use crate::credentials::expiry::Day;
use crate::credentials::terms::moved::moved;
use crate::credentials::{Asked, Catalogue, Rights, Terms, Vault, grants, rights, terms};
use crate::dns::UpstreamProxy;
use crate::instructions::Instructions;
use crate::named::Named;
use crate::publish;

#[derive(Debug, Clone)]
pub struct Configuration {
    pub settings: Settings,
    /// The sidecar's own way out, with its credentials.
    pub upstream_proxy: Option<UpstreamProxy>,
    pub harnesses: Harnesses,
    pub policies: Policies,
    pub instructions: Instructions,
    /// What the user lets annotations and policies ask for.
    pub ceiling: Ceiling,
    pub catalogue: Arc<Catalogue>,
    pub vault: Arc<Vault>,
    /// What `ceiling` makes of `policies`: told at every `status`, and too much work for each of them.
    narrowed: Arc<[String]>,
    /// What `policies` make of `vault`, as [`spliced::problems`] tells it: each rule with each secret.
    spliced: Arc<[String]>,
    /// One line for each file that cannot be used any more, or not before the next start: what it said before is what
    /// is in here.
    stale: Vec<String>,
}

impl Configuration {
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.stale.clone();
        problems.extend(self.harnesses.problems());
        problems.extend(self.policies.problems());
        problems.extend(self.instructions.problems());
        problems.extend(self.vault.problems(Day::today()));
        problems.extend(grants::warnings(&self.vault, &self.harnesses));
        problems.extend(self.spliced.iter().cloned());
        problems
    }

    /// One line each for what works, and should be looked at.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.vault.warnings(Day::today());
        warnings.extend(self.policies.warnings());
        warnings.extend(self.narrowed.iter().cloned());
        warnings
    }

    pub fn terms(&self, prepare: &Prepare) -> Result<Terms, Refusal> {
        let mut terms = terms(prepare, &self.harnesses, &self.policies, &self.vault)?;
        terms.placement.files.extend(self.instructions_for(prepare, &terms.harness)?);
        let set = terms.env.iter().map(|variable| (variable.name.clone(), variable.value.clone()));
        let env = prepare.env.clone().into_iter().chain(set).collect();
        moved(&mut terms.placement, &self.harnesses_of(&terms.harness), &env)?;
        for Published { outside, inside } in publish::permitted(prepare, &self.settings)? {
            terms.notes.push(format!(
                "its port {inside} is reached by port {outside} of the sidecar, and by whoever reaches that"
            ));
        }
        ceiling::apply(terms, prepare, &self.ceiling)
    }

    fn harnesses_of(&self, names: &str) -> Vec<&Descriptor> {
        annotation::list(names).filter_map(|name| self.harnesses.harness(name).ok()).collect()
    }

    fn instructions_for(&self, prepare: &Prepare, harness: &str) -> Result<Vec<PlacedFile>, Refusal> {
        let asked = prepare.annotations.get(annotation::INSTRUCTIONS).map(String::as_str);
        let files = self.instructions.files(&self.harnesses_of(harness), asked)?;
        match files.iter().find_map(|file| self.vault.real_value_in(file.content.as_bytes())) {
            Some(secret) => Err(Refusal::new(
                format!("the instructions hold the real value of secret `{secret}`"),
                "take it out of the file in instructions/",
            )),
            None => Ok(files),
        }
    }

    /// What a running container may do: nothing, where a policy or harness of it is gone, or it goes beyond a ceiling now;
    /// every refusal says which. `decided` are the operator's rules for it.
    /// `named` are hosts that providers named for it.
    pub fn rights(&self, asked: &Asked, decided: Vec<Rule>, named: &[Named]) -> Rights {
        let rights = rights(asked, &self.harnesses, &self.policies, &self.vault)
            // Not of one that has nothing any more: it would say that what is required is missing.
            .and_then(|rights| ceiling::limit(rights, &asked.harness, &asked.prepare, &self.ceiling))
            .unwrap_or_else(|refusal| Rights::none(asked, refusal.reason));
        let managed = &asked.prepare.managed;
        let rights = ceiling::with_named(rights, named, managed, &self.ceiling);
        ceiling::with_decided(rights, decided, managed, &self.ceiling)
    }
}
