//! What one exchange is searched for: of one vault, however long the exchange lasts.

use std::sync::Arc;

use understudy_policies::HostName;

use crate::credentials::scrub::{Patterns, Watched};
use crate::credentials::{Grants, Vault};

#[derive(Debug)]
pub(super) struct Searches {
    vault: Arc<Vault>,
    answers: Arc<Patterns>,
    requests: Arc<Patterns>,
    nothing: Arc<Patterns>,
    /// Whether the host gets a secret of this container: what it answers must be searched, or not passed on.
    pub(super) bound: bool,
}

impl Searches {
    pub(super) fn new(vault: Arc<Vault>, grants: &Grants, host: &HostName) -> Self {
        let mut granted = vault.secrets().iter().filter(|secret| grants.contains(secret.name()));
        let bound = granted.any(|secret| secret.declaration().is_bound_to(host));
        let (answers, requests) = (vault.scrub(grants), vault.watch());
        Self { vault, answers, requests, nothing: Arc::new(Patterns::new([])), bound }
    }

    /// What answers are scrubbed of.
    pub(super) fn answers(&self) -> Arc<Patterns> {
        Arc::clone(&self.answers)
    }

    /// What requests are watched for; [`Self::watched`] tells what a find is.
    pub(super) fn requests(&self) -> Arc<Patterns> {
        Arc::clone(&self.requests)
    }

    pub(super) fn nothing(&self) -> Arc<Patterns> {
        Arc::clone(&self.nothing)
    }

    pub(super) fn watched(&self, owner: usize) -> Option<Watched<'_>> {
        self.vault.watched(owner)
    }

    /// Whether WebSockets are read frame by frame; without any secret there is nothing to look for.
    pub(super) fn of_frames(&self) -> bool {
        !self.requests.is_empty()
    }

    /// In any form that is looked for in heads.
    pub(super) fn real_value_in(&self, text: &[u8]) -> bool {
        self.vault.real_value_in(text).is_some()
    }
}
