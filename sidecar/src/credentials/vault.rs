//! Every secret of the installation. Real values live here and nowhere else.

mod entry;
mod told;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use understudy_policies::{DocumentError, HostName, HostPattern};
use zeroize::Zeroizing;

use super::assertions;
use super::catalogue::{Catalogue, Kind};
use super::declaration::{self, Declaration};
use super::finder::Finder;
use super::installation_key::InstallationKey;
use super::known::KnownStandIns;
use super::loading::{Loaded, Loading, Rejected};
use super::scrub::Searches;
use super::secret::SecretValue;
use super::source::{Source, Surroundings};
use super::ssh::HostKey;
use super::stand_in;
use crate::accounts::Account;

pub use entry::{Secret, Unusable};

#[derive(Debug, Default)]
pub struct Vault {
    secrets: Vec<Secret>,
    unusable: Vec<Unusable>,
    /// Numbers are those of `real_names`.
    real: Finder,
    real_names: Vec<String>,
    /// Numbers are those of `secrets`.
    stand_ins: Finder,
    /// Numbers are those of `retired_names`.
    retired: Finder,
    retired_names: Vec<String>,
    /// In the same order.
    retired_stand_ins: Vec<String>,
    searches: Searches,
    catalogue: Arc<Catalogue>,
    /// By which it tells stand-ins of secrets that it does not have.
    key: Option<InstallationKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("too many or too large secrets to search requests for: {0}")]
    Finder(#[from] aho_corasick::BuildError),
}

impl Vault {
    /// Reads the declarations in `file` (none if there is no such file) and the values that they name. A value that
    /// cannot be read is a problem of that secret alone.
    pub fn load(file: &Path, loading: Loading<'_>) -> Result<Self, VaultError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(VaultError::Io { path: file.to_owned(), source }),
        };
        let shown = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let declarations = declaration::parse(&shown, &text, loading.catalogue)?;
        Self::build(declarations, loading, |declaration, all| loading.load(declaration, all))
    }

    /// The same as `before` in all but accounts, which are read again: nothing else is looked at, so that a mistake in
    /// another file cannot keep new tokens from being used.
    pub fn with_accounts(before: &Self, loading: Loading<'_>) -> Result<Self, VaultError> {
        let declarations = before.declarations().cloned().collect();
        Self::build(declarations, loading, |declaration, _| match &declaration.source {
            Source::Account(_) => loading.load(declaration, &[]),
            _ => before.as_it_is(declaration),
        })
    }

    fn as_it_is(&self, declaration: &Declaration) -> Result<Vec<(Declaration, Loaded)>, Rejected> {
        match self.secret(&declaration.name) {
            Some(secret) => Ok(vec![(declaration.clone(), secret.loaded.clone())]),
            None => {
                let unusable = self.unusable.iter().find(|unusable| unusable.name() == declaration.name);
                let error = unusable.map_or_else(String::new, |unusable| unusable.error.clone());
                Err(Rejected { error, value: unusable.and_then(|unusable| unusable.value.clone()) })
            }
        }
    }

    /// With another way to read values.
    pub fn new(
        declarations: Vec<Declaration>,
        catalogue: Arc<Catalogue>,
        key: &InstallationKey,
        read: impl Fn(&Source) -> Result<Zeroizing<Vec<u8>>, String>,
    ) -> Result<Self, VaultError> {
        let (known, around) = (KnownStandIns::default(), Surroundings::default());
        let loading = Loading {
            catalogue: &catalogue,
            key,
            around: &around,
            known: &known,
            previous: None,
            ask_again: true,
        };
        Self::build(declarations, loading, |declaration, all| {
            let found = read(&declaration.source).map_err(Rejected::from);
            let loaded = found.and_then(|bytes| loading.judge(&bytes, declaration, all));
            loaded.map(|loaded| vec![(declaration.clone(), loaded)]).map_err(|rejected| {
                let error = format!("{}: {}", declaration.source, rejected.error);
                Rejected { error, ..rejected }
            })
        })
    }

    fn build(
        declarations: Vec<Declaration>,
        loading: Loading<'_>,
        load: impl Fn(&Declaration, &[Declaration]) -> Result<Vec<(Declaration, Loaded)>, Rejected>,
    ) -> Result<Self, VaultError> {
        let load = |declaration: &Declaration| match &declaration.source {
            Source::Agent(held) => Ok(vec![(declaration.clone(), loading.agent_key(declaration, held)?)]),
            _ => load(declaration, &declarations),
        };
        let loaded: Vec<_> = declarations.iter().map(load).collect();
        let (catalogue, key) = (Arc::clone(loading.catalogue), Some(loading.key.clone()));
        let mut vault = Self { catalogue, key, ..Self::default() };
        for (declaration, loaded) in declarations.into_iter().zip(loaded) {
            match loaded {
                Ok(loaded) => loaded.into_iter().for_each(|(part, loaded)| vault.add(part, loaded)),
                Err(Rejected { error, value }) => vault.unusable.push(Unusable { declaration, error, value }),
            }
        }
        vault.index(loading.known)?;
        Ok(vault)
    }

    /// None if it is not declared or cannot be used.
    pub fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.iter().find(|secret| secret.name() == name)
    }

    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    pub fn unusable(&self) -> &[Unusable] {
        &self.unusable
    }

    /// Of each secret, those that cannot be used among them.
    pub fn declarations(&self) -> impl Iterator<Item = &Declaration> {
        self.all_declarations().filter(|declaration| !declaration.is_part())
    }

    /// Also of the tokens of accounts.
    fn all_declarations(&self) -> impl Iterator<Item = &Declaration> {
        let secrets = self.secrets.iter().map(Secret::declaration);
        secrets.chain(self.unusable.iter().map(Unusable::declaration))
    }

    /// The name of a secret whose real value is in `text`, in whatever form [`Finder`] knows.
    pub fn real_value_in(&self, text: &[u8]) -> Option<&str> {
        let number = self.real.find(text).first().copied()?;
        self.real_names.get(number).map(String::as_str)
    }

    /// The secrets whose stand-ins are in `text`.
    pub fn stand_ins_in(&self, text: &[u8]) -> impl Iterator<Item = &Secret> {
        self.stand_ins.find(text).into_iter().filter_map(|number| self.secrets.get(number))
    }

    /// The name of a secret of which a stand-in is in `text`, and which cannot be used any more or is gone.
    pub fn retired_in(&self, text: &[u8]) -> Option<&str> {
        let number = self.retired.find(text).first().copied()?;
        self.retired_names.get(number).map(String::as_str)
    }

    /// Of secrets that cannot be used any more or are gone: a home that is kept may hold one.
    pub(super) fn retired_stand_ins(&self) -> &[String] {
        &self.retired_stand_ins
    }

    /// Whether [`Vault::retired_in`] can find anything.
    pub fn has_retired(&self) -> bool {
        !self.retired_names.is_empty()
    }

    /// Whether `text` is a stand-in, and nothing else.
    pub fn is_stand_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| secret.all_known().any(|known| known == text))
    }

    /// Whether a stand-in of this installation is in `text`, also of a secret that is gone or has another name now.
    pub fn is_marked(&self, text: &[u8]) -> bool {
        self.key.as_ref().is_some_and(|key| stand_in::mark::is_in(key, text))
    }

    pub(crate) fn key(&self) -> Option<&InstallationKey> {
        self.key.as_ref()
    }

    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Every account that can be used, with what was declared for it.
    pub fn accounts(&self) -> impl Iterator<Item = (&Secret, &Arc<Account>)> {
        self.secrets.iter().filter_map(|secret| Some((secret, secret.loaded.account.as_ref()?)))
    }

    /// Whether a server could take this path for a token endpoint: of a kind of account that is declared, or that is for a
    /// host of some secret.
    pub fn is_token_endpoint(&self, host: &HostName, path: &str) -> bool {
        let tokens = self.catalogue.token_endpoints(host, path).map(|(kind, _)| kind);
        let mut all = tokens.chain(self.catalogue.key_logins(host, path).map(|(kind, _)| kind));
        all.any(|kind| self.concerns(kind))
    }

    /// Whether a token endpoint is at `host`: of these, or any that is known.
    pub fn has_token_endpoint(&self, host: &HostName, any: bool) -> bool {
        let tokens = self.catalogue.accounts().map(|(kind, oauth)| (kind, &oauth.token_endpoint));
        let keys = self.catalogue.all_key_logins().map(|(kind, login)| (kind, &login.endpoint));
        let mut there = tokens.chain(keys).filter(|(_, endpoint)| endpoint.host == *host);
        there.any(|(kind, _)| any || self.concerns(kind)) || assertions::is_at(self, host)
    }

    fn concerns(&self, kind: &Kind) -> bool {
        let declared = self.declarations().any(|d| d.like.as_ref().is_some_and(|l| l.name == kind.name));
        let exact = kind.hosts.iter().filter_map(|pattern| match pattern {
            HostPattern::Exact(host) => Some(host),
            _ => None,
        });
        declared || exact.into_iter().any(|host| self.bound_to(host).next().is_some())
    }

    /// Whether a command is to be asked again for its value.
    pub fn is_outdated(&self, now: Instant) -> bool {
        self.secrets.iter().any(|secret| secret.is_outdated(now))
    }

    /// Every declaration with that host among its own, also of secrets that cannot be used.
    pub fn bound_to<'v>(&'v self, host: &'v HostName) -> impl Iterator<Item = &'v Declaration> {
        self.all_declarations().filter(|declaration| declaration.is_bound_to(host))
    }

    /// Every SSH key that is for this host and port, also those that cannot be used.
    pub fn ssh_keys_at(&self, host: &HostName, port: u16) -> impl Iterator<Item = &Declaration> {
        let is_for = move |d: &&Declaration| d.ssh.as_ref().is_some_and(|server| server.is_at(host, port));
        self.declarations().filter(is_for)
    }

    /// Every password that is for this PostgreSQL server, also those that cannot be used.
    pub fn postgres_at(&self, host: &HostName, port: u16) -> impl Iterator<Item = &Declaration> {
        let is_for =
            move |d: &&Declaration| d.postgres.as_ref().is_some_and(|server| server.is_at(host, port));
        self.declarations().filter(is_for)
    }

    /// What containers are to salt a password with: the same after every restart.
    pub fn scram_salt(&self) -> Option<[u8; 16]> {
        let made = ring::hmac::sign(self.key.as_ref()?.hmac(), b"understudy postgres salt 1\0");
        made.as_ref().first_chunk().copied()
    }

    /// By which containers know the sidecar when it answers for an SSH server. None without an installation key.
    pub fn ssh_host_key(&self) -> Option<HostKey> {
        self.key.as_ref().map(HostKey::of)
    }

    pub(super) fn searches(&self) -> &Searches {
        &self.searches
    }

    /// With the names of their secrets: also of those that cannot be used, and those that were read and not taken over.
    pub(super) fn real_values(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        let live = self.secrets.iter().filter_map(|secret| Some((secret.name(), secret.value()?)));
        let dead =
            self.unusable.iter().filter_map(|unusable| Some((unusable.name(), unusable.value.as_deref()?)));
        let rejected = self.secrets.iter();
        let rejected =
            rejected.filter_map(|secret| Some((secret.name(), secret.loaded.rejected.as_deref()?)));
        let earlier = self.secrets.iter();
        let earlier = earlier.filter_map(|secret| Some((secret.name(), secret.earlier()?)));
        let lines = self.secrets.iter().filter_map(|secret| Some((secret.name(), secret.ssh_key()?)));
        let lines = lines.flat_map(|(name, key)| key.lines().iter().map(move |line| (name, line)));
        let tokens = self.secrets.iter().filter_map(|secret| Some((secret.name(), secret.assertion_key()?)));
        let tokens = tokens.flat_map(|(name, key)| key.lines().iter().map(move |line| (name, line)));
        let lines = lines.chain(tokens);
        let parts = self.secrets.iter();
        let parts = parts.flat_map(|secret| secret.parts().map(move |(value, _)| (secret.name(), value)));
        live.chain(dead).chain(rejected).chain(earlier).chain(lines).chain(parts)
    }

    fn add(&mut self, declaration: Declaration, loaded: Loaded) {
        let own = loaded.value.clone();
        let same = |other: &SecretValue| own.as_ref().is_some_and(|own| other.is(own.expose().as_bytes()));
        let twin = |name: &str| format!("has the same value as `{name}`; declare it once");
        if let Some(known) = self.unusable.iter().find(|known| known.value.as_deref().is_some_and(same)) {
            let error = twin(known.name());
            return self.unusable.push(Unusable { declaration, error, value: None });
        }
        if let Some(position) = self.secrets.iter().position(|known| known.value().is_some_and(same)) {
            // Neither can be told from the other in a request, so neither may be used.
            let known = self.secrets.swap_remove(position);
            let (error, known_error) = (twin(known.name()), twin(&declaration.name));
            self.unusable.push(Unusable { declaration, error, value: None });
            let (declaration, value) = (known.declaration, known.loaded.value);
            return self.unusable.push(Unusable { declaration, error: known_error, value });
        }
        self.secrets.push(Secret::new(declaration, loaded));
    }

    fn index(&mut self, known: &KnownStandIns) -> Result<(), VaultError> {
        self.secrets.sort_by(|a, b| a.name().cmp(b.name()));
        for secret in &mut self.secrets {
            secret.former = known.former(secret).cloned().collect();
        }
        let names = self.real_values().map(|(name, _)| name.to_owned()).collect();
        self.real = Finder::new(self.real_values().map(|(_, value)| value.expose()).enumerate())?;
        self.real_names = names;
        let stand_ins = self.secrets.iter().enumerate();
        let stand_ins =
            stand_ins.flat_map(|(number, secret)| secret.all_known().map(move |text| (number, text)));
        self.stand_ins = Finder::new(stand_ins)?;
        let (names, retired): (Vec<_>, Vec<_>) = known.without(&self.secrets).unzip();
        self.retired_stand_ins = retired.iter().map(|&stand_in| stand_in.to_owned()).collect();
        self.retired = Finder::new(retired.into_iter().enumerate())?;
        self.retired_names = names.into_iter().map(str::to_owned).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
