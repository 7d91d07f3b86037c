//! Which state a sidecar had last, written on the host beside its control socket. The state volume alone cannot tell that it
//! was lost, or put back from a backup, and then knows nothing of what was revoked or denied since.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ContainerId;

/// Its file's name: in the state volume, in the control directory, and in the hook's own state directory.
pub const FILE: &str = "generation.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// Drawn when the state volume was new.
    pub installation: String,
    /// Counts changes of what the operator decided.
    pub number: u64,
    /// Every container that was revoked.
    pub revoked: BTreeSet<ContainerId>,
}

impl Generation {
    /// None if there is no such file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whole or not at all, and on disk when this returns.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension(format!("new.{}", std::process::id()));
        let put = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
        };
        put().inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Whether `self` knows nothing of something that `other` does.
    pub fn lacks(&self, other: &Self) -> bool {
        self.installation != other.installation
            || self.number < other.number
            || !self.revoked.is_superset(&other.revoked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(installation: &str, number: u64, revoked: &[&str]) -> Generation {
        let revoked = revoked.iter().map(|digit| digit.repeat(64).parse().unwrap()).collect();
        Generation { installation: installation.to_owned(), number, revoked }
    }

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is_taken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        assert_eq!(Generation::read(&path).unwrap(), None);
        let written = generation("i", 3, &["a"]);
        written.write(&path).unwrap();
        assert_eq!(Generation::read(&path).unwrap(), Some(written));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        for text in ["", "{}", r#"{"installation":"i","number":3,"revoked":["../x"]}"#] {
            fs::write(&path, text).unwrap();
            assert!(Generation::read(&path).is_err(), "{text}");
        }
    }

    #[test]
    fn an_older_one_and_another_ones_lack_something() {
        let now = generation("i", 3, &["a"]);
        for (other, lacks) in [
            (generation("i", 3, &["a"]), false),
            (generation("i", 2, &[]), false),
            (generation("i", 4, &["a"]), true),
            (generation("j", 0, &[]), true),
            (generation("i", 3, &["a", "b"]), true),
        ] {
            assert_eq!(now.lacks(&other), lacks, "{other:?}");
        }
    }
}
