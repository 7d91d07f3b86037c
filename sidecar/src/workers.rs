//! Runtimes of one thread each. A connection stays on one of them, with all its tasks and with the upstream connections
//! of its requests: to wake a task of another thread costs more than what the task then does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Where connections can be put. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Workers {
    first: Arc<Worker>,
    others: Arc<[Arc<Worker>]>,
}

#[derive(Debug)]
struct Worker {
    number: usize,
    runtime: Handle,
    connections: AtomicUsize,
}

impl Workers {
    /// `first` is taken while it has no more connections than the others; it should be the one that accepts.
    pub fn new(first: Handle, others: impl IntoIterator<Item = Handle>) -> Self {
        let worker =
            |(number, runtime)| Arc::new(Worker { number, runtime, connections: AtomicUsize::new(0) });
        Self { first: worker((0, first)), others: (1..).zip(others).map(worker).collect() }
    }

    /// A place at the worker with the fewest connections.
    pub fn seat(&self) -> Seat {
        let all = std::iter::once(&self.first).chain(self.others.iter());
        let worker = all.min_by_key(|worker| worker.connections.load(Relaxed)).unwrap_or(&self.first);
        worker.connections.fetch_add(1, Relaxed);
        Seat(Arc::clone(worker))
    }
}

/// A connection's place, taken for as long as this lives, also when its task panics.
#[derive(Debug)]
pub struct Seat(Arc<Worker>);

impl Seat {
    /// Which worker it is.
    pub fn number(&self) -> usize {
        self.0.number
    }

    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Threads with a runtime each. Dropped, they end, and with them all that runs there.
#[derive(Debug)]
pub struct Threads {
    runtimes: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<()>,
}

impl Threads {
    pub fn start(count: usize) -> io::Result<Self> {
        let mut started = Self { runtimes: Vec::new(), threads: Vec::new(), stop: watch::Sender::default() };
        for number in 1..=count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let mut stop = started.stop.subscribe();
            started.runtimes.push(runtime.handle().clone());
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            started.threads.push(thread.spawn(move || {
                // An error is what is waited for: the sender is gone.
                drop(runtime.block_on(stop.changed()));
            })?);
        }
        Ok(started)
    }

    pub fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.stop));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_and_places_are_given_back() {
        let threads = Threads::start(3).unwrap();
        let [first, others @ ..] = threads.runtimes() else { panic!("no runtime") };
        let workers = Workers::new(first.clone(), others.to_vec());
        assert_eq!(workers.seat().number(), 0);
        let mut seats: Vec<Seat> = (0..6).map(|_| workers.seat()).collect();
        assert_eq!(seats.iter().map(Seat::number).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        seats.remove(1);
        assert_eq!(workers.seat().number(), 1);
    }

    #[test]
    fn what_runs_on_a_thread_ends_with_it() {
        let threads = Threads::start(1).unwrap();
        let kept = Arc::new(());
        let held = Arc::clone(&kept);
        threads.runtimes()[0].spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(threads);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
