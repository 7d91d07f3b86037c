//! Wakes whoever waits for something to happen, and costs those who make it happen next to nothing while nobody does: lines
//! of the audit are written far more often than they are watched.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
    waiting: AtomicUsize,
}

/// How often one who waits looks whether its caller is still there.
const GLANCE: Duration = Duration::from_secs(1);

impl Bell {
    /// After what happened can be seen.
    pub fn ring(&self) {
        // With the fence in `wait`: either this sees who waits, or they see what happened.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.heard.notify_all();
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A place to wait, unless there are `most` already.
    pub fn place(&self, most: usize) -> Option<Place<'_>> {
        let more = |waiting: usize| (waiting < most).then(|| waiting + 1);
        let taken = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(self))
    }
}

/// One who waits, counted until it is dropped.
#[derive(Debug)]
pub struct Place<'b>(&'b Bell);

impl Place<'_> {
    /// What `look` finds: at once, or after a ring. None at the deadline, and once `gone` says so.
    pub fn wait<T>(
        self,
        deadline: Instant,
        gone: impl Fn() -> bool,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let bell = self.0;
        fence(Ordering::SeqCst);
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let seen = *rung;
            drop(rung);
            if let Some(found) = look() {
                return Some(found);
            }
            rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
            while *rung == seen {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || gone() {
                    return None;
                }
                let waited = bell.heard.wait_timeout(rung, left.min(GLANCE));
                rung = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn whoever_waits_finds_each_thing_that_happens() {
        let (bell, happened) = (Arc::new(Bell::default()), Arc::new(AtomicUsize::new(0)));
        let waiter = {
            let (bell, happened) = (Arc::clone(&bell), Arc::clone(&happened));
            std::thread::spawn(move || {
                (1..=1000_usize).all(|count| {
                    let enough = || (happened.load(Ordering::Relaxed) >= count).then_some(());
                    bell.place(9).unwrap().wait(far(), || false, enough).is_some()
                })
            })
        };
        for _ in 0..1000 {
            happened.fetch_add(1, Ordering::Relaxed);
            bell.ring();
        }
        assert!(waiter.join().unwrap());
        assert_eq!(bell.waiting(), 0);
    }

    #[test]
    fn nobody_waits_longer_than_it_may_or_for_a_caller_that_is_gone() {
        let bell = Bell::default();
        assert_eq!(bell.place(9).unwrap().wait(Instant::now(), || false, || None::<()>), None);
        let gone = AtomicBool::new(false);
        let look = || {
            gone.store(true, Ordering::Relaxed);
            None::<()>
        };
        assert_eq!(bell.place(9).unwrap().wait(far(), || gone.load(Ordering::Relaxed), look), None);
        assert_eq!(bell.waiting(), 0);
    }

    #[test]
    fn no_more_wait_than_there_are_places_however_many_come_at_once() {
        let bell = Arc::new(Bell::default());
        let arrived = Arc::new(AtomicUsize::new(0));
        let all = [0, 1].map(|_| {
            let (bell, arrived) = (Arc::clone(&bell), Arc::clone(&arrived));
            std::thread::spawn(move || {
                // A barrier of the library wakes them one after the other, and so too far apart.
                let together = |round: usize| {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    while arrived.load(Ordering::SeqCst) < 2 * round {
                        std::thread::yield_now();
                    }
                };
                let mut most = 0;
                for round in 0..20_000 {
                    together(2 * round + 1);
                    let place = bell.place(1);
                    together(2 * round + 2);
                    most = most.max(bell.waiting());
                    drop(place);
                }
                most
            })
        });
        assert!(all.map(|thread| thread.join().unwrap()).iter().all(|most| *most <= 1));
        assert_eq!(bell.waiting(), 0);
    }
}
