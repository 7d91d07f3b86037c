//! From a declaration to a value that can be used: fresh, or the one that was read before.

mod account;

use std::sync::Arc;
use std::time::Instant;

use zeroize::Zeroizing;

use super::assertions::{AssertionKey, Binding};
use super::aws::AwsKey;
use super::catalogue::{Alphabet, Catalogue};
use super::declaration::Declaration;
use super::installation_key::InstallationKey;
use super::known::KnownStandIns;
use super::secret::SecretValue;
use super::source::{AgentKey, Source, Surroundings};
use super::ssh::SshKey;
use super::stand_in::{self, Look};
use super::vault::{Secret, Vault};
use crate::accounts::Account;

/// What a load goes by, beside the declarations.
#[derive(Debug, Clone, Copy)]
pub struct Loading<'a> {
    pub catalogue: &'a Arc<Catalogue>,
    pub key: &'a InstallationKey,
    pub around: &'a Surroundings,
    pub known: &'a KnownStandIns,
    /// What was in force before: a value that can no longer be read stays what it was.
    pub previous: Option<&'a Vault>,
    /// Whether commands are run though their values are still cached.
    pub ask_again: bool,
}

/// A value and what became of reading it.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    /// None of a key that an agent keeps.
    pub(super) value: Option<Arc<SecretValue>>,
    pub(super) stand_in: String,
    pub(super) read: Instant,
    /// The scheme that was written before it and left out.
    pub(super) scheme: Option<&'static str>,
    /// Why this is an earlier value.
    pub(super) stale: Option<String>,
    /// What was found instead and cannot be used; searched for all the same.
    pub(super) rejected: Option<Arc<SecretValue>>,
    /// What it was before, and may still be good for.
    pub(super) earlier: Option<Arc<SecretValue>>,
    /// Whose access token it is.
    pub(super) account: Option<Arc<Account>>,
    /// What the value and the stand-in are, if they are SSH keys.
    pub(super) ssh: Option<Arc<SshKey>>,
    /// What belongs to the value, if it is the secret half of an access key.
    pub(super) aws: Option<Arc<AwsKey>>,
    /// What the value is, if it is a key that signs tokens.
    pub(super) assertion: Option<Arc<AssertionKey>>,
}

/// Why a secret has no value that can be used.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) error: String,
    /// A real one that was found all the same.
    pub(super) value: Option<Arc<SecretValue>>,
}

impl From<String> for Rejected {
    fn from(error: String) -> Self {
        Self { error, value: None }
    }
}

impl Loaded {
    pub(super) fn new(value: Option<Arc<SecretValue>>, stand_in: String) -> Self {
        let (scheme, stale, rejected, earlier, account, ssh, aws, assertion) = Default::default();
        let read = Instant::now();
        Self { value, stand_in, read, scheme, stale, rejected, earlier, account, ssh, aws, assertion }
    }
}

impl Loading<'_> {
    /// All that a declaration stands for: one value, or the tokens of an account.
    pub(super) fn load(
        &self,
        declaration: &Declaration,
        all: &[Declaration],
    ) -> Result<Vec<(Declaration, Loaded)>, Rejected> {
        match &declaration.source {
            Source::Account(name) => self.account(declaration, name),
            _ => Ok(vec![(declaration.clone(), self.value(declaration, all)?)]),
        }
    }

    pub(super) fn value(&self, declaration: &Declaration, all: &[Declaration]) -> Result<Loaded, Rejected> {
        let kept = self.previous.and_then(|vault| vault.secret(&declaration.name));
        let kept = kept.filter(|kept| kept.declaration().source == declaration.source);
        if let Some(kept) = kept.filter(|kept| !self.is_to_be_read(kept)) {
            return self.again(declaration, kept);
        }
        let found = declaration.source.read(self.around).map_err(Rejected::from);
        let found = found.and_then(|bytes| self.judge(&bytes, declaration, all));
        let Err(rejected) = found else { return found };
        let error = format!("{}: {}", declaration.source, rejected.error);
        let Some(kept) = kept else { return Err(Rejected { error, ..rejected }) };
        let again = self.again(declaration, kept)?;
        // A command is tried again when its time comes, not at once: a prompt every two seconds helps nobody.
        Ok(Loaded { read: Instant::now(), stale: Some(error), rejected: rejected.value, ..again })
    }

    fn is_to_be_read(&self, kept: &Secret) -> bool {
        match &kept.declaration().source {
            Source::File(_) | Source::PodmanSecret(_) | Source::Credential(_) => true,
            Source::Variable(_) | Source::Account(_) | Source::Agent(_) => false,
            Source::Command(_) => self.ask_again || kept.is_outdated(Instant::now()),
        }
    }

    fn again(&self, declaration: &Declaration, kept: &Secret) -> Result<Loaded, Rejected> {
        let is_now = (declaration.ssh.is_some(), declaration.aws.is_some(), declaration.assertion.is_some());
        let loaded = kept.loaded();
        let app = |of: &Declaration| match &of.assertion {
            Some(Binding::GitHub { ids, .. }) => ids.clone(),
            _ => Vec::new(),
        };
        if is_now != (loaded.ssh.is_some(), loaded.aws.is_some(), loaded.assertion.is_some())
            || declaration.kind != kept.declaration().kind && declaration.assertion.is_some()
            || app(declaration) != app(kept.declaration())
        {
            return Err("its kind was changed, and its value cannot be read".to_owned().into());
        }
        if is_now != (false, false, false) {
            return Ok(kept.loaded().clone());
        }
        let Some(value) = &loaded.value else { return Ok(loaded.clone()) };
        let stand_in = self.shaped(declaration, value)?;
        Ok(Loaded { stand_in, ..loaded.clone() })
    }

    fn shaped(&self, of: &Declaration, value: &Arc<SecretValue>) -> Result<String, Rejected> {
        if of.postgres.is_some() {
            // A password has no shape that a client could ask for. Its length stays, for answers keep theirs.
            let length = value.expose().len();
            return Ok(stand_in::of_shape(self.key, &of.name, "", Alphabet::Base62, length));
        }
        stand_in::derive(self.key, &of.name, value, self.look(of))
            .map_err(|error| Rejected { error: error.to_string(), value: Some(Arc::clone(value)) })
    }

    fn look<'l>(&'l self, of: &'l Declaration) -> Look<'l> {
        Look {
            prefix: of.prefix.as_deref(),
            pattern: of.pattern.as_ref(),
            like: of.like.as_deref(),
            catalogue: self.catalogue,
        }
    }

    /// What was read, if it can be used. `all` are all declarations.
    pub(super) fn judge(
        &self,
        bytes: &Zeroizing<Vec<u8>>,
        declaration: &Declaration,
        all: &[Declaration],
    ) -> Result<Loaded, Rejected> {
        if declaration.ssh.is_some() {
            return self.ssh_key(bytes, declaration);
        }
        if declaration.aws.is_some() {
            return self.aws_key(bytes, declaration);
        }
        if let Some(binding) = &declaration.assertion {
            return self.assertion_key(bytes, declaration, binding);
        }
        let read = match declaration.postgres {
            Some(_) => SecretValue::from_bytes(bytes).map(|value| (value, None)),
            None => SecretValue::from_pasted(bytes),
        };
        let (value, scheme) = read.map_err(|error| error.to_string())?;
        let of = |other: &&Declaration| stand_in::is_of(self.key, &other.name, &value, self.look(other));
        if let Some(other) = all.iter().find(of) {
            return Err(format!(
                "the value is the stand-in of `{}` in this installation; put the real one there",
                other.name
            )
            .into());
        }
        let text = value.expose().as_bytes();
        if self.known.contains(text) || stand_in::mark::is_in(self.key, text) {
            return Err("the value is a stand-in of this installation; put the real one there"
                .to_owned()
                .into());
        }
        let value = Arc::new(value);
        let stand_in = self.shaped(declaration, &value)?;
        Ok(Loaded { scheme, ..Loaded::new(Some(value), stand_in) })
    }

    fn ssh_key(&self, bytes: &[u8], declaration: &Declaration) -> Result<Loaded, Rejected> {
        let (key, value) =
            SshKey::read(bytes, self.key, &declaration.name).map_err(|error| error.to_string())?;
        if self.known.contains(value.expose().as_bytes()) || value.is(key.stand_in_text().as_bytes()) {
            return Err("the key is a stand-in of this installation; put the real one there"
                .to_owned()
                .into());
        }
        let stand_in = key.stand_in_text().to_owned();
        Ok(Loaded { ssh: Some(Arc::new(key)), ..Loaded::new(Some(Arc::new(value)), stand_in) })
    }

    /// There is nothing to read: whether the agent is there, and has the key, shows when it is used.
    pub(super) fn agent_key(&self, declaration: &Declaration, held: &AgentKey) -> Result<Loaded, Rejected> {
        let key = SshKey::kept(held.clone(), self.key, &declaration.name);
        let key = key.map_err(|error| error.to_string())?;
        let stand_in = key.stand_in_text().to_owned();
        Ok(Loaded { ssh: Some(Arc::new(key)), ..Loaded::new(None, stand_in) })
    }

    fn assertion_key(
        &self,
        bytes: &[u8],
        declaration: &Declaration,
        binding: &Binding,
    ) -> Result<Loaded, Rejected> {
        let before = self.previous.and_then(|vault| vault.secret(&declaration.name));
        let before = before.and_then(Secret::assertion_key);
        let (key, value) = AssertionKey::read(bytes, binding, (self.key, &declaration.name), before)
            .map_err(|error| error.to_string())?;
        if self.known.contains(value.expose().as_bytes()) || value.is(key.stand_in_text().as_bytes()) {
            return Err("the key is a stand-in of this installation; put the real one there"
                .to_owned()
                .into());
        }
        let stand_in = key.stand_in_text().to_owned();
        Ok(Loaded { assertion: Some(Arc::new(key)), ..Loaded::new(Some(Arc::new(value)), stand_in) })
    }

    fn aws_key(&self, bytes: &[u8], declaration: &Declaration) -> Result<Loaded, Rejected> {
        let (key, value, stand_in) =
            AwsKey::read(bytes, self.key, &declaration.name).map_err(|error| error.to_string())?;
        let text = value.expose().as_bytes();
        if self.known.contains(text) || value.is(stand_in.as_bytes()) || stand_in::mark::is_in(self.key, text)
        {
            return Err("the key is a stand-in of this installation; put the real one there"
                .to_owned()
                .into());
        }
        Ok(Loaded { aws: Some(Arc::new(key)), ..Loaded::new(Some(Arc::new(value)), stand_in) })
    }
}
