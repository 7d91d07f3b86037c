//! What files say and who may read them, in a few bytes: another fingerprint is another configuration.
//!
//! Contents are compared, not times: a rename, a bind mount or a write within a clock tick cannot hide a change, and a
//! file that is only touched is none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// Larger files are refused by their readers.
const MOST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Result<[u8; 32], io::ErrorKind>)>);

impl Fingerprint {
    pub(super) fn of(files: Vec<PathBuf>) -> Self {
        let one = |path: PathBuf| {
            let digest = digest_of(&path).map_err(|error| error.kind());
            (path, digest)
        };
        Self(files.into_iter().map(one).collect())
    }
}

fn digest_of(path: &Path) -> io::Result<[u8; 32]> {
    // Not blocking: a FIFO would be waited for.
    let file: File = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let found = file.metadata()?;
    let mut context = digest::Context::new(&digest::SHA256);
    for number in [u64::from(found.mode()), u64::from(found.uid())] {
        context.update(&number.to_le_bytes());
    }
    if found.is_file() {
        // It may be a value.
        let mut buffer = Zeroizing::new([0; 4096]);
        let mut file = file.take(MOST);
        loop {
            match file.read(buffer.as_mut_slice())? {
                0 => break,
                length => context.update(buffer.get(..length).unwrap_or_default()),
            }
        }
    }
    let digest = context.finish();
    digest.as_ref().try_into().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn whatever_changes_what_is_read_changes_it_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b, new] = ["a", "b", "new"].map(|name| directory.path().join(name));
        let now = || Fingerprint::of(vec![a.clone(), b.clone()]);
        fs::write(&a, "one").unwrap();
        let first = now();
        assert_eq!(now(), first);
        fs::write(&a, "two").unwrap();
        let second = now();
        assert_ne!(second, first);
        fs::write(&new, "one").unwrap();
        fs::rename(&new, &a).unwrap();
        assert_eq!(now(), first);
        fs::set_permissions(&a, fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(now(), first);
        fs::remove_file(&a).unwrap();
        let gone = now();
        fs::create_dir(&a).unwrap();
        assert_ne!(now(), gone);
        fs::write(&b, "").unwrap();
        assert_ne!(now(), gone);
    }
}
