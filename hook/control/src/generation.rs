//! Which state a sidecar had last, written on the host beside its control socket. The state volume alone cannot tell that it
//! was lost, or put back from a backup, and then knows nothing of what was revoked or denied since.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::ContainerId;

/// Of a file, in bytes: some 200,000 containers that were revoked.
const LARGEST: u64 = 16 << 20;

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
    /// None if there is no such file. Whoever else writes to its directory gains nothing by a link, a FIFO or a file without end.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of at most 16 MiB"));
        }
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Whole or not at all, and on disk when this returns. What lies at the new file's name is not written through.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension(format!("new.{}", std::process::id()));
        let put = || -> io::Result<()> {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
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
    fn no_link_is_followed_and_nothing_but_a_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join(FILE), directory.path().join("other"));
        let written = generation("i", 3, &[]);
        fs::write(&other, "mine").unwrap();
        let new = path.with_extension(format!("new.{}", std::process::id()));
        std::os::unix::fs::symlink(&other, &new).unwrap();
        written.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        assert_eq!(Generation::read(&path).unwrap(), Some(written));

        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Generation::read(&link).unwrap_err();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        Generation::read(&fifo).unwrap_err();
        File::create(&other).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(Generation::read(&other).unwrap_err().to_string().contains("16 MiB"));
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
