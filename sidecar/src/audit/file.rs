//! Audit lines in a file of the sidecar's own: it is rotated by size, and synced as the operator says.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::outlet::Health;

/// `[audit]` in `sidecar.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFile {
    pub path: PathBuf,
    /// Bytes; with the next line that would be more, another file begins.
    pub max_size: u64,
    /// How many former files there are at most: `PATH.1` is the latest.
    pub keep: u32,
    pub sync: Sync,
}

/// When lines are on the disk, and not in the system's memory alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// When the system likes.
    Never,
    /// After each write, which is of one line or of several that came together.
    Write,
}

/// Writes lines; between two of them it may go on to another file.
pub(super) struct Rotating {
    of: AuditFile,
    file: File,
    size: u64,
    /// With more bytes, it is rotated.
    limit: u64,
    /// The file that was found ends in the middle of a line.
    torn: bool,
    /// So does what was written last.
    within: bool,
    health: Arc<Health>,
}

impl Rotating {
    /// Goes on with the file that there is.
    ///
    /// # Errors
    /// If it cannot be opened or made, is no regular file, or is another sidecar's.
    pub(super) fn open(of: AuditFile, health: Arc<Health>) -> io::Result<Self> {
        let (file, size, torn) = open(&of.path)?;
        let limit = of.max_size;
        Ok(Self { of, file, size, limit, torn, within: false, health })
    }

    /// `PATH` becomes `PATH.1`, that one `PATH.2`, and so on; the last one goes. Nothing is moved before the new file is there.
    fn rotate(&mut self) -> io::Result<()> {
        if self.of.sync == Sync::Write {
            self.file.sync_all()?;
        }
        let own = self.file.metadata()?;
        match fs::symlink_metadata(&self.of.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => self.shift()?,
            // Somebody else rotated it.
            Ok(_) => (self.file, self.size, self.torn) = open(&self.of.path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.file, self.size, self.torn) = open(&self.of.path)?;
            }
            Err(error) => return Err(error),
        }
        if self.of.sync == Sync::Write {
            let directory = self.of.path.parent().unwrap_or(Path::new("/"));
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    fn shift(&mut self) -> io::Result<()> {
        let next = self.beside("next");
        // Of a run that was killed in the middle of this.
        if let Err(error) = fs::remove_file(&next)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let opened = open(&next)?;
        let moved = self.shift_former().and_then(|()| fs::rename(&next, &self.of.path));
        if let Err(error) = moved {
            drop(fs::remove_file(&next));
            return Err(error);
        }
        (self.file, self.size, self.torn) = opened;
        Ok(())
    }

    fn shift_former(&self) -> io::Result<()> {
        let former = |number: u32| self.beside(&number.to_string());
        for number in (1..self.of.keep).rev() {
            match fs::rename(former(number), former(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.of.keep > 0 {
            fs::rename(&self.of.path, former(1))?;
        }
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.of.path.clone().into_os_string();
        name.push(format!(".{suffix}"));
        name.into()
    }
}

impl Write for Rotating {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let more = lines.len() as u64;
        if !self.within && self.size > 0 && self.size.saturating_add(more) > self.limit {
            let rotated = self.rotate();
            // Lines in a file that is too long are better than none. It is not tried again at each of them.
            self.limit = match &rotated {
                Ok(()) => self.of.max_size,
                Err(_) => self.size.saturating_add(self.of.max_size / 16),
            };
            self.health.rotates(rotated.err().map(|error| {
                format!("audit: {} cannot be rotated, and grows: {error}", self.of.path.display())
            }));
        }
        if self.torn {
            self.file.write_all(b"\n")?;
            (self.size, self.torn) = (self.size + 1, false);
        }
        let written = self.file.write(lines)?;
        self.size += written as u64;
        self.within = lines.get(..written).is_some_and(|lines| !lines.ends_with(b"\n"));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.of.sync {
            Sync::Never => Ok(()),
            Sync::Write => self.file.sync_data(),
        }
    }
}

/// The file, its size in bytes, and whether it ends within a line. What lies in its place is not followed and not waited for.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
    let mut file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => {
            io::Error::other(format!("{} is a symbolic link: name the file itself", path.display()))
        }
        _ => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is no regular file", path.display())));
    }
    // Some file systems know no locks.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(io::Error::other(format!(
            "another sidecar writes to {}: two would rotate it away from each other",
            path.display()
        )));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    let size = file.metadata()?.len();
    let mut last = [b'\n'];
    if size > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, size, last != *b"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(directory: &Path, max_size: u64, keep: u32) -> AuditFile {
        AuditFile { path: directory.join("audit.jsonl"), max_size, keep, sync: Sync::Write }
    }

    fn read(directory: &Path) -> Vec<(String, String)> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        };
        let mut files: Vec<_> = files.map(text).collect();
        files.sort();
        files
    }

    #[test]
    fn it_is_rotated_between_writes_and_only_so_many_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 10, 2), Arc::default()).unwrap();
        for lines in ["1\n2\n", "3\n", "a line longer than all\n", "4\n", "5\n6\n7\n", "8\n9\n"] {
            sink.write_all(lines.as_bytes()).unwrap();
            sink.flush().unwrap();
        }
        let files = read(directory.path());
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        assert_eq!(
            files,
            [
                ("audit.jsonl", "8\n9\n"),
                ("audit.jsonl.1", "4\n5\n6\n7\n"),
                ("audit.jsonl.2", "a line longer than all\n")
            ]
        );
    }

    #[test]
    fn without_former_files_the_text_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 4, 0), Arc::default()).unwrap();
        sink.write_all(b"1\n2\n").unwrap();
        sink.write_all(b"3\n").unwrap();
        assert_eq!(read(directory.path()), [("audit.jsonl".to_owned(), "3\n".to_owned())]);
    }

    #[test]
    fn it_goes_on_where_it_was_and_a_torn_line_is_ended_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, "1\n{\"half\":").unwrap();
        let mut sink = Rotating::open(of(directory.path(), 1000, 2), Arc::default()).unwrap();
        sink.write_all(b"2\n").unwrap();
        drop(sink);
        let mut sink = Rotating::open(of(directory.path(), 1000, 2), Arc::default()).unwrap();
        sink.write_all(b"3\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n{\"half\":\n2\n3\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn lines_go_on_where_it_cannot_be_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 4, 1), Arc::default()).unwrap();
        // A directory in the way cannot be replaced by a file.
        fs::create_dir_all(directory.path().join("audit.jsonl.1/x")).unwrap();
        sink.write_all(b"1\n2\n").unwrap();
        sink.write_all(b"3\n").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("audit.jsonl")).unwrap(), "1\n2\n3\n");
    }

    /// What stands in the way of one step costs none of the former files.
    #[test]
    fn former_files_outlive_a_rotation_that_fails() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 32, 3), Arc::default()).unwrap();
        for (name, text) in [("1", "one\n"), ("2", "two\n"), ("3", "three\n")] {
            fs::write(directory.path().join(format!("audit.jsonl.{name}")), text).unwrap();
        }
        // The new file cannot be made.
        fs::create_dir_all(directory.path().join("audit.jsonl.next/x")).unwrap();
        for _ in 0..20 {
            sink.write_all(b"0123456789\n").unwrap();
        }
        let text = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(text("audit.jsonl"), "0123456789\n".repeat(20));
        for (name, expected) in [("1", "one\n"), ("2", "two\n"), ("3", "three\n")] {
            assert_eq!(text(&format!("audit.jsonl.{name}")), expected);
        }
        fs::remove_dir_all(directory.path().join("audit.jsonl.next")).unwrap();
        sink.write_all(b"0123456789\n").unwrap();
        assert_eq!(text("audit.jsonl"), "0123456789\n");
        assert_eq!((&*text("audit.jsonl.2"), &*text("audit.jsonl.3")), ("one\n", "two\n"));
    }

    #[test]
    fn a_file_that_somebody_moved_away_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        for keep in [0, 2] {
            let path = directory.path().join("audit.jsonl");
            let mut sink = Rotating::open(of(directory.path(), 4, keep), Arc::default()).unwrap();
            sink.write_all(b"1\n2\n").unwrap();
            fs::rename(&path, directory.path().join("elsewhere")).unwrap();
            sink.write_all(b"3\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
            assert_eq!(fs::read_to_string(directory.path().join("elsewhere")).unwrap(), "1\n2\n");
            fs::remove_file(&path).unwrap();
        }
        assert!(!directory.path().join("audit.jsonl.1").exists());
    }

    #[test]
    fn a_place_that_is_none_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Rotating::open(of(&directory.path().join("absent"), 4, 1), Arc::default()).is_err());
    }

    #[test]
    fn what_lies_in_its_place_is_not_written_to_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (file, elsewhere) = (of(directory.path(), 4, 1), directory.path().join("elsewhere"));
        let refused = || Rotating::open(file.clone(), Arc::default()).err().unwrap().to_string();
        fs::write(&elsewhere, "theirs").unwrap();
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file.path).unwrap();
        assert!(refused().contains("is a symbolic link"), "{}", refused());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o644);
        fs::remove_file(&file.path).unwrap();
        fs::create_dir(&file.path).unwrap();
        refused();
        fs::remove_dir(&file.path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file.path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(refused().contains("is no regular file"), "{}", refused());
    }

    #[test]
    fn it_is_one_sidecars_also_after_it_was_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let health = Arc::<Health>::default();
        let mut sink = Rotating::open(of(directory.path(), 4, 1), Arc::clone(&health)).unwrap();
        for line in [&b"1\n2\n"[..], b"3\n4\n"] {
            let error = Rotating::open(of(directory.path(), 4, 1), Arc::default()).err().unwrap().to_string();
            assert!(error.contains("another sidecar writes to"), "{error}");
            sink.write_all(line).unwrap();
        }
        // A link that somebody puts there while it is open is not followed when it is rotated, which is told.
        let path = directory.path().join("audit.jsonl");
        fs::remove_file(&path).unwrap();
        fs::write(directory.path().join("elsewhere"), "theirs").unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        sink.write_all(b"5\n6\n").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("elsewhere")).unwrap(), "theirs");
        assert!(health.problems()[0].contains("cannot be rotated"), "{:?}", health.problems());
        drop(sink);
        fs::remove_file(&path).unwrap();
        Rotating::open(of(directory.path(), 4, 1), Arc::default()).unwrap();
    }

    /// The one thing that tells whether fdatasync(2) is called: there is nothing to sync of this device, which is an error.
    #[test]
    fn with_sync_each_flush_is_on_the_disk() {
        for sync in [Sync::Write, Sync::Never] {
            let directory = tempfile::tempdir().unwrap();
            let of = AuditFile { sync, ..of(directory.path(), 1000, 1) };
            let mut sink = Rotating::open(of, Arc::default()).unwrap();
            sink.flush().unwrap();
            sink.file = OpenOptions::new().write(true).open("/dev/null").unwrap();
            assert_eq!(sink.flush().is_err(), sync == Sync::Write);
        }
    }

    #[test]
    fn a_disk_that_is_full_is_an_error_and_no_line_counts_as_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 1000, 1), Arc::default()).unwrap();
        sink.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(sink.write(b"1\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(sink.size, 0);
    }
}
