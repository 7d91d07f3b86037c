//! Every secret of the installation. Real values live here and nowhere else.

use std::io::Read;
use std::path::{Path, PathBuf};

use understudy_policies::document::closest;
use understudy_policies::{DocumentError, HostName};
use zeroize::Zeroizing;

use super::declaration::{self, Declaration};
use super::finder::Finder;
use super::installation_key::InstallationKey;
use super::secret::{MAX_LENGTH, SecretValue};
use super::stand_in;

#[derive(Debug, Default)]
pub struct Vault {
    secrets: Vec<Secret>,
    unusable: Vec<Unusable>,
    /// Numbers are those of `real_names`.
    real: Finder,
    real_names: Vec<String>,
    /// Numbers are those of `secrets`.
    stand_ins: Finder,
}

/// A secret that can be granted.
#[derive(Debug)]
pub struct Secret {
    declaration: Declaration,
    value: SecretValue,
    stand_in: String,
}

/// A declared secret that cannot be used. Its bindings hold all the same, and so does the search for its value.
#[derive(Debug)]
pub struct Unusable {
    declaration: Declaration,
    error: String,
    value: Option<SecretValue>,
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
    pub fn load(file: &Path, key: &InstallationKey) -> Result<Self, VaultError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(VaultError::Io { path: file.to_owned(), source }),
        };
        let shown = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self::new(declaration::parse(&shown, &text)?, key, read)
    }

    /// With another way to read the files that hold the values.
    pub fn new(
        declarations: Vec<Declaration>,
        key: &InstallationKey,
        read: impl Fn(&Path) -> Result<Zeroizing<Vec<u8>>, String>,
    ) -> Result<Self, VaultError> {
        let mut vault = Self::default();
        for declaration in declarations {
            let value = read(&declaration.file)
                .and_then(|bytes| SecretValue::from_bytes(&bytes).map_err(|error| error.to_string()))
                .map_err(|error| format!("{}: {error}", declaration.file.display()));
            match value {
                Ok(value) => vault.add(declaration, value, key),
                Err(error) => vault.unusable.push(Unusable { declaration, error, value: None }),
            }
        }
        vault.index()?;
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

    /// Also of secrets that cannot be used.
    pub fn declarations(&self) -> impl Iterator<Item = &Declaration> {
        let secrets = self.secrets.iter().map(Secret::declaration);
        secrets.chain(self.unusable.iter().map(Unusable::declaration))
    }

    /// One line for each secret that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let line = |u: &Unusable| format!("secret `{}` ({}): {}", u.name(), u.declaration.place, u.error);
        self.unusable.iter().map(line).collect()
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

    /// Whether `text` is a stand-in, and nothing else.
    pub fn is_stand_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| secret.stand_in == text)
    }

    /// Every declaration with that host among its own, also of secrets that cannot be used.
    pub fn bound_to<'v>(&'v self, host: &'v HostName) -> impl Iterator<Item = &'v Declaration> {
        self.declarations().filter(|declaration| declaration.is_bound_to(host))
    }

    fn add(&mut self, declaration: Declaration, value: SecretValue, key: &InstallationKey) {
        let same = |other: &SecretValue| other.is(value.expose().as_bytes());
        let twin = |name: &str| format!("has the same value as `{name}`; declare it once");
        if let Some(known) = self.unusable.iter().find(|known| known.value.as_ref().is_some_and(same)) {
            let error = twin(known.name());
            return self.unusable.push(Unusable { declaration, error, value: None });
        }
        if let Some(position) = self.secrets.iter().position(|known| same(&known.value)) {
            // Neither can be told from the other in a request, so neither may be used.
            let known = self.secrets.swap_remove(position);
            let (error, known_error) = (twin(known.name()), twin(&declaration.name));
            self.unusable.push(Unusable { declaration, error, value: None });
            let (declaration, value) = (known.declaration, Some(known.value));
            return self.unusable.push(Unusable { declaration, error: known_error, value });
        }
        match stand_in::derive(key, &declaration.name, &value, declaration.prefix.as_deref()) {
            Ok(stand_in) => self.secrets.push(Secret { declaration, value, stand_in }),
            Err(error) => {
                self.unusable.push(Unusable { declaration, error: error.to_string(), value: Some(value) });
            }
        }
    }

    fn index(&mut self) -> Result<(), VaultError> {
        self.secrets.sort_by(|a, b| a.name().cmp(b.name()));
        let live = self.secrets.iter().map(|secret| (secret.name(), &secret.value));
        let dead =
            self.unusable.iter().filter_map(|unusable| Some((unusable.name(), unusable.value.as_ref()?)));
        let (names, values): (Vec<_>, Vec<_>) = live.chain(dead).unzip();
        self.real = Finder::new(values.into_iter().map(SecretValue::expose).enumerate())?;
        self.real_names = names.into_iter().map(str::to_owned).collect();
        self.stand_ins = Finder::new(self.secrets.iter().map(|secret| secret.stand_in.as_str()).enumerate())?;
        Ok(())
    }
}

impl Secret {
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub fn stand_in(&self) -> &str {
        &self.stand_in
    }

    pub(in crate::credentials) fn value(&self) -> &SecretValue {
        &self.value
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

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    // A FIFO would hang the start for ever.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let limit = MAX_LENGTH + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    file.take(limit as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Values, declared, vault};
    use super::*;

    #[test]
    fn a_secret_that_cannot_be_read_does_not_stop_the_others() {
        let text = [declared("good", ""), declared("missing", ""), declared("short", "")].concat();
        let vault = vault(&text, &Values::from([("good", "sk-0123456789abcdefghij"), ("short", "abc")]));
        assert_eq!(vault.secrets().iter().map(Secret::name).collect::<Vec<_>>(), ["good"]);
        let problems = vault.problems();
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
        assert_eq!(vault.problems().len(), 3);
        assert!(vault.problems().iter().all(|problem| problem.contains("same value")));
    }

    #[test]
    fn a_declared_prefix_that_does_not_fit_is_a_problem() {
        let text = declared("a", "prefix = \"other_\"\n");
        let vault = vault(&text, &Values::from([("a", "sk-0123456789abcdefghij")]));
        assert!(vault.problems()[0].contains("does not start with"), "{:?}", vault.problems());
        assert_eq!(vault.real_value_in(b"sk-0123456789abcdefghij"), Some("a"));
    }

    #[test]
    fn files_are_read_and_only_regular_ones() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.toml");
        let key = InstallationKey::from_bytes(&[1; 32]);
        assert!(Vault::load(&file, &key).unwrap().secrets().is_empty());
        let value = directory.path().join("value");
        std::fs::write(&value, "sk-0123456789abcdefghij\n").unwrap();
        let at = |path: &Path| declared("a", "").replace("/run/secrets/a", path.to_str().unwrap());
        std::fs::write(&file, at(&value)).unwrap();
        assert_eq!(
            Vault::load(&file, &key).unwrap().secrets()[0].value().expose(),
            "sk-0123456789abcdefghij"
        );
        for other in [directory.path(), Path::new("/dev/null")] {
            std::fs::write(&file, at(other)).unwrap();
            assert!(Vault::load(&file, &key).unwrap().problems()[0].contains("not a regular file"));
        }
        std::fs::write(&file, "[a]\nkid = 1").unwrap();
        assert!(
            Vault::load(&file, &key).unwrap_err().to_string().starts_with("secrets.toml:2:1: unknown key")
        );
    }

    #[test]
    fn no_value_is_ever_printed() {
        let value = "sk-0123456789abcdefghij";
        let text = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
        let vault =
            vault(&text, &Values::from([("a", value), ("b", value), ("c", "zz-9876543210zyxwvutsrq")]));
        let shown = format!("{vault:?}{vault:#?}{:?}", vault.problems());
        assert!(!shown.contains("0123456789abc") && !shown.contains("9876543210zyx"), "{shown}");
    }
}
