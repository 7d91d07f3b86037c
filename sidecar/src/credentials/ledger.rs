//! What was done with each secret since the sidecar started: counts and times, by name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Of one secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    /// Requests that it was swapped into.
    pub swaps: u64,
    /// Requests that were refused because it, or its stand-in, was on its way to where it must not go.
    pub leaks: u64,
    /// Start of the latest request that it was swapped into, in milliseconds since the epoch.
    pub last: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Ledger(Mutex<BTreeMap<String, Uses>>);

impl Ledger {
    pub fn swapped(&self, secrets: &[String], time: u64) {
        self.each(secrets, |uses| {
            uses.swaps += 1;
            uses.last = uses.last.max(Some(time));
        });
    }

    pub fn leaked(&self, secrets: &[String]) {
        self.each(secrets, |uses| uses.leaks += 1);
    }

    pub fn of(&self, secret: &str) -> Uses {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(secret).copied().unwrap_or_default()
    }

    fn each(&self, secrets: &[String], change: impl Fn(&mut Uses)) {
        if secrets.is_empty() {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in secrets {
            match all.get_mut(name) {
                Some(uses) => change(uses),
                None => change(all.entry(name.clone()).or_default()),
            }
        }
    }
}
