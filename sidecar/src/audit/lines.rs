//! Lines on their way to the sink. Those that come in one round of a runtime leave in one write, right after it: a line
//! of an idle sidecar is out at once, and a busy one does not pay a system call for each.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::runtime::Handle;

use super::recent::Recent;
use crate::bell::Bell;

/// Bytes that may wait. With more, whoever brings a line writes; so a sink that takes nothing holds up the requests
/// instead of filling the memory.
const MOST: usize = 64 * 1024;

pub(super) struct Lines {
    waiting: Mutex<Vec<u8>>,
    recent: Mutex<Recent>,
    sink: Mutex<Sink>,
    /// Rung for each line that is kept.
    bell: Arc<Bell>,
}

struct Sink {
    out: Box<dyn Write + Send>,
    /// What is being written; empty between two writes.
    taken: Vec<u8>,
}

impl Lines {
    pub(super) fn new(out: impl Write + Send + 'static) -> Arc<Self> {
        let sink = Sink { out: Box::new(out), taken: Vec::new() };
        let (waiting, recent, bell) = Default::default();
        Arc::new(Self { waiting, recent, sink: Mutex::new(sink), bell })
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Adds a line about the container of that id. It is written at the latest when the running task yields.
    pub(super) fn push(self: &Arc<Self>, whose: &str, entry: &impl Serialize) {
        let (before, after) = {
            let mut waiting = lock(&self.waiting);
            let before = waiting.len();
            if let Err(error) = serde_json::to_writer(&mut *waiting, entry) {
                waiting.truncate(before);
                return tracing::error!(%error, "audit entry");
            }
            lock(&self.recent).push(whose, waiting.get(before..).unwrap_or_default());
            waiting.push(b'\n');
            (before, waiting.len())
        };
        self.bell.ring();
        match Handle::try_current() {
            Ok(runtime) if before == 0 && after < MOST => {
                let due = Due(Arc::clone(self));
                runtime.spawn(async move { drop(due) });
            }
            // Whoever brought the first of them has seen to it.
            Ok(_) if after < MOST => {}
            _ => self.write(),
        }
    }

    /// Lines of this run from number `from` on, as far as they are kept.
    pub(super) fn since(&self, from: u64) -> understudy_control::Lines {
        lock(&self.recent).since(from)
    }

    /// A sink that fails is told about on stderr; the decisions stand either way.
    fn write(&self) {
        let mut sink = lock(&self.sink);
        let Sink { out, taken } = &mut *sink;
        std::mem::swap(&mut *lock(&self.waiting), taken);
        if taken.is_empty() {
            return;
        }
        if let Err(error) = out.write_all(taken).and_then(|()| out.flush()) {
            tracing::error!(%error, "audit lines lost");
        }
        taken.clear();
        taken.shrink_to(MOST);
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
        std::thread::spawn(move || {
            let text = "x".repeat(1000);
            Builder::new_current_thread().build().unwrap().block_on(async {
                for _ in 0..1000 {
                    busy.push("a", &text);
                }
            });
            let _ = done.send(());
        });
        assert!(finished.recv_timeout(Duration::from_millis(200)).is_err());
        assert!(lock(&lines.waiting).len() < 2 * MOST);
        drop(release);
        finished.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
