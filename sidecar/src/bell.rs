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

    /// What `look` finds: at once, or after a ring. None at the deadline, and once `gone` says so.
    pub fn wait<T>(
        &self,
        deadline: Instant,
        gone: impl Fn() -> bool,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let _place = Place::take(&self.waiting);
        fence(Ordering::SeqCst);
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let seen = *rung;
            drop(rung);
            if let Some(found) = look() {
                return Some(found);
            }
            rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            while *rung == seen {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || gone() {
                    return None;
                }
                let waited = self.heard.wait_timeout(rung, left.min(GLANCE));
                rung = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// One who waits, counted until it is dropped.
struct Place<'b>(&'b AtomicUsize);

impl<'b> Place<'b> {
    fn take(waiting: &'b AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
                    bell.wait(far(), || false, enough).is_some()
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
        assert_eq!(bell.wait(Instant::now(), || false, || None::<()>), None);
        let gone = AtomicBool::new(false);
        let look = || {
            gone.store(true, Ordering::Relaxed);
            None::<()>
        };
        assert_eq!(bell.wait(far(), || gone.load(Ordering::Relaxed), look), None);
        assert_eq!(bell.waiting(), 0);
    }
}
