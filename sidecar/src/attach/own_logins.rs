//! Which accounts containers were given beside the secrets that they started with, because their own program logged in and
//! the operator said yes: one file each in the state volume, the name of an account a line; also an empty one of each that
//! was ever armed for a login. Without it a restart of the sidecar would take them away, and let a login that comes late go
//! its own way. It is the account that was looked at: a secret's name may stand for another one by now. An
//! id is never used twice, and a revocation is asked for first.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use understudy_control::ContainerId;

#[derive(Debug, Clone)]
pub struct OwnLogins(PathBuf);

impl OwnLogins {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// What cannot be read gives nothing.
    pub fn of(&self, id: &ContainerId) -> BTreeSet<String> {
        let text = fs::read_to_string(self.0.join(id.as_str())).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Whether it was armed for a login, or has one.
    pub fn is_known(&self, id: &ContainerId) -> bool {
        // What cannot be looked at is taken for one that is there.
        self.0.join(id.as_str()).try_exists().unwrap_or(true)
    }

    /// It is on disk when this returns.
    pub fn add<'n>(
        &self,
        id: &ContainerId,
        accounts: impl IntoIterator<Item = &'n String>,
    ) -> io::Result<()> {
        let mut all = self.of(id);
        all.extend(accounts.into_iter().cloned());
        let text: String = all.iter().flat_map(|name| [name, "\n"]).collect();
        fs::create_dir_all(&self.0)?;
        // No id, so nobody's, if a crash leaves it behind.
        let new = self.0.join(format!("{}.new", id.as_str()));
        let mut file = fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, self.0.join(id.as_str()))?;
        fs::File::open(&self.0)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_outlive_the_process_and_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let (id, other): (ContainerId, ContainerId) =
            ("a".repeat(64).parse().unwrap(), "b".repeat(64).parse().unwrap());
        let directory = dir.path().join("own-accounts");
        let none = OwnLogins::new(directory.clone());
        assert!(none.of(&id).is_empty() && !none.is_known(&id));
        none.add(&id, []).unwrap();
        assert!(none.of(&id).is_empty() && none.is_known(&id) && !none.is_known(&other));
        OwnLogins::new(directory.clone()).add(&id, &["work".to_owned()]).unwrap();
        OwnLogins::new(directory.clone()).add(&id, &["more".to_owned(), "work".to_owned()]).unwrap();
        let again = OwnLogins::new(directory);
        assert_eq!(again.of(&id), BTreeSet::from(["more".to_owned(), "work".to_owned()]));
        assert!(again.of(&other).is_empty());
    }
}
