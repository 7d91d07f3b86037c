//! One secret of the vault: what was declared, and what was read of it or why it cannot be used.

use std::sync::Arc;
use std::time::Instant;

use understudy_harnesses::Filling;

use crate::accounts::Account;
use crate::credentials::declaration::Declaration;
use crate::credentials::holdings::HeldValue;
use crate::credentials::loading::Loaded;
use crate::credentials::secret::SecretValue;
use crate::credentials::source::Source;
use crate::credentials::ssh::SshKey;

/// A secret that can be granted.
#[derive(Debug)]
pub struct Secret {
    pub(super) declaration: Declaration,
    pub(super) loaded: Loaded,
    /// Stand-ins that it had when its value had another shape. Containers that were given one keep it.
    pub(super) former: Vec<String>,
}

/// A declared secret that cannot be used. Its bindings hold all the same, and so does the search for its value.
#[derive(Debug)]
pub struct Unusable {
    pub(super) declaration: Declaration,
    pub(super) error: String,
    pub(super) value: Option<Arc<SecretValue>>,
}

impl Secret {
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// What containers are given that start now.
    pub fn stand_in(&self) -> &str {
        &self.loaded.stand_in
    }

    /// Whether `text` is the stand-in, or one that it had before.
    pub fn answers_to(&self, text: &[u8]) -> bool {
        self.stand_ins().any(|stand_in| stand_in.as_bytes() == text)
    }

    pub(in crate::credentials) fn value(&self) -> &SecretValue {
        &self.loaded.value
    }

    pub(in crate::credentials) fn held(&self) -> HeldValue {
        HeldValue { value: Arc::clone(&self.loaded.value), stand_in: self.loaded.stand_in.clone() }
    }

    /// What an SSH key is.
    pub fn ssh_key(&self) -> Option<&SshKey> {
        self.loaded.ssh.as_deref()
    }

    /// What the value was before, and may still be good for.
    pub(in crate::credentials) fn earlier(&self) -> Option<&SecretValue> {
        self.loaded.earlier.as_deref()
    }

    /// Of the access token of an account.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.loaded.account.as_ref()
    }

    /// What is to be done about an account whose login is over.
    pub fn login_needed(&self) -> Option<String> {
        let account = self.account()?;
        let ended = account.ended.as_ref()?;
        Some(format!(
            "the provider ended its login ({ended}); log in again, then: understudy login import FORMAT --account {} < FILE",
            account.name
        ))
    }

    /// What a harness puts into its variables and files.
    pub fn filling(&self) -> Filling<'_> {
        let stand_in = self.stand_in();
        let Some(account) = self.account() else { return Filling::of(stand_in) };
        Filling {
            stand_in,
            refresh: &account.stand_ins.refresh,
            id: account.stand_ins.id.as_deref().unwrap_or_default(),
            account: Some(&account.facts),
        }
    }

    /// All that a container that is given it may hold.
    pub fn all_stand_ins(&self) -> impl Iterator<Item = &str> {
        let account = self.account().map(|account| &account.stand_ins);
        let others = account.into_iter().flat_map(|all| [Some(&all.refresh), all.id.as_ref()]);
        [self.stand_in()].into_iter().chain(others.flatten().map(String::as_str))
    }

    pub(in crate::credentials) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    pub(in crate::credentials) fn scheme(&self) -> Option<&'static str> {
        self.loaded.scheme
    }

    /// Why the value is an earlier one, if it is.
    pub fn stale(&self) -> Option<&str> {
        self.loaded.stale.as_deref()
    }

    pub(in crate::credentials) fn is_outdated(&self, now: Instant) -> bool {
        let Source::Command(command) = &self.declaration.source else { return false };
        command.cache.is_some_and(|cache| now.saturating_duration_since(self.loaded.read) >= cache)
    }

    /// All that it answers to, today's first.
    pub fn stand_ins(&self) -> impl Iterator<Item = &str> {
        [&self.loaded.stand_in].into_iter().chain(&self.former).map(String::as_str)
    }
}

impl Unusable {
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Why, in one line, without the secret's name.
    pub fn error(&self) -> &str {
        &self.error
    }
}
