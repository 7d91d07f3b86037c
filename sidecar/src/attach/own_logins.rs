//! Which accounts containers were given beside the secrets that they started with, because their own program logged in and
//! the operator said yes: one file each in the state volume, an account a line by its name and its uid; also an empty one of each that
//! was ever armed for a login. Without it a restart of the sidecar would take them away, and let a login that comes late go
//! its own way. It is the account that was looked at: a secret's name may stand for another one by now, and so may an account's. An
//! id is never used twice, and a revocation is asked for first. Nobody tells the sidecar that a container was removed, so what no
//! container used for long is forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use understudy_control::ContainerId;

use crate::accounts::record::OwnAccount;

#[derive(Debug, Clone)]
pub struct OwnLogins(PathBuf);

impl OwnLogins {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// What cannot be read gives nothing.
    pub fn of(&self, id: &ContainerId) -> BTreeSet<OwnAccount> {
        let text = fs::read_to_string(self.0.join(id.as_str())).unwrap_or_default();
        let own = |(name, uid): (&str, &str)| OwnAccount { name: name.to_owned(), uid: uid.to_owned() };
        text.lines().filter_map(|line| line.split_once(' ')).map(own).collect()
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
        accounts: impl IntoIterator<Item = &'n OwnAccount>,
    ) -> io::Result<()> {
        let mut all = self.of(id);
        for new in accounts {
            // The one that had the name before is gone.
            all.retain(|own| own.name != new.name);
            all.insert(new.clone());
        }
        let text: String = all.iter().map(|own| format!("{} {}\n", own.name, own.uid)).collect();
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

/// For how long a container may be stopped.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

impl OwnLogins {
    /// The container starts or stops. What cannot be marked is forgotten earlier, at the worst.
    pub fn used(&self, id: &ContainerId) {
        if let Ok(file) = fs::File::options().write(true).open(self.0.join(id.as_str()))
            && let Err(error) = file.set_modified(SystemTime::now())
        {
            tracing::warn!(container = %id.short(), "that its logins are in use cannot be recorded: {error}");
        }
    }

    /// Those of containers that are not `known` and did not start or stop in the 30 days before `now`.
    pub fn forget_unused(&self, now: SystemTime, known: impl Fn(&ContainerId) -> bool) {
        let files = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        for file in files {
            let id = file.file_name().to_str().and_then(|name| name.parse::<ContainerId>().ok());
            let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
            let unused =
                modified.and_then(|modified| now.duration_since(modified).ok()).is_some_and(|age| age > KEPT);
            if unused && id.is_some_and(|id| !known(&id)) {
                // That it was armed stays: what comes too late would go its own way.
                drop(fs::File::create(file.path()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str, uid: &str) -> OwnAccount {
        OwnAccount { name: name.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn those_of_containers_that_are_gone_for_long_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let logins = OwnLogins::new(dir.path().to_owned());
        let [gone, stopped, running]: [ContainerId; 3] =
            ["a", "b", "c"].map(|digit| digit.repeat(64).parse().unwrap());
        for id in [&gone, &stopped, &running] {
            logins.add(id, [&own("work", "1")]).unwrap();
            let file = fs::File::options().write(true).open(dir.path().join(id.as_str())).unwrap();
            file.set_modified(SystemTime::now() - KEPT).unwrap();
        }
        logins.used(&stopped);
        logins.forget_unused(SystemTime::now() + Duration::from_secs(60), |id| *id == running);
        assert!([&gone, &stopped, &running].into_iter().all(|id| logins.is_known(id)));
        assert!(logins.of(&gone).is_empty());
        assert_eq!(logins.of(&running), [own("work", "1")].into());
        assert_eq!(logins.of(&stopped), [own("work", "1")].into());
    }

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
        OwnLogins::new(directory.clone()).add(&id, [&own("work", "1")]).unwrap();
        OwnLogins::new(directory.clone()).add(&id, [&own("more", "2"), &own("work", "3")]).unwrap();
        let again = OwnLogins::new(directory);
        // Of one name, the later one; a name alone is nobody.
        assert_eq!(again.of(&id), BTreeSet::from([own("more", "2"), own("work", "3")]));
        fs::write(dir.path().join("own-accounts").join(id.as_str()), "work\n").unwrap();
        assert!(again.of(&id).is_empty() && again.is_known(&id));
        assert!(again.of(&other).is_empty());
    }
}
