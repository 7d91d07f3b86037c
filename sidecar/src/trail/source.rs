//! Where audit lines come from: the file that the sidecar writes to with those before it, what the sidecar keeps in memory
//! if it writes to none, or a file that is named. One line after the other, however many there are.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::OFlags;
use serde_json::Value;
use understudy_control::{AuditFile, Lines, Reply, Request};

use super::Call;
use crate::audit::SCHEMA;

/// No line of ours is as long.
const LONGEST: u64 = 256 * 1024;

/// What was not an audit line, and what the sidecar could not write or keep.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Torn, or not ours.
    pub passed_over: u64,
    pub lost: u64,
}

impl Missing {
    /// On standard error, whoever reads the lines.
    pub fn tell(&self) {
        if self.passed_over > 0 {
            eprintln!(
                "understudy: {} lines were passed over: torn, or no audit lines of schema {SCHEMA}",
                self.passed_over
            );
        }
        if self.lost > 0 {
            eprintln!(
                "understudy: {} lines are missing: the sidecar could not write or keep them",
                self.lost
            );
        }
    }
}

/// Calls `each` with every audit line, oldest first, as text and parsed, until it says false. `from`: a file, or `-` for
/// standard input, instead of what the sidecar has.
///
/// # Errors
/// If nothing can be read, or the sidecar's file is not seen from here.
pub fn read(
    from: Option<&Path>,
    call: Call<'_>,
    mut each: impl FnMut(&str, &Value) -> Result<bool>,
) -> Result<Missing> {
    if let Some(path) = from {
        let named = || path.display().to_string();
        let read: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(BufReader::new(File::open(path).with_context(named)?)),
        };
        return read_from(read, each).with_context(named);
    }
    let mut missing = Missing::default();
    let mut take = |line: &[u8]| take(line, &mut missing, &mut each);
    match of_sidecar(call)? {
        Some(files) => {
            for (path, file) in files {
                if !lines(BufReader::new(file), &mut take).with_context(|| path.display().to_string())? {
                    break;
                }
            }
        }
        None => {
            let lost = kept(call, &mut take)?;
            missing.lost += lost;
        }
    }
    Ok(missing)
}

/// The same of any lines.
///
/// # Errors
/// If they cannot be read.
pub fn read_from(from: impl BufRead, mut each: impl FnMut(&str, &Value) -> Result<bool>) -> Result<Missing> {
    let mut missing = Missing::default();
    lines(from, &mut |line: &[u8]| take(line, &mut missing, &mut each))?;
    Ok(missing)
}

/// False: it is enough.
type Take<'t> = &'t mut dyn FnMut(&[u8]) -> Result<bool>;

fn take(
    line: &[u8],
    missing: &mut Missing,
    each: &mut impl FnMut(&str, &Value) -> Result<bool>,
) -> Result<bool> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(true);
    }
    let text = std::str::from_utf8(line).unwrap_or_default();
    match serde_json::from_str::<Value>(text) {
        Ok(parsed) if parsed.get("schema").and_then(Value::as_u64) == Some(u64::from(SCHEMA)) => {
            if parsed.get("container").is_some() {
                return each(text, &parsed);
            }
            // Of the sidecar's own.
            missing.lost += parsed.get("lost").and_then(Value::as_u64).unwrap_or_default();
        }
        _ => missing.passed_over += 1,
    }
    Ok(true)
}

/// What is longer than any line of ours is given as far as that, and the rest of it is not kept.
fn lines(mut from: impl BufRead, take: Take<'_>) -> Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut from).take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(true);
        }
        match line.pop() {
            Some(b'\n') => {}
            Some(last) => {
                line.push(last);
                skip_line(&mut from)?;
            }
            None => {}
        }
        if !take(&line)? {
            return Ok(false);
        }
    }
}

fn skip_line(from: &mut impl BufRead) -> Result<()> {
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        from.consume(length);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// All lines that the sidecar still has in memory; how many of this run it has not.
fn kept(call: Call<'_>, take: Take<'_>) -> Result<u64> {
    let (mut from, mut missing) = (0, 0);
    loop {
        let Reply::Lines(Lines { lines, next, lost, more }) = call(Request::Lines { from })? else {
            bail!("the sidecar answered another question");
        };
        missing += lost;
        for line in lines {
            if !take(line.as_bytes())? {
                return Ok(missing);
            }
        }
        from = next;
        if !more {
            return Ok(missing);
        }
    }
}

/// Opened files, oldest first. None: it writes to none.
fn of_sidecar(call: Call<'_>) -> Result<Option<Vec<(PathBuf, File)>>> {
    // It may be rotated away between the answer and the look.
    for _ in 0..3 {
        let Reply::AuditFile(told) = call(Request::AuditFile)? else {
            bail!("the sidecar answered another question");
        };
        let Some(told) = told else { return Ok(None) };
        if let Some(files) = opened(&told)? {
            return Ok(Some(files));
        }
    }
    let Reply::AuditFile(Some(AuditFile { path, .. })) = call(Request::AuditFile)? else { return Ok(None) };
    bail!(
        "the sidecar writes its audit to {path}, which is not that file as seen from here: run this where the sidecar runs \
         (podman exec understudy /understudy log), or name the file: --from FILE"
    )
}

/// The file that the sidecar writes to, and those before it. None: that is not what lies here.
///
/// The newest is opened first: one that is rotated meanwhile is found again by its next name, and known by its inode.
fn opened(told: &AuditFile) -> Result<Option<Vec<(PathBuf, File)>>> {
    let path = Path::new(&told.path);
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let numbers = std::iter::once(None).chain((1..=former(path) + 2).map(Some));
    for number in numbers {
        let mut name = path.as_os_str().to_owned();
        if let Some(number) = number {
            name.push(format!(".{number}"));
        }
        let name = PathBuf::from(name);
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits())?;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| name.display().to_string()),
        };
        let meta = file.metadata().with_context(|| name.display().to_string())?;
        if !meta.is_file() {
            bail!("{} is no regular file", name.display());
        }
        if known.insert((meta.dev(), meta.ino())) {
            found.push((name, file));
        }
    }
    found.reverse();
    Ok(known.contains(&(told.device, told.inode)).then_some(found))
}

/// The highest number of a former file that is there.
fn former(path: &Path) -> u32 {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return 0;
    };
    let number = |entry: fs::DirEntry| {
        let file = entry.file_name();
        let number = file.to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse::<u32>().ok()?;
        // As many as can be configured.
        (number <= 1000).then_some(number)
    };
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(number).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn line(host: &str) -> String {
        format!("{{\"schema\":1,\"container\":\"a\",\"host\":\"{host}\"}}\n")
    }

    fn told(path: &Path) -> AuditFile {
        let meta = fs::symlink_metadata(path).unwrap();
        AuditFile { path: path.display().to_string(), device: meta.dev(), inode: meta.ino() }
    }

    fn hosts(from: Option<&Path>, call: Call<'_>) -> (Vec<String>, Missing) {
        let mut hosts = Vec::new();
        let missing = read(from, call, |_, line| {
            hosts.push(line["host"].as_str().unwrap().to_owned());
            Ok(true)
        });
        (hosts, missing.unwrap())
    }

    fn nobody(_: Request) -> Result<Reply> {
        bail!("nobody")
    }

    #[test]
    fn what_is_no_line_of_ours_is_counted_and_hides_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        let mut text = line("1.example").into_bytes();
        text.extend_from_slice(
            b"{\"schema\":1,\"host\":\"\xc3\n\n{\"schema\":2,\"container\":\"a\"}\nhello\n[1]\n",
        );
        text.extend(vec![b'x'; 3 * LONGEST as usize]);
        text.push(b'\n');
        text.extend(line("2.example").into_bytes());
        text.extend_from_slice(b"{\"schema\":1,\"time\":1,\"lost\":7,\"detail\":\"x\"}\n");
        text.extend(line("3.example").into_bytes());
        text.extend_from_slice(b"{\"torn");
        fs::write(&file, text).unwrap();
        let (hosts, missing) = hosts(Some(&file), &nobody);
        assert_eq!(hosts, ["1.example", "2.example", "3.example"]);
        assert_eq!(missing, Missing { passed_over: 6, lost: 7 });
    }

    #[test]
    fn all_files_of_the_sidecar_are_read_oldest_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        for (suffix, host) in
            [("", "5"), (".1", "4"), (".2", "3"), (".10", "2"), (".next", "no"), (".x", "no")]
        {
            fs::write(directory.path().join(format!("audit.jsonl{suffix}")), line(host)).unwrap();
        }
        let call = |_| Ok(Reply::AuditFile(Some(told(&path))));
        assert_eq!(hosts(None, &call).0, ["2", "3", "4", "5"]);
        // Enough is enough.
        let mut count = 0;
        read(None, &call, |_, _| {
            count += 1;
            Ok(count < 2)
        })
        .unwrap();
        assert_eq!(count, 2);
    }

    /// Whatever happens between two of its files, none of the lines that were there is missing or comes twice.
    #[test]
    fn a_file_that_is_rotated_while_it_is_read_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |suffix: &str| directory.path().join(format!("audit.jsonl{suffix}"));
        fs::write(at(""), line("2")).unwrap();
        fs::write(at(".1"), line("1")).unwrap();
        let before = told(&at(""));
        fs::rename(at(".1"), at(".2")).unwrap();
        fs::rename(at(""), at(".1")).unwrap();
        fs::write(at(""), line("3")).unwrap();
        let call = |_| Ok(Reply::AuditFile(Some(before.clone())));
        assert_eq!(hosts(None, &call).0, ["1", "2", "3"]);
        // In the middle of it: the newest was opened, and has its next name already.
        fs::hard_link(at(""), at(".0")).unwrap();
        fs::rename(at(".1"), at(".3")).unwrap();
        fs::hard_link(at(""), at(".1")).unwrap();
        assert_eq!(hosts(None, &call).0, ["2", "1", "3"]);
    }

    #[test]
    fn another_file_at_that_path_is_not_taken_for_the_sidecars() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, line("theirs")).unwrap();
        let call = |_| Ok(Reply::AuditFile(Some(AuditFile { inode: 1, ..told(&path) })));
        let error = read(None, &call, |_, _| Ok(true)).unwrap_err().to_string();
        assert!(
            error.contains("not that file as seen from here") && error.contains("--from FILE"),
            "{error}"
        );
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let call = |_| {
            Ok(Reply::AuditFile(Some(AuditFile { path: path.display().to_string(), ..told(&elsewhere) })))
        };
        assert!(read(None, &call, |_, _| Ok(true)).is_err());
    }

    #[test]
    fn without_a_file_it_is_what_is_kept_in_memory() {
        let call = |request| {
            Ok(match request {
                Request::AuditFile => Reply::AuditFile(None),
                Request::Lines { from: 0 } => {
                    Reply::Lines(Lines { lines: vec![line("1")], next: 5, lost: 4, more: true })
                }
                _ => Reply::Lines(Lines { lines: vec![line("2")], next: 8, lost: 2, more: false }),
            })
        };
        let (hosts, missing) = hosts(None, &call);
        assert_eq!(
            (hosts, missing),
            (vec!["1".to_owned(), "2".to_owned()], Missing { passed_over: 0, lost: 6 })
        );
    }

    #[test]
    fn however_big_it_is_little_of_it_is_in_memory() {
        // Lines come one by one: the reader is asked for more only when the one before was taken.
        let taken = std::cell::Cell::new(0_u64);
        struct Endless<'c>(&'c std::cell::Cell<u64>, u64, Vec<u8>);
        impl std::io::Read for Endless<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                if self.2.is_empty() {
                    assert!(self.1 - self.0.get() < 1000, "it reads ahead");
                    let mut text = String::new();
                    let _ = write!(text, "{}", line(&self.1.to_string()));
                    self.1 += 1;
                    self.2 = text.into_bytes();
                }
                let length = buffer.len().min(self.2.len());
                buffer[..length].copy_from_slice(&self.2[..length]);
                drop(self.2.drain(..length));
                Ok(length)
            }
        }
        let mut take = |_: &[u8]| {
            taken.set(taken.get() + 1);
            Ok(taken.get() < 50_000)
        };
        assert!(!lines(BufReader::new(Endless(&taken, 0, Vec::new())), &mut take).unwrap());
    }
}
