//! What happens when a part is missing, breaks or is taken away. One after another: each breaks the one stand and mends it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod between;
mod control;
mod hook;
mod published;
mod sidecar;
mod state;
mod steps;
mod upgrade;

use understudy_integration_tests::podman::Outcome;
use understudy_integration_tests::stand::Stand;

fn stand() -> &'static Stand {
    Stand::shared().unwrap()
}

/// That the container did not run its command, and that a person is told what is wrong.
fn assert_closed(outcome: &Outcome, reason: &str) {
    let text = outcome.text();
    assert_ne!(outcome.code, Some(0), "{text}");
    assert!(!text.contains("it ran"), "{text}");
    assert!(text.to_lowercase().contains(reason), "expected {reason:?} in: {text}");
}
