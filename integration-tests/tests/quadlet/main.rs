//! What needs systemd: Quadlet units, and a stack that waits for the sidecar's health. Run by `machine/run-tests` in the test bed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod stack;
mod units;

use std::sync::OnceLock;

use understudy_integration_tests::stand::{ANTHROPIC, Stand};

/// One for all; each test has a sidecar of its own instead of this one's.
fn stand() -> &'static Stand {
    static STAND: OnceLock<Stand> = OnceLock::new();
    STAND.get_or_init(|| Stand::start(&[ANTHROPIC], |_| ()).unwrap())
}
