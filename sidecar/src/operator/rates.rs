//! How often rules were used, as a bucket of requests for each: full at first, and refilled as fast as the rule says.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use understudy_policies::Rate;

/// Of one container.
#[derive(Debug, Default)]
pub struct Rates(Mutex<HashMap<(String, u32, u64), Bucket>>);

/// More rules with a rate than any policy has. With more, they are as if never used.
const MOST: usize = 4096;

#[derive(Debug)]
struct Bucket {
    /// When it would be full: each request puts it off.
    full: Instant,
}

impl Rates {
    /// Takes a request out of the first of these rules' buckets that has one.
    ///
    /// # Errors
    /// How long until there is one.
    pub fn take(&self, rates: &[(String, Rate)], now: Instant) -> Result<(), Duration> {
        if rates.is_empty() {
            return Ok(());
        }
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST {
            buckets.retain(|_, bucket| bucket.full > now);
        }
        let mut shortest = Duration::MAX;
        for (place, rate) in rates {
            // Another rate at the same place is another rule.
            let key = (place.clone(), rate.requests, rate.per.as_secs());
            let bucket = buckets.entry(key).or_insert(Bucket { full: now });
            match bucket.take(*rate, now) {
                Ok(()) => return Ok(()),
                Err(wait) => shortest = shortest.min(wait),
            }
        }
        Err(shortest)
    }
}

impl Bucket {
    fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let each = rate.per / rate.requests;
        let full = self.full.max(now) + each;
        let allowed = now + rate.per;
        if full > allowed {
            return Err(full - allowed);
        }
        self.full = full;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> (String, Rate) {
        (format!("p.toml:{text}"), text.parse().unwrap())
    }

    #[test]
    fn so_many_requests_pass_and_more_as_time_goes_by() {
        let (rates, start) = (Rates::default(), Instant::now());
        let limits = [rate("60/m")];
        let passed = |at: Instant| (0..1000).filter(|_| rates.take(&limits, at).is_ok()).count();
        assert_eq!(passed(start), 60);
        assert_eq!(rates.take(&limits, start), Err(Duration::from_secs(1)));
        assert_eq!(passed(start + Duration::from_secs(10)), 10);
        assert_eq!(passed(start + Duration::from_secs(3600)), 60);
        assert_eq!(rates.take(&[], start), Ok(()));
    }

    #[test]
    fn any_rule_with_room_lets_it_through() {
        let (rates, now) = (Rates::default(), Instant::now());
        let limits = [rate("1/h"), rate("2/m")];
        assert_eq!((0..10).filter(|_| rates.take(&limits, now).is_ok()).count(), 3);
        assert_eq!(rates.take(&limits, now), Err(Duration::from_secs(30)));
    }
}
