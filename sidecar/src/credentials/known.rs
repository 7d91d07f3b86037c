//! Which stand-ins there ever were, by the name of their secret. A value of another shape gets another stand-in, and a
//! secret can go; containers that run keep what they were given, and it must be told from a foreign credential. It is
//! in the state volume, so that a new sidecar knows it, too. Nothing in it is secret.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::secret::MIN_LENGTH;
use super::vault::{Secret, Vault};

/// Of one secret; older ones are forgotten.
const MOST: usize = 8;

/// The newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownStandIns(BTreeMap<String, Vec<String>>);

#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path}: {source}; delete it (containers that hold a stand-in of an earlier shape must then be started again)"
    )]
    Json { path: PathBuf, source: serde_json::Error },
}

impl KnownStandIns {
    pub fn load(path: &Path) -> Result<Self, KnownError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(KnownError::Io { path: path.to_owned(), source }),
        };
        let mut known: Self = serde_json::from_slice(&text)
            .map_err(|source| KnownError::Json { path: path.to_owned(), source })?;
        // What is shorter would be found by accident in harmless requests.
        known.0.values_mut().for_each(|all| all.retain(|stand_in| stand_in.len() >= MIN_LENGTH));
        Ok(known)
    }

    /// Whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), KnownError> {
        let io = |source| KnownError::Io { path: path.to_owned(), source };
        let json = |source| KnownError::Json { path: path.to_owned(), source };
        let new = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(io)?;
        file.write_all(&serde_json::to_vec(self).map_err(json)?).map_err(io)?;
        file.sync_all().map_err(io)?;
        fs::rename(&new, path).map_err(io)
    }

    /// With those of `vault` at the front.
    #[must_use]
    pub fn with(&self, vault: &Vault) -> Self {
        let mut known = self.clone();
        for secret in vault.secrets() {
            let all = known.0.entry(secret.name().to_owned()).or_default();
            all.retain(|stand_in| stand_in != secret.stand_in());
            all.insert(0, secret.stand_in().to_owned());
            all.truncate(MOST);
        }
        known
    }

    pub(super) fn contains(&self, text: &[u8]) -> bool {
        self.0.values().flatten().any(|stand_in| stand_in.as_bytes() == text)
    }

    /// Those that `secret` had before.
    pub(super) fn former<'k>(&'k self, secret: &Secret) -> impl Iterator<Item = &'k String> {
        let (name, own) = (secret.name().to_owned(), secret.stand_in().to_owned());
        let all = self.0.get(&name).into_iter().flatten();
        all.filter(move |stand_in| **stand_in != own)
    }

    /// Names and stand-ins of secrets that cannot be used any more, or that are gone.
    pub(super) fn without<'k>(&'k self, usable: &[Secret]) -> impl Iterator<Item = (&'k str, &'k str)> {
        let usable: Vec<String> = usable.iter().map(|secret| secret.name().to_owned()).collect();
        let gone = self.0.iter().filter(move |(name, _)| !usable.contains(name));
        gone.flat_map(|(name, all)| all.iter().map(move |stand_in| (name.as_str(), stand_in.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Values, declared, vault};
    use super::*;

    #[test]
    fn it_outlives_the_process_and_forgets_the_oldest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stand-ins.json");
        let mut known = KnownStandIns::load(&path).unwrap();
        assert_eq!(known, KnownStandIns::default());
        for length in 16..30 {
            let value: &'static str = "abcdefghijklmnopqrstuvwxyz0123456789".get(..length).unwrap();
            known = known.with(&vault(&declared("a", ""), &Values::from([("a", value)])));
        }
        known.save(&path).unwrap();
        let known = KnownStandIns::load(&path).unwrap();
        let lengths: Vec<usize> = known.0["a"].iter().map(String::len).collect();
        assert_eq!(lengths, [29, 28, 27, 26, 25, 24, 23, 22]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let again =
            known.with(&vault(&declared("a", ""), &Values::from([("a", "abcdefghijklmnopqrstuvwx")])));
        assert_eq!((again.0["a"][0].len(), again.0["a"].len()), (24, 8));
    }

    #[test]
    fn a_broken_file_is_named_and_short_words_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stand-ins.json");
        fs::write(&path, "{").unwrap();
        assert!(KnownStandIns::load(&path).unwrap_err().to_string().contains("delete it"));
        fs::write(&path, r#"{"a": ["the", "0123456789abcdef"]}"#).unwrap();
        assert_eq!(KnownStandIns::load(&path).unwrap().0["a"], ["0123456789abcdef"]);
    }
}
