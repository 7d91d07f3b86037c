//! `login import --write-back`: the file that a login came from gets the account's stand-ins in the place of its tokens. Two
//! who spend one refresh token end the login for both, so that one of them must not have it any more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::accounts::import::MOST;
use crate::accounts::record::Record;

/// A login file, as it was read.
pub(super) struct Original {
    path: PathBuf,
    bytes: Zeroizing<Vec<u8>>,
    owner: (u32, u32),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WriteBackError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path}: {source}; the account is stored, and the file still has its tokens: put the stand-ins there with the same command once that is mended, or delete the file"
    )]
    NotReplaced { path: PathBuf, source: io::Error },
    #[error("{0}: not a regular file; name the file itself")]
    NotAFile(PathBuf),
    #[error(
        "{0}: its {1} is not written there as it is read, so that it cannot be replaced; nothing was stored: import the file without --write-back"
    )]
    NotFound(PathBuf, &'static str),
    #[error(
        "{0}: it was changed meanwhile, and was left as it is; the account is stored, and one of the two will be logged out: import the file once more"
    )]
    Changed(PathBuf),
}

impl Original {
    pub(super) fn read(path: &Path) -> Result<Self, WriteBackError> {
        let (file, bytes) = whole(path)?;
        let metadata =
            file.metadata().map_err(|source| WriteBackError::Io { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), bytes, owner: (metadata.uid(), metadata.gid()) })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it is to hold: all as it was, but for the tokens.
    pub(super) fn with_stand_ins(&self, record: &Record) -> Result<Zeroizing<Vec<u8>>, WriteBackError> {
        let stand_ins = &record.stand_ins;
        let access = Some((&record.access, &stand_ins.access));
        let refresh = record.refresh.as_ref().zip(stand_ins.refresh.as_ref());
        let id = record.id.as_ref().zip(stand_ins.id.as_ref());
        let mut bytes = self.bytes.clone();
        for (what, pair) in [("access token", access), ("refresh token", refresh), ("ID token", id)] {
            let Some((token, stand_in)) = pair else { continue };
            let (changed, found) = replaced(&bytes, token.expose().as_bytes(), stand_in.as_bytes());
            if !found {
                return Err(WriteBackError::NotFound(self.path.clone(), what));
            }
            bytes = changed;
        }
        Ok(bytes)
    }

    /// Puts `bytes` in its place, whole or not at all, its owner's and readable by that one alone. The file as it was is kept under the name
    /// that is given back.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<PathBuf, WriteBackError> {
        let path = &self.path;
        let with = |ending: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            PathBuf::from(name)
        };
        let (new, keeping, previous) = (with(".new"), with(".keeping"), with(".previous"));
        let io = |source| WriteBackError::NotReplaced { path: path.clone(), source };
        for left in [&new, &keeping] {
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        // From here on it is this file, whatever stands under its first name.
        fs::hard_link(path, &keeping).map_err(io)?;
        let (kept, found) = whole(&keeping)?;
        if *found != *self.bytes {
            fs::remove_file(&keeping).map_err(io)?;
            return Err(WriteBackError::Changed(path.clone()));
        }
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            if file.metadata().map(|made| (made.uid(), made.gid()))? != self.owner {
                fchown(&file, Some(self.owner.0), Some(self.owner.1))?;
            }
            file.write_all(bytes)?;
            file.sync_all()?;
            kept.set_permissions(fs::Permissions::from_mode(0o600))?;
            fs::rename(&keeping, &previous)?;
            // Where both were the same file already, as after a run that broke off, that does nothing (rename(2)).
            match fs::remove_file(&keeping) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(&new, path)?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        })();
        written.map_err(io)?;
        Ok(previous)
    }
}

fn whole(path: &Path) -> Result<(File, Zeroizing<Vec<u8>>), WriteBackError> {
    let io = |source| WriteBackError::Io { path: path.to_owned(), source };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(WriteBackError::NotAFile(path.to_owned()));
        }
        file => file.map_err(io)?,
    };
    if !file.metadata().map_err(io)?.is_file() {
        return Err(WriteBackError::NotAFile(path.to_owned()));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(1 << 16));
    (&file).take(MOST as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    Ok((file, bytes))
}

/// Wherever it stands, and whether it does.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> (Zeroizing<Vec<u8>>, bool) {
    let mut out = Zeroizing::new(Vec::with_capacity(bytes.len() + to.len()));
    let (mut rest, mut found) = (bytes, false);
    while let Some(first) = rest.first() {
        match rest.strip_prefix(from) {
            Some(after) => {
                out.extend_from_slice(to);
                (rest, found) = (after, true);
            }
            None => {
                out.push(*first);
                rest = rest.get(1..).unwrap_or_default();
            }
        }
    }
    (out, found)
}
