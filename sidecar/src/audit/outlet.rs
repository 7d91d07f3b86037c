//! Whole lines into a sink that may fail. What it does not take is kept, up to a bound, and tried again; lines beyond that
//! are counted, and a line says how many, once lines are taken again.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::SCHEMA;

/// Bytes that are kept for a sink that fails.
const KEPT: usize = 1 << 20;
/// Given to the sink at once, unless one line is longer.
const PIECE: usize = 64 * 1024;

pub(super) struct Outlet {
    out: Box<dyn Write + Send>,
    /// Lines that the sink did not take, oldest first.
    kept: Vec<u8>,
    /// Lines that were not even kept, and of which no line says so yet.
    lost: u64,
    /// The sink ends in the middle of a line, which comes again.
    torn: bool,
    health: Arc<Health>,
}

/// What is wrong with the way out, for people and for metrics.
#[derive(Debug, Default)]
pub(super) struct Health {
    lost: AtomicU64,
    failing: Mutex<Option<String>>,
    rotating: Mutex<Option<String>>,
}

/// The line that stands for those that are missing.
#[derive(Serialize)]
struct Gap {
    schema: u8,
    time: u64,
    lost: u64,
    detail: &'static str,
}

impl Outlet {
    pub(super) fn new(out: Box<dyn Write + Send>, health: Arc<Health>) -> Self {
        Self { out, kept: Vec::new(), lost: 0, torn: false, health }
    }

    /// Takes over all of `lines`, which are whole. False if something is left for the next time.
    pub(super) fn put(&mut self, lines: &mut Vec<u8>) -> bool {
        let mut kept = std::mem::take(&mut self.kept);
        let result = self.write(&mut kept).and_then(|()| self.tell_lost()).and_then(|()| self.write(lines));
        self.kept = kept;
        self.keep(lines);
        lines.clear();
        let done = result.is_ok();
        self.health.fails(result.err().map(|error| {
            let left = self.kept.len();
            format!(
                "the audit cannot be written: {error}; {left} bytes of lines wait in memory until it can be"
            )
        }));
        done
    }

    /// Takes off what was written.
    fn write(&mut self, lines: &mut Vec<u8>) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            let left = lines.get(done..).unwrap_or_default();
            if left.is_empty() {
                break Ok(());
            }
            let (written, result) = self.write_piece(left.get(..piece(left)).unwrap_or(left));
            done += written;
            if result.is_err() {
                break result;
            }
        };
        drop(lines.drain(..done));
        result
    }

    /// How many bytes of it are written, which are whole lines.
    fn write_piece(&mut self, piece: &[u8]) -> (usize, io::Result<()>) {
        if self.torn {
            if let Err(error) = self.out.write_all(b"\n") {
                return (0, Err(error));
            }
            self.torn = false;
        }
        let mut done = 0;
        while let Some(left) = piece.get(done..).filter(|left| !left.is_empty()) {
            let error = match self.out.write(left) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(length) => {
                    done += length;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let whole = end_of_lines(piece.get(..done).unwrap_or_default());
            self.torn = whole < done;
            return (whole, Err(error));
        }
        // What cannot be synced is written all the same, and must not come twice.
        (done, self.out.flush())
    }

    fn tell_lost(&mut self) -> io::Result<()> {
        if self.lost == 0 {
            return Ok(());
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let gap = Gap {
            schema: SCHEMA,
            time: u64::try_from(time).unwrap_or(u64::MAX),
            lost: self.lost,
            detail: "so many lines are missing before this one: they could not be written",
        };
        let mut line = serde_json::to_vec(&gap)?;
        line.push(b'\n');
        self.write(&mut line)?;
        tracing::warn!("audit: lines are written again; {} were lost", self.lost);
        self.lost = 0;
        Ok(())
    }

    /// As far as there is room.
    fn keep(&mut self, lines: &[u8]) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.kept.len() + line.len() <= KEPT {
                self.kept.extend_from_slice(line);
            } else {
                self.lost += 1;
                self.health.lost.fetch_add(1, Relaxed);
            }
        }
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
    }
}

impl Health {
    /// Lines of this run.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let lost = Some(self.lost()).filter(|lost| *lost > 0);
        let lost = lost.map(|lost| {
            format!("{lost} audit lines of this run were lost, since they could not be written; a line with `lost` stands in their place")
        });
        [lock(&self.failing).clone(), lock(&self.rotating).clone(), lost].into_iter().flatten().collect()
    }

    fn fails(&self, problem: Option<String>) {
        set(&self.failing, problem);
    }

    pub(super) fn rotates(&self, problem: Option<String>) {
        set(&self.rotating, problem);
    }
}

/// Says what is new.
fn set(at: &Mutex<Option<String>>, problem: Option<String>) {
    let mut before = lock(at);
    if let (None, Some(problem)) = (&*before, &problem) {
        tracing::error!("{problem}");
    }
    *before = problem;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of whole lines at the beginning of `bytes`, at least one.
fn piece(bytes: &[u8]) -> usize {
    if bytes.len() <= PIECE {
        return bytes.len();
    }
    match end_of_lines(bytes.get(..PIECE).unwrap_or_default()) {
        0 => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        end => end,
    }
}

fn end_of_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many bytes as it has room for, as a full disk does.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize, usize)>>);

    impl Disk {
        fn make_room(&self, room: usize) {
            lock(&self.0).1 = room;
        }

        fn text(&self) -> String {
            String::from_utf8(lock(&self.0).0.clone()).unwrap()
        }

        fn flushed(&self) -> usize {
            lock(&self.0).2
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = lock(&self.0);
            let length = bytes.len().min(disk.1);
            if length == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            disk.1 -= length;
            disk.0.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            lock(&self.0).2 += 1;
            Ok(())
        }
    }

    fn outlet() -> (Outlet, Disk, Arc<Health>) {
        let (disk, health) = (Disk::default(), Arc::<Health>::default());
        (Outlet::new(Box::new(disk.clone()), Arc::clone(&health)), disk, health)
    }

    fn put(outlet: &mut Outlet, lines: &str) -> bool {
        let mut lines = lines.as_bytes().to_vec();
        let done = outlet.put(&mut lines);
        assert!(lines.is_empty());
        done
    }

    #[test]
    fn what_a_full_disk_does_not_take_comes_whole_and_in_order_when_there_is_room() {
        let (mut outlet, disk, health) = outlet();
        disk.make_room(7);
        assert!(!put(&mut outlet, "one\ntwo\nthree\n"));
        assert!(!put(&mut outlet, "four\n"));
        assert_eq!(disk.text(), "one\ntwo");
        assert_eq!(health.problems().len(), 1, "{:?}", health.problems());
        assert!(
            health.problems()[0].contains("; 15 bytes of lines wait in memory"),
            "{:?}",
            health.problems()
        );
        disk.make_room(1000);
        assert!(put(&mut outlet, ""));
        assert!(put(&mut outlet, "five\n"));
        assert_eq!(disk.text(), "one\ntwo\ntwo\nthree\nfour\nfive\n");
        assert_eq!((health.problems(), health.lost()), (vec![], 0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_lost_is_counted_and_told_in_the_file() {
        let (mut outlet, disk, health) = outlet();
        let line = |n: usize| format!("{n:0999}\n");
        let all = 3000;
        for n in 0..all {
            assert!(!put(&mut outlet, &line(n)));
            assert!(outlet.kept.len() <= KEPT && outlet.kept.capacity() <= 2 * KEPT);
        }
        let lost = all - KEPT / 1000;
        assert_eq!(health.lost(), lost as u64);
        assert!(health.problems()[1].starts_with(&format!("{lost} audit lines")), "{:?}", health.problems());
        disk.make_room(usize::MAX);
        assert!(put(&mut outlet, &line(all)));
        let text = disk.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), KEPT / 1000 + 2);
        let gap: serde_json::Value = serde_json::from_str(lines[KEPT / 1000]).unwrap();
        assert_eq!((&gap["schema"], &gap["lost"]), (&1.into(), &lost.into()));
        assert_eq!(lines.last().unwrap().parse::<usize>().unwrap(), all);
        // In pieces, each of which is synced.
        assert!(disk.flushed() > KEPT / PIECE, "{}", disk.flushed());
        assert_eq!(outlet.kept.capacity(), 0);
        assert_eq!(health.problems().len(), 1);
    }

    #[test]
    fn what_cannot_be_synced_is_a_problem_and_is_not_written_twice() {
        struct Bad(Disk);
        impl Write for Bad {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::Error::other("no sync"))
            }
        }
        let (disk, health) = (Disk::default(), Arc::<Health>::default());
        disk.make_room(1000);
        let mut outlet = Outlet::new(Box::new(Bad(disk.clone())), Arc::clone(&health));
        put(&mut outlet, "one\n");
        put(&mut outlet, "two\n");
        assert_eq!(disk.text(), "one\ntwo\n");
        assert!(health.problems()[0].contains("no sync"));
    }

    #[test]
    fn pieces_are_whole_lines() {
        let long = "x".repeat(2 * PIECE);
        for (text, length) in [
            ("a\nb\n".to_owned(), 4),
            (format!("a\n{long}\nb\n"), 2),
            (format!("{long}\nb\n"), 2 * PIECE + 1),
        ] {
            assert_eq!(piece(text.as_bytes()), length);
        }
    }
}
