//! What a container has used of `max-requests`, `max-bytes` and `max-runtime`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use understudy_policies::Limits;

/// Of one container; its container is asked, which ends what runs when a limit is passed.
///
/// A relay, of whatever protocol, counts each chunk right before it hands it on, in either direction, and ends with what it
/// is told if that is an error; it also ends by [`super::ended`], asked at first and after each change of
/// [`crate::container::Container::changing`], for what others have moved and for `max-runtime`:
///
/// ```ignore
/// operator::pass(&container, chunk.len() as u64).map_err(Fault::of)?;
/// ```
#[derive(Debug)]
pub struct Meter {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// `max-bytes`, so that a chunk costs no look at policies.
    most_bytes: AtomicU64,
    ran: Mutex<Ran>,
}

/// How long it ran.
#[derive(Debug, Default)]
struct Ran {
    /// Until it was stopped last.
    before: Duration,
    /// None: it does not run.
    since: Option<Instant>,
}

impl Ran {
    fn elapsed(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What [`Meter::pass`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Within,
    /// These are the bytes that were too many: what runs has to be ended now.
    Passes,
    /// Others were.
    Beyond,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        let meter = Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            most_bytes: AtomicU64::new(u64::MAX),
            ran: Mutex::new(Ran { since: Some(Instant::now()), ..Ran::default() }),
        };
        meter.limit(limits);
        meter
    }

    /// The container does not run for now: a program inside of it that ends gets no limit anew when it is started again.
    pub(crate) fn stop(&self) {
        let mut ran = self.ran();
        *ran = Ran { before: ran.elapsed(), since: None };
    }

    /// It runs again.
    pub(crate) fn resume(&self) {
        self.ran().since.get_or_insert_with(Instant::now);
    }

    fn ran(&self) -> MutexGuard<'_, Ran> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What holds from now on.
    pub(crate) fn limit(&self, limits: Limits) {
        self.most_bytes.store(limits.bytes.unwrap_or(u64::MAX), Relaxed);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Counts bytes that are about to be handed on.
    pub(crate) fn pass(&self, bytes: u64) -> Moved {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        let most = self.most_bytes.load(Relaxed);
        match before.saturating_add(bytes) > most {
            false => Moved::Within,
            true if before <= most => Moved::Passes,
            true => Moved::Beyond,
        }
    }

    /// Counts a request, or a connection that is passed through.
    ///
    /// # Errors
    /// Which limit allows none any more, in words. It is not counted then.
    pub(crate) fn request(&self, limits: Limits) -> Result<(), String> {
        if let Some(reached) = self.reached(limits) {
            return Err(reached);
        }
        let most = limits.requests.unwrap_or(u64::MAX);
        let counted = self.requests.fetch_update(Relaxed, Relaxed, |count| (count < most).then(|| count + 1));
        counted.map(drop).map_err(no_more_requests)
    }

    /// Each limit by its key in a policy, with what was used of it and how much there is; of `max-runtime`, in seconds.
    pub fn used(&self, limits: Limits) -> Vec<(&'static str, u64, u64)> {
        let ran = self.ran().elapsed().as_secs();
        let each = [
            ("max-requests", self.requests(), limits.requests),
            ("max-bytes", self.bytes(), limits.bytes),
            ("max-runtime", ran, limits.runtime.map(|most| most.as_secs())),
        ];
        each.into_iter().filter_map(|(name, used, most)| Some((name, used, most?))).collect()
    }

    /// Which limit allows no new request any more, in words.
    pub(crate) fn reached(&self, limits: Limits) -> Option<String> {
        let requests = self.requests.load(Relaxed);
        if limits.requests.is_some_and(|most| requests >= most) {
            return Some(no_more_requests(requests));
        }
        self.used_up(limits, |bytes, most| bytes >= most)
    }

    /// Which limit ends what runs, in words.
    pub(crate) fn over(&self, limits: Limits) -> Option<String> {
        // Nobody has to be cut off for the very last byte.
        self.used_up(limits, |bytes, most| bytes > most)
    }

    /// When `max-runtime` is over. None: never.
    pub(crate) fn deadline(&self, limits: Limits) -> Option<Instant> {
        let ran = self.ran();
        ran.since?.checked_add(limits.runtime?.saturating_sub(ran.before))
    }

    fn used_up(&self, limits: Limits, are_too_many: impl Fn(u64, u64) -> bool) -> Option<String> {
        let (bytes, runtime) = (self.bytes(), self.ran().elapsed());
        if limits.bytes.is_some_and(|most| are_too_many(bytes, most)) {
            return Some(format!("it has moved {bytes} bytes, and `max-bytes` allows no more"));
        }
        let over = limits.runtime.is_some_and(|most: Duration| runtime >= most);
        over.then(|| format!("it has run for {} s, and `max-runtime` allows no more", runtime.as_secs()))
    }
}

fn no_more_requests(requests: u64) -> String {
    format!("it has made {requests} requests, and `max-requests` allows no more")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn requests(most: u64) -> Limits {
        Limits { requests: Some(most), ..Limits::default() }
    }

    fn bytes(most: u64) -> Limits {
        Limits { bytes: Some(most), ..Limits::default() }
    }

    #[test]
    fn each_limit_is_reached_at_its_number_and_not_before() {
        let meter = Meter::new(Limits::default());
        meter.ran().before = Duration::from_secs(100);
        (0..5).for_each(|_| meter.request(Limits::default()).unwrap());
        meter.pass(1000);
        let runtime = |most| Limits { runtime: Some(Duration::from_secs(most)), ..Limits::default() };
        for (limits, reached, over) in [
            (Limits::default(), None, false),
            (requests(6), None, false),
            (requests(5), Some("`max-requests`"), false),
            (requests(0), Some("`max-requests`"), false),
            (bytes(1001), None, false),
            (bytes(1000), Some("`max-bytes`"), false),
            (bytes(999), Some("`max-bytes`"), true),
            (runtime(3600), None, false),
            (runtime(100), Some("`max-runtime`"), true),
            (requests(6).and(bytes(1001)).and(runtime(3600)), None, false),
            (requests(6).and(bytes(1001)).and(runtime(1)), Some("`max-runtime`"), true),
        ] {
            let said = meter.reached(limits);
            assert_eq!(said.is_some(), reached.is_some(), "{limits:?}: {said:?}");
            assert!(reached.is_none_or(|reached| said.unwrap().contains(reached)), "{limits:?}");
            assert_eq!(meter.over(limits).is_some(), over, "{limits:?}");
        }
    }

    #[test]
    fn time_counts_while_it_runs_and_goes_on_when_it_runs_again() {
        let (meter, runtime) = (Meter::new(Limits::default()), Duration::from_secs(100));
        let limits = Limits { runtime: Some(runtime), ..Limits::default() };
        meter.ran().before = Duration::from_secs(60);
        meter.stop();
        let ran = meter.ran().elapsed();
        assert!(ran >= Duration::from_secs(60) && meter.deadline(limits).is_none());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(meter.ran().elapsed(), ran);
        meter.resume();
        assert!(meter.deadline(limits).unwrap() <= Instant::now() + Duration::from_secs(40));
        meter.resume();
        meter.stop();
        meter.stop();
        assert!(meter.ran().elapsed() < Duration::from_secs(70));
    }

    #[test]
    fn one_of_many_chunks_passes_the_limit_and_a_raised_one_is_passed_anew() {
        let meter = Meter::new(bytes(10));
        let moved = [10, 0, 1, 1].map(|bytes| meter.pass(bytes));
        assert_eq!(moved, [Moved::Within, Moved::Within, Moved::Passes, Moved::Beyond]);
        meter.limit(bytes(20));
        assert_eq!([8, 1].map(|bytes| meter.pass(bytes)), [Moved::Within, Moved::Passes]);
        assert_eq!(Meter::new(Limits::default()).pass(u64::MAX), Moved::Within);
    }

    #[test]
    fn no_more_requests_than_are_allowed_are_made_at_once() {
        const ROUNDS: usize = 20_000;
        let meters: Arc<Vec<Meter>> = Arc::new((0..ROUNDS).map(|_| Meter::new(Limits::default())).collect());
        let together = Arc::new(std::sync::Barrier::new(2));
        let all = [0, 1].map(|_| {
            let (meters, together) = (Arc::clone(&meters), Arc::clone(&together));
            std::thread::spawn(move || {
                let one = |meter: &Meter| {
                    together.wait();
                    usize::from(meter.request(requests(1)).is_ok())
                };
                meters.iter().map(one).sum::<usize>()
            })
        });
        assert_eq!(all.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>(), ROUNDS);
    }
}
