//! One secret of the vault: what was declared, and what was read of it or why it cannot be used.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use understudy_harnesses::Filling;

use crate::accounts::Account;
use crate::credentials::assertions::AssertionKey;
use crate::credentials::aws::AwsKey;
use crate::credentials::declaration::Declaration;
use crate::credentials::holdings::HeldValue;
use crate::credentials::loading::Loaded;
use crate::credentials::postgres::scram::Verifier;
use crate::credentials::secret::SecretValue;
use crate::credentials::source::Source;
use crate::credentials::ssh::SshKey;

/// How long before an access key expires another one is asked for, and how long it is waited between two tries.
const AHEAD: Duration = Duration::from_secs(300);
const BETWEEN: Duration = Duration::from_secs(60);

/// A secret that can be granted.
#[derive(Debug)]
pub struct Secret {
    pub(super) declaration: Declaration,
    pub(super) loaded: Loaded,
    /// Stand-ins that it had when its value had another shape. Containers that were given one keep it.
    pub(super) former: Vec<String>,
    /// Of its stand-ins, if it is a password of PostgreSQL: made slowly, so once.
    verifiers: OnceLock<Vec<Verifier>>,
}

/// A declared secret that cannot be used. Its bindings hold all the same, and so does the search for its value.
#[derive(Debug)]
pub struct Unusable {
    pub(super) declaration: Declaration,
    pub(super) error: String,
    pub(super) value: Option<Arc<SecretValue>>,
}

impl Secret {
    pub(super) fn new(declaration: Declaration, loaded: Loaded) -> Self {
        Self { declaration, loaded, former: Vec::new(), verifiers: OnceLock::new() }
    }

    /// By which it is told who knows one of its stand-ins. `salt` is the vault's.
    pub(in crate::credentials) fn verifiers(&self, salt: &[u8; 16]) -> &[Verifier] {
        self.verifiers.get_or_init(|| self.stand_ins().map(|text| Verifier::new(text, salt)).collect())
    }

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

    /// None of a key that an agent keeps.
    pub(in crate::credentials) fn value(&self) -> Option<&SecretValue> {
        self.loaded.value.as_deref()
    }

    pub(in crate::credentials) fn value_shared(&self) -> Option<Arc<SecretValue>> {
        self.loaded.value.clone()
    }

    /// With the others that belong to it.
    pub(in crate::credentials) fn held(&self) -> impl Iterator<Item = HeldValue> {
        let stand_in = || self.loaded.stand_in.clone();
        let own = self.value_shared().map(|value| HeldValue { value, stand_in: stand_in() });
        let shared = |(value, stand_in): (&Arc<SecretValue>, &str)| HeldValue {
            value: Arc::clone(value),
            stand_in: stand_in.to_owned(),
        };
        own.into_iter().chain(self.loaded.aws.iter().flat_map(|key| key.parts()).map(shared))
    }

    /// What belongs to the value and travels, each with its stand-in: the id and the token of an access key.
    pub(in crate::credentials) fn parts(&self) -> impl Iterator<Item = (&SecretValue, &str)> {
        self.aws_key().into_iter().flat_map(AwsKey::parts).map(|(value, stand_in)| (&**value, stand_in))
    }

    /// Of an access key, whose secret half the value is.
    pub fn aws_key(&self) -> Option<&AwsKey> {
        self.loaded.aws.as_deref()
    }

    pub(in crate::credentials) fn aws_key_shared(&self) -> Option<Arc<AwsKey>> {
        self.loaded.aws.clone()
    }

    /// Of a key that signs tokens.
    pub fn assertion_key(&self) -> Option<&AssertionKey> {
        self.loaded.assertion.as_deref()
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
            refresh: account.stand_ins.refresh.as_deref().unwrap_or_default(),
            id: account.stand_ins.id.as_deref().unwrap_or_default(),
            account: Some(&account.facts),
        }
    }

    /// All that a container that is given it may hold.
    pub fn all_stand_ins(&self) -> impl Iterator<Item = &str> {
        let account = self.account().map(|account| &account.stand_ins);
        let others = account.into_iter().flat_map(|all| [all.refresh.as_ref(), all.id.as_ref()]);
        let own = [self.stand_in()].into_iter().chain(others.flatten().map(String::as_str));
        own.chain(self.parts().map(|(_, stand_in)| stand_in))
    }

    /// All that is searched for in what a container sends.
    pub(in crate::credentials) fn all_known(&self) -> impl Iterator<Item = &str> {
        // A container may have been given a token when the key had one.
        let key = self.aws_key().into_iter().flat_map(|key| [key.stand_in_id(), key.stand_in_token()]);
        self.stand_ins().chain(key)
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
        let age = now.saturating_duration_since(self.loaded.read);
        let expires = self.aws_key().and_then(AwsKey::expires);
        let over = expires.is_some_and(|expires| {
            let expires = UNIX_EPOCH + Duration::from_secs(u64::try_from(expires).unwrap_or(0));
            SystemTime::now() + AHEAD >= expires && age >= BETWEEN
        });
        over || command.cache.is_some_and(|cache| age >= cache)
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
