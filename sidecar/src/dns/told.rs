//! Which denied lookups the audit is told of: each name once, and no flood of names. A query costs a container nothing,
//! and a line costs the host's disk. Pure.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

/// Denied names that are remembered.
const REMEMBERED: usize = 256;
/// Lines at once, and how long it takes until one more may be written.
const BURST: u32 = 128;
const PACE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Told {
    names: LruCache<String, ()>,
    left: u32,
    refilled: Instant,
    unsaid: u64,
}

impl Told {
    pub(super) fn new(now: Instant) -> Self {
        let capacity = NonZeroUsize::new(REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Self { names: LruCache::new(capacity), left: BURST, refilled: now, unsaid: 0 }
    }

    /// Whether to write a line about `name`, and then how many names were left out since the last one.
    pub(super) fn tell(&mut self, name: String, now: Instant) -> Option<u64> {
        if self.names.put(name, ()).is_some() {
            return None;
        }
        let passed = now.saturating_duration_since(self.refilled).as_millis() / PACE.as_millis();
        if passed > 0 {
            self.left = self.left.saturating_add(u32::try_from(passed).unwrap_or(BURST)).min(BURST);
            self.refilled = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.unsaid))
            }
            None => {
                self.unsaid += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_once_and_a_flood_is_counted() {
        let start = Instant::now();
        let mut told = Told::new(start);
        assert_eq!(told.tell("a.example".to_owned(), start), Some(0));
        assert_eq!(told.tell("a.example".to_owned(), start), None);
        let lines = (0..10_000).filter(|n| told.tell(format!("n{n}.example"), start).is_some()).count();
        assert_eq!(lines, BURST as usize - 1);
        let later = start + PACE;
        assert_eq!(told.tell("b.example".to_owned(), later), Some(10_000 - u64::from(BURST) + 1));
        assert_eq!(told.tell("c.example".to_owned(), later), None);
        // Years of silence are no more than one burst.
        let late = start + Duration::from_secs(1 << 40);
        let lines = (0..10_000).filter(|n| told.tell(format!("m{n}.example"), late).is_some()).count();
        assert_eq!(lines, BURST as usize);
    }
}
