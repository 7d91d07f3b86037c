//! Every secret of the installation. Real values live here and nowhere else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use understudy_harnesses::Filling;
use understudy_policies::document::closest;
use understudy_policies::{DocumentError, HostName, HostPattern};
use zeroize::Zeroizing;

use super::catalogue::{Catalogue, Kind};
use super::declaration::{self, Declaration};
use super::expiry::{Day, Notice};
use super::finder::Finder;
use super::holdings::HeldValue;
use super::installation_key::InstallationKey;
use super::known::KnownStandIns;
use super::loading::{Loaded, Loading, Rejected};
use super::scrub::Searches;
use super::secret::SecretValue;
use super::source::{Source, Surroundings};
use super::ssh::{HostKey, SshKey};
use super::stand_in;
use crate::accounts::Account;

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
    searches: Searches,
    catalogue: Arc<Catalogue>,
    /// By which it tells stand-ins of secrets that it does not have.
    key: Option<InstallationKey>,
}

/// A secret that can be granted.
#[derive(Debug)]
pub struct Secret {
    declaration: Declaration,
    loaded: Loaded,
    /// Stand-ins that it had when its value had another shape. Containers that were given one keep it.
    former: Vec<String>,
}

/// A declared secret that cannot be used. Its bindings hold all the same, and so does the search for its value.
#[derive(Debug)]
pub struct Unusable {
    declaration: Declaration,
    error: String,
    value: Option<Arc<SecretValue>>,
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
        let loaded: Vec<_> = declarations.iter().map(|d| load(d, &declarations)).collect();
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

    /// One line for each secret that cannot be used, or not as its declaration says, or that has expired.
    pub fn problems(&self, today: Day) -> Vec<String> {
        let unusable = self.unusable.iter().map(|u| line(&u.declaration, &u.error));
        let stale = self.secrets.iter().filter_map(|secret| {
            let error = secret.stale()?;
            Some(line(
                &secret.declaration,
                &format!("{error}; the value that was read before stays in force"),
            ))
        });
        let over = self.declarations().filter_map(|declaration| {
            let expiry = declaration.expires.filter(|expiry| expiry.notice(today) == Some(Notice::Over))?;
            let told = format!(
                "EXPIRED on {expiry}; it is still sent, so replace it at its provider, then `expires`"
            );
            Some(line(declaration, &told))
        });
        let ended =
            self.secrets.iter().filter_map(|secret| Some(line(&secret.declaration, &secret.login_needed()?)));
        unusable.chain(stale).chain(over).chain(ended).collect()
    }

    /// One line each for what works, and should be looked at.
    pub fn warnings(&self, today: Day) -> Vec<String> {
        let schemes = self.secrets.iter().filter_map(|secret| {
            let scheme = secret.scheme()?;
            let told = format!(
                "`{scheme} ` before the value was left out; take it out of {}",
                secret.declaration.source
            );
            Some(line(&secret.declaration, &told))
        });
        let soon = self.declarations().filter_map(|declaration| {
            let expiry = declaration.expires?;
            let Some(Notice::Soon(days)) = expiry.notice(today) else { return None };
            Some(line(declaration, &format!("expires on {expiry}, in {days} days")))
        });
        schemes.chain(soon).collect()
    }

    /// The name that a misspelt one was probably meant to be.
    pub fn suggestion(&self, name: &str) -> Option<&str> {
        closest(name, self.declarations().map(|declaration| declaration.name.as_str()))
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

    /// Whether [`Vault::retired_in`] can find anything.
    pub fn has_retired(&self) -> bool {
        !self.retired_names.is_empty()
    }

    /// Whether `text` is a stand-in, and nothing else.
    pub fn is_stand_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| secret.answers_to(text.as_bytes()))
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
        self.catalogue.token_endpoints(host, path).any(|(kind, _)| self.concerns(kind))
    }

    /// Whether a token endpoint of these is at `host`.
    pub fn has_token_endpoint(&self, host: &HostName) -> bool {
        let mut there = self.catalogue.accounts().filter(|(_, oauth)| oauth.token_endpoint.host == *host);
        there.any(|(kind, _)| self.concerns(kind))
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

    /// By which containers know the sidecar when it answers for an SSH server. None without an installation key.
    pub fn ssh_host_key(&self) -> Option<HostKey> {
        self.key.as_ref().map(HostKey::of)
    }

    pub(super) fn searches(&self) -> &Searches {
        &self.searches
    }

    /// With the names of their secrets: also of those that cannot be used, and those that were read and not taken over.
    pub(super) fn real_values(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        let live = self.secrets.iter().map(|secret| (secret.name(), secret.value()));
        let dead =
            self.unusable.iter().filter_map(|unusable| Some((unusable.name(), unusable.value.as_deref()?)));
        let rejected = self.secrets.iter();
        let rejected =
            rejected.filter_map(|secret| Some((secret.name(), secret.loaded.rejected.as_deref()?)));
        let earlier = self.secrets.iter();
        let earlier = earlier.filter_map(|secret| Some((secret.name(), secret.earlier()?)));
        let lines = self.secrets.iter().filter_map(|secret| Some((secret.name(), secret.ssh_key()?)));
        let lines = lines.flat_map(|(name, key)| key.lines().iter().map(move |line| (name, line)));
        live.chain(dead).chain(rejected).chain(earlier).chain(lines)
    }

    fn add(&mut self, declaration: Declaration, loaded: Loaded) {
        let same = |other: &SecretValue| other.is(loaded.value.expose().as_bytes());
        let twin = |name: &str| format!("has the same value as `{name}`; declare it once");
        if let Some(known) = self.unusable.iter().find(|known| known.value.as_deref().is_some_and(same)) {
            let error = twin(known.name());
            return self.unusable.push(Unusable { declaration, error, value: None });
        }
        if let Some(position) = self.secrets.iter().position(|known| same(&known.loaded.value)) {
            // Neither can be told from the other in a request, so neither may be used.
            let known = self.secrets.swap_remove(position);
            let (error, known_error) = (twin(known.name()), twin(&declaration.name));
            self.unusable.push(Unusable { declaration, error, value: None });
            let (declaration, value) = (known.declaration, Some(known.loaded.value));
            return self.unusable.push(Unusable { declaration, error: known_error, value });
        }
        self.secrets.push(Secret { declaration, loaded, former: Vec::new() });
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
            stand_ins.flat_map(|(number, secret)| secret.stand_ins().map(move |text| (number, text)));
        self.stand_ins = Finder::new(stand_ins)?;
        let (names, retired): (Vec<_>, Vec<_>) = known.without(&self.secrets).unzip();
        self.retired = Finder::new(retired.into_iter().enumerate())?;
        self.retired_names = names.into_iter().map(str::to_owned).collect();
        Ok(())
    }
}

fn line(declaration: &Declaration, what: &str) -> String {
    format!("secret `{}` ({}): {what}", declaration.name, declaration.place)
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

    pub(super) fn held(&self) -> HeldValue {
        HeldValue { value: Arc::clone(&self.loaded.value), stand_in: self.loaded.stand_in.clone() }
    }

    /// What an SSH key is.
    pub fn ssh_key(&self) -> Option<&SshKey> {
        self.loaded.ssh.as_deref()
    }

    /// What the value was before, and may still be good for.
    pub(super) fn earlier(&self) -> Option<&SecretValue> {
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

    pub(super) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    pub(super) fn scheme(&self) -> Option<&'static str> {
        self.loaded.scheme
    }

    /// Why the value is an earlier one, if it is.
    pub fn stale(&self) -> Option<&str> {
        self.loaded.stale.as_deref()
    }

    pub(super) fn is_outdated(&self, now: Instant) -> bool {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::fixture::{Values, declared, vault};
    use super::super::source::Surroundings;
    use super::*;

    fn problems(vault: &Vault) -> Vec<String> {
        vault.problems(Day::today())
    }

    /// Files of a directory as an installation has them.
    struct Files {
        directory: tempfile::TempDir,
        key: InstallationKey,
        known: KnownStandIns,
    }

    impl Files {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { directory, key: InstallationKey::from_bytes(&[1; 32]), known: KnownStandIns::default() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn value(&self, name: &str, value: &str) {
            fs::write(self.path(name), value).unwrap();
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn declare(&self, names: &[&str]) {
            let here = format!("\"{}/", self.directory.path().display());
            let text: String = names.iter().map(|name| declared(name, "")).collect();
            fs::write(self.path("secrets.toml"), text.replace("\"/run/secrets/", &here)).unwrap();
        }

        fn load(&mut self, previous: Option<&Vault>) -> Vault {
            let around = Surroundings {
                podman_secrets: "/none".into(),
                credentials: None,
                host_run: true,
                ..Surroundings::default()
            };
            let (key, known) = (&self.key, &self.known);
            let catalogue = &Arc::new(Catalogue::new([]).unwrap());
            let loading = Loading { catalogue, key, around: &around, known, previous, ask_again: false };
            let vault = Vault::load(&self.path("secrets.toml"), loading).unwrap();
            self.known = self.known.with(&vault);
            vault
        }
    }

    #[test]
    fn a_secret_that_cannot_be_read_does_not_stop_the_others() {
        let text = [declared("good", ""), declared("missing", ""), declared("short", "")].concat();
        let vault = vault(&text, &Values::from([("good", "sk-0123456789abcdefghij"), ("short", "abc")]));
        assert_eq!(vault.secrets().iter().map(Secret::name).collect::<Vec<_>>(), ["good"]);
        let problems = problems(&vault);
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].starts_with("secret `missing` (secrets.toml:") && problems[0].contains("no such")
        );
        assert!(problems[1].contains("`short`") && problems[1].contains("at least 16"), "{problems:?}");
        assert!(vault.secret("missing").is_none() && vault.secret("good").is_some());
        // What cannot be used still binds its host.
        assert_eq!(vault.bound_to(&"api.example.com".parse().unwrap()).count(), 3);
    }

    #[test]
    fn secrets_with_one_value_are_refused_and_the_value_is_still_searched_for() {
        let value = "sk-0123456789abcdefghij";
        let text = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
        let vault = vault(&text, &Values::from([("a", value), ("b", value), ("c", value)]));
        let usable: Vec<_> = vault.secrets().iter().map(Secret::name).collect();
        assert!(usable.is_empty(), "{usable:?}");
        assert!(vault.real_value_in(value.as_bytes()).is_some());
        assert_eq!(problems(&vault).len(), 3);
        assert!(problems(&vault).iter().all(|problem| problem.contains("same value")));
    }

    #[test]
    fn a_declared_prefix_that_does_not_fit_is_a_problem() {
        let text = declared("a", "prefix = \"other_\"\n");
        let vault = vault(&text, &Values::from([("a", "sk-0123456789abcdefghij")]));
        assert!(problems(&vault)[0].contains("does not start with"), "{:?}", problems(&vault));
        assert_eq!(vault.real_value_in(b"sk-0123456789abcdefghij"), Some("a"));
    }

    #[test]
    fn values_are_read_from_where_the_declaration_says() {
        let mut files = Files::new();
        assert!(files.load(None).secrets().is_empty());
        files.declare(&["a"]);
        assert!(problems(&files.load(None))[0].contains("No such file"));
        files.value("a", "Bearer sk-0123456789abcdefghij\n");
        let vault = files.load(None);
        assert_eq!(vault.secrets()[0].value().expose(), "sk-0123456789abcdefghij");
        let warnings = vault.warnings(Day::today());
        assert!(warnings.len() == 1 && warnings[0].contains("`Bearer ` before the value was left out"));
        assert!(!warnings[0].contains("0123456789"), "{warnings:?}");
        fs::write(files.path("secrets.toml"), "[a]\nkid = 1").unwrap();
        let around = Surroundings {
            podman_secrets: "/none".into(),
            credentials: None,
            host_run: true,
            ..Surroundings::default()
        };
        let (key, known) = (&files.key, &files.known);
        let catalogue = &Arc::new(Catalogue::new([]).unwrap());
        let loading = Loading { catalogue, key, around: &around, known, previous: None, ask_again: false };
        let error = Vault::load(&files.path("secrets.toml"), loading).unwrap_err().to_string();
        assert!(error.starts_with("secrets.toml:2:1: unknown key"), "{error}");
    }

    #[test]
    fn a_value_that_does_not_look_like_what_it_is_said_to_be_is_a_problem() {
        let text = declared("a", "like = \"github-pat\"\n");
        let vault = vault(&text, &Values::from([("a", "sk-0123456789abcdefghij")]));
        let problem = &problems(&vault)[0];
        assert!(problem.contains("does not look like GitHub") && problem.contains("expected prefix `ghp_`"));
        assert!(!problem.contains("0123456789"), "{problem}");
        assert_eq!(vault.real_value_in(b"sk-0123456789abcdefghij"), Some("a"));
    }

    #[test]
    fn a_stand_in_is_told_from_other_words_without_its_secret() {
        let first = vault(&declared("a", ""), &Values::from([("a", "sk-0123456789abcdefghij")]));
        let stand_in: &'static str = first.secrets()[0].stand_in().to_owned().leak();
        let second = vault(&declared("b", ""), &Values::from([("b", stand_in)]));
        assert!(problems(&second)[0].contains("is a stand-in of this installation"));
        assert!(second.is_marked(stand_in.as_bytes()) && !second.is_stand_in(stand_in));
        assert!(!second.is_marked(b"sk-0123456789abcdefghij"));
    }

    #[test]
    fn another_value_of_the_same_shape_has_the_same_stand_in() {
        let mut files = Files::new();
        files.declare(&["a"]);
        files.value("a", "sk-0123456789abcdefghij");
        let before = files.load(None);
        files.value("a", "sk-9876543210zyxwvutsrq");
        let after = files.load(Some(&before));
        assert_eq!(before.secrets()[0].stand_in(), after.secrets()[0].stand_in());
        assert_eq!(after.secrets()[0].value().expose(), "sk-9876543210zyxwvutsrq");
        assert!(after.real_value_in(b"sk-0123456789abcdefghij").is_none());
    }

    #[test]
    fn an_earlier_stand_in_is_still_one_of_its_secret() {
        let mut files = Files::new();
        files.declare(&["a"]);
        files.value("a", "sk-0123456789abcdefghij");
        let before = files.load(None);
        let old = before.secrets()[0].stand_in().to_owned();
        files.value("a", "other-ABCDEFGHIJKLMNOPQRSTUVWXYZ0123");
        // Also for a sidecar that starts anew.
        for previous in [Some(&before), None] {
            let after = files.load(previous);
            let secret = &after.secrets()[0];
            assert_ne!(secret.stand_in(), old);
            assert!(secret.answers_to(old.as_bytes()) && secret.answers_to(secret.stand_in().as_bytes()));
            assert_eq!(after.stand_ins_in(format!("x {old} y").as_bytes()).count(), 1);
            assert!(after.is_stand_in(&old) && !after.has_retired());
        }
    }

    #[test]
    fn the_stand_in_of_a_secret_that_is_gone_or_broken_is_still_known() {
        let mut files = Files::new();
        files.declare(&["a", "b"]);
        files.value("a", "sk-0123456789abcdefghij");
        files.value("b", "sk-9876543210zyxwvutsrq");
        let before = files.load(None);
        let [a, b] = [0, 1].map(|number| before.secrets()[number].stand_in().to_owned());
        files.declare(&["b"]);
        fs::remove_file(files.path("b")).unwrap();
        let after = files.load(None);
        assert_eq!(after.retired_in(a.as_bytes()), Some("a"));
        assert_eq!(after.retired_in(format!("Bearer {b}").as_bytes()), Some("b"));
        assert!(after.retired_in(b"sk-0123456789abcdefghij").is_none());
    }

    #[test]
    fn a_value_that_cannot_be_read_any_more_stays_what_it_was() {
        let mut files = Files::new();
        files.declare(&["a"]);
        files.value("a", "sk-0123456789abcdefghij");
        let mut vault = files.load(None);
        let stand_in = vault.secrets()[0].stand_in().to_owned();
        for bad in
            [Some(""), Some("sk-0123"), Some("sk-0123456789\nabcdefghij"), Some(stand_in.as_str()), None]
        {
            match bad {
                Some(text) => files.value("a", text),
                None => fs::remove_file(files.path("a")).unwrap(),
            }
            vault = files.load(Some(&vault));
            assert_eq!(vault.secrets()[0].value().expose(), "sk-0123456789abcdefghij");
            let problems = problems(&vault);
            assert!(problems.len() == 1 && problems[0].contains("stays in force"), "{problems:?}");
            assert!(problems[0].contains(files.path("a").to_str().unwrap()), "{problems:?}");
        }
        files.value("a", "sk-9876543210zyxwvutsrq");
        let repaired = files.load(Some(&vault));
        assert_eq!(repaired.secrets()[0].value().expose(), "sk-9876543210zyxwvutsrq");
        assert!(problems(&repaired).is_empty());
    }

    #[test]
    fn a_value_that_cannot_be_used_is_searched_for_beside_the_one_that_is() {
        let mut files = Files::new();
        files.declare(&["a"]);
        let text = fs::read_to_string(files.path("secrets.toml")).unwrap() + "prefix = \"sk-\"\n";
        fs::write(files.path("secrets.toml"), text).unwrap();
        files.value("a", "sk-0123456789abcdefghij");
        let before = files.load(None);
        files.value("a", "other_9876543210zyxwvutsrq");
        let after = files.load(Some(&before));
        for value in ["sk-0123456789abcdefghij", "other_9876543210zyxwvutsrq"] {
            assert_eq!(after.real_value_in(value.as_bytes()), Some("a"));
        }
        assert!(after.secret("a").is_some());
    }

    #[test]
    fn a_value_of_another_source_is_not_kept() {
        let mut files = Files::new();
        files.declare(&["a"]);
        files.value("a", "sk-0123456789abcdefghij");
        let before = files.load(None);
        let text = fs::read_to_string(files.path("secrets.toml")).unwrap();
        fs::write(files.path("secrets.toml"), text.replace("/a\"", "/elsewhere\"")).unwrap();
        assert!(files.load(Some(&before)).secrets().is_empty());
    }

    #[test]
    fn a_stand_in_is_not_a_value() {
        let mut files = Files::new();
        files.declare(&["a", "b"]);
        files.value("a", "sk-0123456789abcdefghij");
        files.value("b", "sk-9876543210zyxwvutsrq");
        let vault = files.load(None);
        let [a, _] = [0, 1].map(|number| vault.secrets()[number].stand_in().to_owned());
        files.known = KnownStandIns::default();
        for name in ["a", "b"] {
            files.value(name, &a);
            let vault = files.load(None);
            let problems = problems(&vault);
            assert!(problems[0].contains("is the stand-in of `a` in this installation"), "{problems:?}");
            assert!(!problems[0].contains(&a), "{problems:?}");
            files.value("a", "sk-0123456789abcdefghij");
        }
    }

    #[test]
    fn a_command_is_asked_again_when_its_cache_is_over_or_the_operator_says() {
        let directory = tempfile::tempdir().unwrap();
        let count = directory.path().join("count");
        let script = format!("echo >> {0} && echo sk-0123456789abcdefghi$(wc -l < {0})", count.display());
        let declare = |more: &str| {
            let text = declared("a", more)
                .replace("file = \"/run/secrets/a\"", &format!("command = [\"sh\", \"-c\", '{script}']"));
            fs::write(directory.path().join("secrets.toml"), text).unwrap();
        };
        let around = Surroundings {
            podman_secrets: "/none".into(),
            credentials: None,
            host_run: true,
            ..Surroundings::default()
        };
        let (key, known) = (InstallationKey::from_bytes(&[1; 32]), KnownStandIns::default());
        let load = |previous: Option<&Vault>, ask_again| {
            let catalogue = &Arc::new(Catalogue::new([]).unwrap());
            let loading =
                Loading { catalogue, key: &key, around: &around, known: &known, previous, ask_again };
            Vault::load(&directory.path().join("secrets.toml"), loading).unwrap()
        };
        let last = |vault: &Vault| vault.secrets()[0].value().expose().chars().last().unwrap();
        declare("");
        let vault = load(None, false);
        assert_eq!((last(&vault), vault.is_outdated(Instant::now())), ('1', false), "{:?}", problems(&vault));
        let vault = load(Some(&vault), false);
        assert_eq!(last(&vault), '1');
        let vault = load(Some(&vault), true);
        assert_eq!(last(&vault), '2');
        declare("cache = 1\n");
        let vault = load(Some(&vault), false);
        assert_eq!(last(&vault), '3');
        std::thread::sleep(std::time::Duration::from_millis(1010));
        assert!(vault.is_outdated(Instant::now()));
        let vault = load(Some(&vault), false);
        assert_eq!(last(&vault), '4');
        fs::remove_file(&count).unwrap();
        fs::create_dir(&count).unwrap();
        let vault = load(Some(&vault), true);
        assert_eq!(last(&vault), '4');
        assert!(problems(&vault)[0].contains("stays in force") && !vault.is_outdated(Instant::now()));
    }

    #[test]
    fn an_expiry_is_told_ahead_and_when_it_is_over() {
        let text = [declared("over", "expires = 2020-01-31\n"), declared("later", "expires = 9000-01-31\n")]
            .concat();
        let vault = vault(
            &text,
            &Values::from([("over", "sk-0123456789abcdefghij"), ("later", "sk-9876543210zyxwvutsrq")]),
        );
        let told = problems(&vault);
        assert!(told.len() == 1 && told[0].contains("`over`") && told[0].contains("EXPIRED on 2020-01-31"));
        assert!(vault.warnings(Day::today()).is_empty());
        // It works all the same.
        assert!(vault.secret("over").is_some());
    }

    #[test]
    fn no_value_is_ever_printed() {
        let value = "sk-0123456789abcdefghij";
        let text = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
        let vault =
            vault(&text, &Values::from([("a", value), ("b", value), ("c", "zz-9876543210zyxwvutsrq")]));
        let shown = format!("{vault:?}{vault:#?}{:?}", problems(&vault));
        assert!(!shown.contains("0123456789abc") && !shown.contains("9876543210zyx"), "{shown}");
    }
}
