//! Which containers the operator revoked: one empty file each in the state volume, so that neither a restart of the
//! sidecar nor one of the container gives anything back. An id is never used twice.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use understudy_control::ContainerId;

#[derive(Debug, Clone)]
pub struct Revocations(PathBuf);

impl Revocations {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub fn add(&self, id: &ContainerId) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let file = fs::File::create(self.0.join(id.as_str()))?;
        file.sync_all()?;
        fs::File::open(&self.0)?.sync_all()
    }

    pub fn all(&self) -> io::Result<BTreeSet<ContainerId>> {
        match fs::read_dir(&self.0) {
            Ok(files) => files
                .map(|file| Ok(file?.file_name().to_str().and_then(|name| name.parse().ok())))
                .filter_map(Result::transpose)
                .collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    /// Whatever cannot be looked up counts as revoked.
    pub fn contains(&self, id: &ContainerId) -> bool {
        !matches!(
            fs::symlink_metadata(self.0.join(id.as_str())),
            Err(error) if error.kind() == io::ErrorKind::NotFound
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_outlives_the_process_that_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let id: ContainerId = "a".repeat(64).parse().unwrap();
        let directory = dir.path().join("revoked");
        assert!(!Revocations::new(directory.clone()).contains(&id));
        Revocations::new(directory.clone()).add(&id).unwrap();
        let again = Revocations::new(directory);
        assert!(again.contains(&id));
        assert_eq!(again.all().unwrap(), BTreeSet::from([id]));
    }
}
