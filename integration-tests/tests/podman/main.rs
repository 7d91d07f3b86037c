//! Real rootless Podman, real clients, one stand. Run by `machine/run-tests`, inside `machine/enter`.
//!
//! What a container could or could not do is judged by what arrived in the world, not by what the container says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod aws;
mod bad_input;
mod clients;
mod compose;
mod credentials;
mod dns;
mod exec;
mod guarded;
mod hostile;
mod images;
mod matrix;
mod network;
mod operator;
mod pods;
mod refusals;
mod reload;
mod scrub;
mod shared_mounts;
mod stages;
mod tokens;
mod transfers;
mod transparency;
mod trust;
mod verbs;
mod workspace;

use understudy_integration_tests::podman::Outcome;
use understudy_integration_tests::stand::Stand;

fn stand() -> &'static Stand {
    Stand::shared().unwrap()
}

/// The header's values at the requests for `path`.
fn received(path: &str, header: &str) -> Vec<Option<String>> {
    let requests = stand().requests(path).unwrap();
    requests.iter().map(|request| request.header(header).map(str::to_owned)).collect()
}

/// That nothing for `path` came out.
fn assert_nothing_arrived(path: &str) {
    let requests = stand().requests(path).unwrap();
    assert!(requests.is_empty(), "{requests:?}");
}

/// That the container was refused with words that contain `reason`, by the hook and not by something else.
fn assert_refused(outcome: &Outcome, reason: &str) {
    let text = outcome.text();
    assert_eq!(outcome.code, Some(126), "{text}");
    assert!(
        text.contains("understudy: refused: ") && text.contains(reason),
        "expected {reason:?} in: {text}"
    );
}

fn python(script: &str) -> [&str; 3] {
    ["python3", "-c", script]
}
