//! Lines on their way out. To a file they go on a thread of their own, which waits for the disk. To standard output,
//! those that come in one round of a runtime leave in one write, right after it: a line of an idle sidecar is out at once,
//! and a busy one does not pay a system call for each.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;

use super::outlet::{Health, Outlet};
use super::recent::Recent;
use crate::bell::Bell;

/// Bytes that may wait. With more, whoever brings a line writes, or waits for the thread; so a sink that takes nothing holds
/// up the requests instead of filling the memory.
const MOST: usize = 64 * 1024;
/// Between two attempts at a file that takes nothing, if no line comes.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// There are some, or the thread is to end.
    filled: Condvar,
    /// The thread has taken those that there were.
    emptied: Condvar,
    recent: Mutex<Recent>,
    sink: Mutex<Sink>,
    health: Arc<Health>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Rung for each line that is kept.
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// A thread writes them.
    by_thread: bool,
}

struct Sink {
    outlet: Outlet,
    /// What is being written; empty between two writes.
    taken: Vec<u8>,
}

impl Lines {
    pub(super) fn new(out: impl Write + Send + 'static) -> Arc<Self> {
        Self::with(Box::new(out), Arc::default())
    }

    /// They are written by a thread of their own, until [`Lines::close`].
    pub(super) fn threaded(
        out: impl Write + Send + 'static,
        health: Arc<Health>,
    ) -> std::io::Result<Arc<Self>> {
        let lines = Self::with(Box::new(out), health);
        lock(&lines.waiting).by_thread = true;
        let writer = Arc::clone(&lines);
        let writer = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run())?;
        *lock(&lines.writer) = Some(writer);
        Ok(lines)
    }

    fn with(out: Box<dyn Write + Send>, health: Arc<Health>) -> Arc<Self> {
        let sink = Sink { outlet: Outlet::new(out, Arc::clone(&health)), taken: Vec::new() };
        Arc::new(Self {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            recent: Mutex::default(),
            sink: Mutex::new(sink),
            health,
            writer: Mutex::default(),
            bell: Arc::default(),
        })
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Adds a line about the container of that id. It is written at the latest when the running task yields, or by the thread.
    pub(super) fn push(self: &Arc<Self>, whose: &str, entry: &impl Serialize) {
        let (before, after, by_thread) = {
            let mut waiting = lock(&self.waiting);
            let Waiting { bytes, by_thread } = &mut *waiting;
            let before = bytes.len();
            if let Err(error) = serde_json::to_writer(&mut *bytes, entry) {
                bytes.truncate(before);
                return tracing::error!(%error, "audit entry");
            }
            lock(&self.recent).push(whose, bytes.get(before..).unwrap_or_default());
            bytes.push(b'\n');
            (before, bytes.len(), *by_thread)
        };
        self.bell.ring();
        if by_thread {
            // It does not wait while there are some.
            if before == 0 {
                self.filled.notify_one();
            }
            if after >= MOST {
                self.wait_for_room();
            }
            return;
        }
        match Handle::try_current() {
            Ok(runtime) if before == 0 && after < MOST => {
                let due = Due(Arc::clone(self));
                runtime.spawn(async move { drop(due) });
            }
            // Whoever brought the first of them has seen to it.
            Ok(_) if after < MOST => {}
            _ => drop(self.write()),
        }
    }

    /// Lines of this run from number `from` on, as far as they are kept.
    pub(super) fn since(&self, from: u64) -> understudy_control::Lines {
        lock(&self.recent).since(from)
    }

    /// Returns once what the thread has is written, as far as it can be. Later lines are written by whoever brings them.
    pub(super) fn close(&self) {
        lock(&self.waiting).by_thread = false;
        self.filled.notify_all();
        self.emptied.notify_all();
        if let Some(writer) = lock(&self.writer).take()
            && writer.join().is_err()
        {
            tracing::error!("the audit's thread panicked");
        }
    }

    fn run(&self) {
        let mut failing = false;
        loop {
            let waiting = lock(&self.waiting);
            let idle = |waiting: &mut Waiting| waiting.bytes.is_empty() && waiting.by_thread;
            let waiting = match failing {
                false => self.filled.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner),
                true => {
                    let waited = self.filled.wait_timeout_while(waiting, PAUSE, idle);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            let ends = !waiting.by_thread;
            drop(waiting);
            failing = !self.write();
            if ends {
                return;
            }
        }
    }

    fn wait_for_room(&self) {
        let full = |waiting: &mut Waiting| waiting.bytes.len() >= MOST && waiting.by_thread;
        drop(self.emptied.wait_while(lock(&self.waiting), full));
    }

    /// False if some are left that the sink did not take. The decisions stand either way.
    fn write(&self) -> bool {
        let mut sink = lock(&self.sink);
        let Sink { outlet, taken } = &mut *sink;
        std::mem::swap(&mut lock(&self.waiting).bytes, taken);
        self.emptied.notify_all();
        let done = outlet.put(taken);
        taken.shrink_to(MOST);
        done
    }
}

/// Writes when it is dropped: by the task that was made for it, or with the runtime that will not run that task anymore.
struct Due(Arc<Lines>);

impl Drop for Due {
    fn drop(&mut self) {
        self.0.write();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    /// Passes on each write.
    struct Writes(Sender<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.send(bytes.to_vec()));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines() -> (Arc<Lines>, Receiver<Vec<u8>>) {
        let (sender, receiver) = channel();
        (Lines::new(Writes(sender)), receiver)
    }

    #[test]
    fn without_a_runtime_a_line_is_written_at_once() {
        let (lines, writes) = lines();
        lines.push("a", &1);
        assert_eq!(writes.try_recv().unwrap(), b"1\n");
    }

    #[test]
    fn lines_of_one_round_are_one_write_and_come_when_the_task_yields() {
        let (lines, writes) = lines();
        Builder::new_current_thread().build().unwrap().block_on(async {
            lines.push("a", &1);
            lines.push("a", &2);
            assert!(writes.try_recv().is_err());
            tokio::task::yield_now().await;
            assert_eq!(writes.try_recv().unwrap(), b"1\n2\n");
            lines.push("a", &3);
            tokio::task::yield_now().await;
            assert_eq!(writes.try_recv().unwrap(), b"3\n");
        });
    }

    #[test]
    fn a_runtime_that_ends_loses_no_line() {
        let (lines, writes) = lines();
        let runtime = Builder::new_current_thread().build().unwrap();
        // Brings its line when its task is dropped, as a request does that is cut.
        struct Cut(Arc<Lines>);
        impl Drop for Cut {
            fn drop(&mut self) {
                self.0.push("a", &2);
            }
        }
        let cut = Cut(Arc::clone(&lines));
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(cut);
        });
        runtime.block_on(async { lines.push("a", &1) });
        drop(runtime);
        assert_eq!(writes.try_iter().collect::<Vec<_>>().concat(), b"1\n2\n");
    }

    #[test]
    fn a_sink_that_takes_nothing_holds_up_who_writes() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, stuck) = channel();
        let lines = Lines::new(Stuck(stuck));
        let busy = Arc::clone(&lines);
        let (done, finished) = channel();
        thread::spawn(move || {
            let text = "x".repeat(1000);
            Builder::new_current_thread().build().unwrap().block_on(async {
                for _ in 0..1000 {
                    busy.push("a", &text);
                }
            });
            let _ = done.send(());
        });
        assert!(finished.recv_timeout(Duration::from_millis(200)).is_err());
        assert!(lock(&lines.waiting).bytes.len() < 2 * MOST);
        drop(release);
        finished.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    /// Stands for a disk that takes its time.
    struct Slow {
        synced: Sender<()>,
        go: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            let _ = self.synced.send(());
            let _ = self.go.recv();
            Ok(())
        }
    }

    #[test]
    fn no_worker_waits_for_the_disk_until_much_waits_and_nothing_is_lost_at_the_end() {
        let ((synced, syncs), (go, gone)) = (channel(), channel());
        let lines = Lines::threaded(Slow { synced, go: gone }, Arc::default()).unwrap();
        let (busy, (done, finished)) = (Arc::clone(&lines), channel());
        thread::spawn(move || {
            Builder::new_current_thread().build().unwrap().block_on(async {
                for round in 0.. {
                    busy.push("a", &"x".repeat(1000));
                    if done.send(round).is_err() {
                        return;
                    }
                }
            });
        });
        syncs.recv_timeout(Duration::from_secs(10)).unwrap();
        // The first is not on the disk yet.
        let mut brought = 0;
        while let Ok(round) = finished.recv_timeout(Duration::from_millis(300)) {
            brought = round;
        }
        assert!((30..200).contains(&brought), "{brought}");
        assert!(lock(&lines.waiting).bytes.len() < 2 * MOST);
        drop(go);
        finished.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_close_returns_once_all_is_written_and_what_comes_later_is_written_at_once() {
        let (sender, receiver) = channel();
        let lines = Lines::threaded(Writes(sender), Arc::default()).unwrap();
        (0..100).for_each(|n| lines.push("a", &n));
        lines.close();
        let text = String::from_utf8(receiver.try_iter().collect::<Vec<_>>().concat()).unwrap();
        assert_eq!(
            text.lines().map(|line| line.parse().unwrap()).collect::<Vec<i32>>(),
            (0..100).collect::<Vec<_>>()
        );
        lines.push("a", &100);
        assert_eq!(receiver.try_recv().unwrap(), b"100\n");
    }
}
