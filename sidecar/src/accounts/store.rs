//! Accounts on disk: one file each, readable by the sidecar's user alone, in the state volume.
//!
//! A new record is written beside the old one, synced, and renamed over it; the old one stays as `NAME.json.previous`. What
//! was written whole and not renamed yet is a record, too: after a crash it is the one that counts, as the provider may
//! take no other refresh token any more. Room for it is made before the provider is asked, so that a full disk costs no
//! login. With a key each is encrypted (`seal`).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use zeroize::Zeroizing;

use super::record::{Record, RecordError};
use super::seal::{self, SealError, StoreKey};

/// Larger than any record, and a multiple of a block.
const ROOM: u64 = 1 << 18;

#[derive(Debug, Clone, Default)]
pub struct Store {
    directory: PathBuf,
    key: Option<Arc<StoreKey>>,
    #[cfg(test)]
    pub(super) faults: faults::Faults,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "account `{0}`: it was not imported yet; run: understudy login import FORMAT --account {0} < FILE"
    )]
    Missing(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Record { path: PathBuf, source: RecordError },
    #[error("{path}: {source}")]
    Sealed { path: PathBuf, source: SealError },
    #[error("{path}: others may read it (mode {mode:03o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
    #[error("the name of an account must be lower-case letters, digits and `-`, at most 64")]
    Name,
    #[error("account `{0}` changed meanwhile")]
    Changed(String),
}

/// What is done to a record's files, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The room for the new record.
    Reserve,
    /// The new record, in part.
    WriteHalf,
    Write,
    Sync,
    /// The old record under its second name.
    Keep,
    Rename,
    SyncDirectory,
}

/// Room on disk for a record that is about to change.
#[derive(Debug)]
pub struct Room(());

/// The one who may change accounts, until it is dropped.
struct Lock(#[expect(dead_code, reason = "the lock goes with the descriptor")] File);

impl Store {
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            key: None,
            #[cfg(test)]
            faults: faults::Faults::default(),
        }
    }

    /// Whatever is written is encrypted with it.
    #[must_use]
    pub fn sealed_by(self, key: Option<StoreKey>) -> Self {
        Self { key: key.map(Arc::new), ..self }
    }

    pub fn is_sealed(&self) -> bool {
        self.key.is_some()
    }

    /// All that there are, by name.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let io = |source| StoreError::Io { path: self.directory.clone(), source };
        let files = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(io)?,
        };
        let mut names = Vec::new();
        for file in files {
            let file = file.map_err(io)?.file_name();
            let name = file.to_str().and_then(|name| name.strip_suffix(".json"));
            names.extend(name.filter(|name| valid(name).is_ok()).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Writes an account anew as `to` has it, the record before it, too: nothing of the old kind is left.
    pub fn convert(&self, name: &str, to: &Self) -> Result<(), StoreError> {
        let record = self.read(name)?;
        let next = |record: &Record| Record { generation: record.generation + 1, ..record.clone() };
        let (once, twice) = (next(&record), next(&next(&record)));
        to.put(name, &once, Some(record.generation), self)?;
        to.put(name, &twice, Some(once.generation), to)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The record that counts.
    pub fn read(&self, name: &str) -> Result<Record, StoreError> {
        valid(name)?;
        let (path, new) = (self.path(name), self.new_path(name));
        let current = read(&path);
        // Cut short, or only the room for it: never the one that counts.
        let next = match read(&new).ok().flatten().map(|bytes| self.parse(name, &new, &bytes)) {
            Some(Ok(next)) => Some(next),
            // It may be the newest, and who cannot open it must not take an older one.
            Some(Err(error @ StoreError::Sealed { .. })) => return Err(error),
            Some(Err(_)) | None => None,
        };
        let current = current?.map(|bytes| self.parse(name, &path, &bytes)).transpose()?;
        match (current, next) {
            (Some(current), Some(next)) if next.generation > current.generation => Ok(next),
            (Some(current), _) => Ok(current),
            (None, Some(next)) => Ok(next),
            (None, None) => Err(StoreError::Missing(name.to_owned())),
        }
    }

    /// The record before the one that counts, if there is one that can be read.
    pub fn previous(&self, name: &str) -> Option<Record> {
        valid(name).ok()?;
        let record = |path: &Path| self.parse(name, path, &read(path).ok()??).ok();
        let (path, counts) = (self.path(name), self.read(name).ok()?);
        // After a crash before the rename, the old one still has its first name.
        let current = record(&path).filter(|current| current.generation < counts.generation);
        current.or_else(|| record(&path.with_extension("json.previous")))
    }

    /// Makes sure that a record can be written, without writing one.
    pub fn reserve(&self, name: &str) -> Result<Room, StoreError> {
        valid(name)?;
        let _lock = self.lock()?;
        self.adopt(name)?;
        self.step(Step::Reserve, name)?;
        let path = self.new_path(name);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let file = open(&path).map_err(io)?;
        match fallocate(&file, FallocateFlags::empty(), 0, ROOM) {
            // Some file systems cannot; then the write itself shows.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(errno) => return Err(io(errno.into())),
        }
        file.sync_all().map_err(io)?;
        Ok(Room(()))
    }

    /// Puts `record` in the place of the one with the generation before it; of none, with `None`. It is on disk when this
    /// returns. [`StoreError::Changed`] if another one is there by now.
    pub fn write(&self, name: &str, record: &Record, before: Option<u64>) -> Result<(), StoreError> {
        self.put(name, record, before, self)
    }

    /// What is there is read by `reader`.
    fn put(&self, name: &str, record: &Record, before: Option<u64>, reader: &Self) -> Result<(), StoreError> {
        valid(name)?;
        let _lock = self.lock()?;
        if reader.key.is_none() {
            reader.nothing_is_sealed()?;
        }
        let found = match reader.read(name) {
            Ok(found) => Some(found.generation),
            Err(StoreError::Missing(_)) => None,
            // An operator who imports a login over a broken record means to.
            Err(StoreError::Record { .. }) if before.is_none() => None,
            Err(error) => return Err(error),
        };
        if found != before {
            return Err(StoreError::Changed(name.to_owned()));
        }
        let path = self.new_path(name);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let bytes = record.to_bytes().map_err(|source| StoreError::Record { path: path.clone(), source })?;
        let sealed = |source| StoreError::Sealed { path: path.clone(), source };
        let bytes = match &self.key {
            Some(key) => key.seal(name, &bytes).map_err(sealed)?,
            None => bytes,
        };
        // What was adopted is overwritten here only after `found` counted it.
        reader.adopt(name)?;
        let mut file = open(&path).map_err(io)?;
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(half).map_err(io)?;
        self.step(Step::WriteHalf, name)?;
        file.write_all(rest).and_then(|()| file.set_len(bytes.len() as u64)).map_err(io)?;
        self.step(Step::Write, name)?;
        file.sync_all().map_err(io)?;
        sync(&self.directory)?;
        self.step(Step::Sync, name)?;
        self.settle(name)
    }

    /// Finishes what a crash left between writing and renaming.
    fn adopt(&self, name: &str) -> Result<(), StoreError> {
        let bytes = read(&self.new_path(name)).ok().flatten();
        let (new, path) = (self.new_path(name), self.path(name));
        let next = match bytes.map(|bytes| self.parse(name, &new, &bytes)) {
            Some(Ok(next)) => next,
            Some(Err(error @ StoreError::Sealed { .. })) => return Err(error),
            Some(Err(_)) | None => return Ok(()),
        };
        match read(&path)?.map(|bytes| self.parse(name, &path, &bytes)) {
            Some(Ok(current)) if current.generation >= next.generation => Ok(()),
            Some(Err(error @ StoreError::Sealed { .. })) => Err(error),
            _ => self.settle(name),
        }
    }

    fn settle(&self, name: &str) -> Result<(), StoreError> {
        let (path, new) = (self.path(name), self.new_path(name));
        let io = |source| StoreError::Io { path: path.clone(), source };
        let (kept, keeping) = (path.with_extension("json.previous"), path.with_extension("json.keeping"));
        // Never a moment without a whole record under one of the names.
        match fs::remove_file(&keeping) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        match fs::hard_link(&path, &keeping).and_then(|()| fs::rename(&keeping, &kept)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        self.step(Step::Keep, name)?;
        fs::rename(&new, &path).map_err(io)?;
        self.step(Step::Rename, name)?;
        sync(&self.directory)?;
        self.step(Step::SyncDirectory, name)
    }

    fn parse(&self, name: &str, path: &Path, bytes: &[u8]) -> Result<Record, StoreError> {
        let opened = seal::open(self.key.as_deref(), name, bytes);
        let opened = opened.map_err(|source| StoreError::Sealed { path: path.to_owned(), source })?;
        let plain = opened.as_ref().map_or(bytes, |opened| opened.as_slice());
        Record::parse(plain).map_err(|source| StoreError::Record { path: path.to_owned(), source })
    }

    /// Who has no key must not write in the clear what the others have encrypted.
    fn nothing_is_sealed(&self) -> Result<(), StoreError> {
        for name in self.names()? {
            let path = self.path(&name);
            let Some(bytes) = read(&path)? else { continue };
            seal::open(None, &name, &bytes).map_err(|source| StoreError::Sealed { path, source })?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    fn new_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json.new"))
    }

    /// Between the sidecar and `understudy login import`, which is a process of its own.
    fn lock(&self) -> Result<Lock, StoreError> {
        let io = |source| StoreError::Io { path: self.directory.clone(), source };
        DirBuilder::new().mode(0o700).recursive(true).create(&self.directory).map_err(io)?;
        let path = self.directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(io)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| io(errno.into()))?;
        Ok(Lock(file))
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "faults are tests'")
    )]
    fn step(&self, step: Step, name: &str) -> Result<(), StoreError> {
        #[cfg(test)]
        self.faults.at(step).map_err(|source| StoreError::Io { path: self.path(name), source })?;
        let _ = (step, name);
        Ok(())
    }
}

/// It becomes the name of a file.
pub fn valid(name: &str) -> Result<(), StoreError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let valid = !name.is_empty() && name.len() <= 64 && name.bytes().all(plain);
    if valid { Ok(()) } else { Err(StoreError::Name) }
}

/// Whole, or None if there is no such file.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let found = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(io(io::Error::other("not a regular file")));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StoreError::Mode { path: path.to_owned(), mode });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(ROOM as usize));
    file.take(ROOM).read_to_end(&mut bytes).map_err(io)?;
    // What is left of the room for it.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(Some(bytes))
}

/// Nothing but the room that was made, if any: of an older record, no part may be left.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    let mut first = [0];
    if file.read_at(&mut first, 0)? == 1 && first != [0] {
        file.set_len(0)?;
    }
    Ok(file)
}

fn sync(directory: &Path) -> Result<(), StoreError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| StoreError::Io { path: directory.to_owned(), source })
}

#[cfg(test)]
pub(super) mod faults {
    //! A store that breaks at a step, as a power loss or a full disk would break it.

    use std::io;
    use std::sync::{Arc, Mutex};

    use super::Step;

    #[derive(Debug, Clone, Default)]
    pub(crate) struct Faults(Arc<Mutex<Option<Step>>>);

    impl Faults {
        pub(crate) fn break_at(&self, step: Option<Step>) {
            *self.0.lock().unwrap() = step;
        }

        pub(crate) fn at(&self, step: Step) -> io::Result<()> {
            match *self.0.lock().unwrap() {
                Some(broken) if broken == step => Err(io::Error::other("broken by a test")),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
