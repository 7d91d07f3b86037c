//! Real command-line tools, each in a sealed container against mocks of the real host names, with a stand-in for a login.
//! Run by `machine/run-tests`, after `images/clis`. What is fetched in a minute runs in `make test`; the others are ignored
//! there, and run in `make test-all`.
//!
//! Each run prints a line of the proof matrix that is kept in `docs/harnesses.md`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod accounts;
mod editors;
mod github;
mod google;
mod inside;
mod instructions;
mod keys;
mod mistral;
mod places;
mod providers;
mod recovery;
mod remote_control;
mod several;
mod shopify;
mod terminals;
mod tool;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use understudy_integration_tests::podman::{Container, until};
use understudy_integration_tests::stand::{CLI_IMAGE, PROVIDERS, Stand, import};

/// The one stand of this process: it has the secret of every provider.
fn stand() -> &'static Stand {
    static STAND: OnceLock<Stand> = OnceLock::new();
    STAND.get_or_init(|| {
        let given = PROVIDERS.each_ref().map(|provider| provider.secret);
        let stand = Stand::start(&given, |_| ()).unwrap();
        import(&stand.paths.cache.join("clis.tar"), CLI_IMAGE).unwrap();
        stand
    })
}

/// That no real value is in a container, nor in what lives in it, nor any token that the world made.
fn hunt(container: &Container) {
    hunt_for(container, &[]);
}

/// The same for these values, too.
fn hunt_for(container: &Container, values: &[&str]) {
    let minted = stand().minted().unwrap();
    let minted = minted.iter().map(String::as_str);
    let all: Vec<&str> =
        stand().secrets.all().into_iter().chain(minted).chain(values.iter().copied()).collect();
    let found = stand().hunt(container, &all).unwrap_or_else(|error| {
        let left = container.exec(&["ps", "-eo", "pid,ppid,stat,lstart,comm,args"]);
        panic!("{error:#}\n{left:?}")
    });
    assert!(found.is_empty(), "{found:?}");
}

/// The same in a program that lives and goes on living: `known` is in its memory, so the search has seen that.
fn hunt_living(container: &Container, known: &str, values: &[&str]) {
    let found = stand().hunt(container, &[known]).unwrap();
    let process = |place: &String| {
        let process = place.strip_prefix("memory of ")?.split(' ').next()?.to_owned();
        let line = std::fs::read_to_string(format!("{process}/cmdline")).ok()?;
        // The terminal that it is driven by has seen the same.
        (!line.contains(tool::KEYS)).then_some(process)
    };
    let living: BTreeSet<String> = found.iter().filter_map(process).collect();
    assert!(!living.is_empty(), "{known} is in no memory of the program: {found:?}");
    hunt_for(container, values);
    for process in living {
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        assert!(status.contains("VmRSS:"), "{process} did not live through the search");
    }
}

/// Ends all but the first process: what a program leaves running may keep everybody from looking at it, as Codex does.
fn end(container: &Container) {
    container.exec(&["sh", "-c", "kill -KILL -1"]).unwrap();
    let living = ["pgrep", "--runstates", "DRSTt", "."];
    let ended = || Ok(container.exec(&living)?.stdout.lines().all(|pid| pid == "1"));
    until("the end of what was left", ended).unwrap();
}
