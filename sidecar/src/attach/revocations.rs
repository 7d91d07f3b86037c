//! Which containers the operator revoked: one empty file each in the state volume, so that neither a restart of the
//! sidecar nor one of the container gives anything back. An id is never used twice.

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
        file.sync_all()
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
        assert!(Revocations::new(directory).contains(&id));
    }
}
