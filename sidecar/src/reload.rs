//! Takes over a changed configuration while containers run.
//!
//! Files are looked at every two seconds: notifications of the kernel are lost on network file systems and name the
//! wrong inode once a file is replaced by a rename. A change is taken over when it has been the same twice, so a file
//! that is being written is not read half; the operator's SIGHUP is obeyed at once.

mod fingerprint;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::configuration::{Configuration, Live};
use crate::credentials::expiry::Day;
use fingerprint::Fingerprint;

const INTERVAL: Duration = Duration::from_secs(2);

/// The operator asks for a reload now.
#[derive(Debug)]
pub struct Now;

/// What is in force, and who must be told when it changes.
pub struct Reloader {
    live: Arc<Live>,
    tell: Box<dyn Fn() + Send>,
    in_force: Fingerprint,
    seen: Fingerprint,
    day: Day,
}

impl Reloader {
    /// `tell` is called after each reload, with what is in force already in `live`.
    pub fn new(live: Arc<Live>, tell: impl Fn() + Send + 'static) -> Self {
        // Read once more: what changed since it was loaded is then not missed.
        let before = live.current();
        let in_force = read(&live, false);
        say_new(&live, &before);
        Self { live, tell: Box::new(tell), seen: in_force.clone(), in_force, day: Day::today() }
    }

    /// Until the other end of `asked` is gone. Reading can block and programs can be run, so it has a thread of its own.
    pub fn run(mut self, asked: &Receiver<Now>) {
        loop {
            match asked.recv_timeout(INTERVAL) {
                Ok(Now) => self.reload(true),
                Err(RecvTimeoutError::Timeout) => self.look(Day::today()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self, today: Day) {
        let now = Fingerprint::of(self.live.files());
        let settled = now == self.seen;
        self.seen = now;
        if (settled && self.seen != self.in_force) || self.live.vault().current().is_outdated(Instant::now())
        {
            self.reload(false);
        } else if today != self.day {
            say_all(&self.live, |_| true);
        }
        self.day = today;
    }

    fn reload(&mut self, ask_again: bool) {
        let before = self.live.current();
        self.in_force = read(&self.live, ask_again);
        self.seen = self.in_force.clone();
        (self.tell)();
        tracing::info!("the configuration was read again");
        say_new(&self.live, &before);
    }
}

/// What was read. It is taken before: what changes while it is read is found the next time.
fn read(live: &Live, ask_again: bool) -> Fingerprint {
    let files = live.files();
    let fingerprint = Fingerprint::of(files.clone());
    live.reload(ask_again);
    let now = live.files();
    if now == files {
        return fingerprint;
    }
    // Other files are named now, or were added meanwhile.
    let fingerprint = Fingerprint::of(now);
    live.reload(false);
    fingerprint
}

/// Logs problems and warnings that there were not before.
fn say_new(live: &Live, before: &Configuration) {
    let told: Vec<String> = before.problems().into_iter().chain(before.warnings()).collect();
    say_all(live, |line| !told.iter().any(|known| known == line));
}

/// Logs problems and warnings that `is_new` picks.
pub fn say_all(live: &Live, is_new: impl Fn(&str) -> bool) {
    let configuration = live.current();
    for problem in configuration.problems().iter().filter(|line| is_new(line)) {
        tracing::error!("{problem}");
    }
    for warning in configuration.warnings().iter().filter(|line| is_new(line)) {
        tracing::warn!("{warning}");
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloader(..)")
    }
}
