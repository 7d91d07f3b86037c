//! The hook's own parts: without one of them the container does not start, or `doctor` says so.

use std::path::PathBuf;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, run};
use understudy_integration_tests::stand::{Agent, scope};

use crate::{assert_closed, stand};

fn state() -> PathBuf {
    stand().paths.state.clone()
}

fn hook(arguments: &[&str]) -> Outcome {
    run(Command::new(stand().paths.program("understudy-hook")).args(arguments), b"").unwrap()
}

/// Changes the installation, tries to start a container, and puts the installation back.
fn with_installation(change: impl Fn(&mut serde_json::Value)) -> Outcome {
    stand();
    let file = state().join("installation.json");
    let before = std::fs::read(&file).unwrap();
    let mut document = serde_json::from_slice(&before).unwrap();
    change(&mut document);
    std::fs::write(&file, document.to_string()).unwrap();
    let outcome = Agent::generic().run(&["echo", "it ran"]);
    std::fs::write(&file, before).unwrap();
    outcome.unwrap()
}

#[test]
fn without_nft_nothing_starts() {
    let outcome = with_installation(|document| document["nft"] = "/nonexistent/nft".into());
    assert_ne!(outcome.code, Some(0));
    assert!(!outcome.text().contains("it ran"), "{}", outcome.text());
}

#[test]
fn an_nft_that_does_nothing_is_noticed() {
    let outcome = with_installation(|document| document["nft"] = "/bin/true".into());
    assert_ne!(outcome.code, Some(0));
    assert!(!outcome.text().contains("it ran"), "{}", outcome.text());
}

#[test]
fn a_damaged_installation_starts_nothing() {
    let outcome = with_installation(|document| document["unknown"] = 1.into());
    assert_ne!(outcome.code, Some(0));
    assert!(!outcome.text().contains("it ran"), "{}", outcome.text());
    let outcome = with_installation(|document| document["version"] = "0.0.0".into());
    assert!(!outcome.text().contains("it ran"), "{}", outcome.text());
}

#[test]
fn a_control_directory_that_others_can_enter_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let control = &stand().paths.control;
    let mode = |mode| std::fs::set_permissions(control, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o755);
    let outcome = Agent::generic().run(&["echo", "it ran"]);
    mode(0o700);
    assert_closed(&outcome.unwrap(), "control");
}

#[test]
fn doctor_agrees_when_all_is_well_and_finds_a_missing_hook() {
    stand();
    let outcome = hook(&["doctor"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.text());
    let binary = state().join("bin/understudy-hook");
    let aside = binary.with_extension("aside");
    std::fs::rename(&binary, &aside).unwrap();
    let broken = hook(&["doctor"]);
    // Podman skips a hook that it cannot find without a word, but in sealed mode there is no network then
    let container =
        Agent::generic().run(&["curl", "-sS", "--max-time", "10", "https://other.example/unhooked"]);
    std::fs::rename(&aside, &binary).unwrap();
    assert_ne!(broken.code, Some(0), "{}", broken.text());
    assert_ne!(container.unwrap().code, Some(0));
    assert!(stand().requests("/unhooked").unwrap().is_empty());
}

#[test]
fn doctor_finds_a_label_where_an_annotation_was_meant() {
    stand();
    let label = "--label=understudy.harness=generic";
    let container = Agent::plain().option("--network=none").option(label).start(&["sleep", "1"]).unwrap();
    let annotated = Agent::generic().option(label).start(&["sleep", "1"]).unwrap();
    let found = hook(&["doctor", "--no-probe"]);
    drop(container);
    let gone = hook(&["doctor", "--no-probe"]);
    drop(annotated);
    assert_ne!(found.code, Some(0));
    assert!(found.stdout.contains("annotations: in a compose file"), "{}", found.text());
    assert_eq!(gone.code, Some(0), "{}", gone.text());
}

#[test]
fn install_twice_is_install_once_and_uninstall_takes_all_away() {
    stand();
    let image = understudy_integration_tests::stand::SIDECAR_IMAGE;
    let install = || hook(&["install", scope(), "--sidecar-image", image]).success().unwrap();
    let hooks = || {
        let find = "find \"$@\" -type f 2>&- | sort | xargs sha256sum";
        let paths = &stand().paths;
        let places = [paths.engine.clone(), paths.state.join("hooks.d")];
        run(Command::new("sh").args(["-c", find, "sh"]).args(places), b"").unwrap().success().unwrap()
    };
    install();
    let once = hooks();
    install();
    assert_eq!(hooks(), once);
    hook(&["uninstall", scope()]).success().unwrap();
    let outcome = Agent::generic().run(&["sh", "-c", "env; ls /run"]).unwrap();
    install();
    assert_eq!(hooks(), once);
    assert!(!outcome.text().contains("understudy-bin"), "{}", outcome.text());
}
