//! Audit lines in a file of the sidecar's own: it is rotated by size, and synced as the operator says.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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

/// Writes whole lines. What could not be written whole is cut off by a line's end before the next.
pub struct Rotating {
    of: AuditFile,
    file: File,
    size: u64,
    /// With more bytes, it is rotated.
    limit: u64,
    /// The file may end in the middle of a line.
    torn: bool,
}

impl Rotating {
    /// Goes on with the file that there is.
    ///
    /// # Errors
    /// If it cannot be opened or made.
    pub fn open(of: AuditFile) -> io::Result<Self> {
        let (file, size, torn) = open(&of.path)?;
        let limit = of.max_size;
        Ok(Self { of, file, size, limit, torn })
    }

    /// `PATH` becomes `PATH.1`, that one `PATH.2`, and so on; the last one goes. Nothing is moved before the new file is there.
    fn rotate(&mut self) -> io::Result<()> {
        if self.of.sync == Sync::Write {
            self.file.sync_all()?;
        }
        let own = self.file.metadata()?;
        match fs::metadata(&self.of.path) {
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
        if self.size > 0 && self.size.saturating_add(more) > self.limit {
            match self.rotate() {
                Ok(()) => self.limit = self.of.max_size,
                // Lines in a file that is too long are better than none. It is not tried again at each of them.
                Err(error) => {
                    self.limit = self.size.saturating_add(self.of.max_size / 16);
                    tracing::error!(%error, "audit: {} cannot be rotated", self.of.path.display());
                }
            }
        }
        if self.torn {
            self.file.write_all(b"\n")?;
            self.size += 1;
        }
        self.torn = true;
        self.file.write_all(lines)?;
        self.torn = !lines.ends_with(b"\n");
        self.size += more;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.of.sync {
            Sync::Never => Ok(()),
            Sync::Write => self.file.sync_data(),
        }
    }
}

/// The file, its size in bytes, and whether it ends within a line.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
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
        let mut sink = Rotating::open(of(directory.path(), 10, 2)).unwrap();
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
        let mut sink = Rotating::open(of(directory.path(), 4, 0)).unwrap();
        sink.write_all(b"1\n2\n").unwrap();
        sink.write_all(b"3\n").unwrap();
        assert_eq!(read(directory.path()), [("audit.jsonl".to_owned(), "3\n".to_owned())]);
    }

    #[test]
    fn it_goes_on_where_it_was_and_a_torn_line_is_ended_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, "1\n{\"half\":").unwrap();
        let mut sink = Rotating::open(of(directory.path(), 1000, 2)).unwrap();
        sink.write_all(b"2\n").unwrap();
        drop(sink);
        let mut sink = Rotating::open(of(directory.path(), 1000, 2)).unwrap();
        sink.write_all(b"3\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n{\"half\":\n2\n3\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn lines_go_on_where_it_cannot_be_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = Rotating::open(of(directory.path(), 4, 1)).unwrap();
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
        let mut sink = Rotating::open(of(directory.path(), 32, 3)).unwrap();
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
            let mut sink = Rotating::open(of(directory.path(), 4, keep)).unwrap();
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
        assert!(Rotating::open(of(&directory.path().join("absent"), 4, 1)).is_err());
    }
}
