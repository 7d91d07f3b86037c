//! The hook killed at each of its steps: what it had begun starts nothing, the next start works, and what it left
//! with the sidecar goes away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use understudy_control::Channel;
use understudy_integration_tests::podman::{Container, Outcome, podman, run, unique, until};
use understudy_integration_tests::stand::Agent;

use crate::between::{between, deadline, kill_caller, kind};
use crate::stand;

/// Where the installation keeps its programs.
fn state() -> PathBuf {
    stand().paths.state.clone()
}

/// A program of the installation, replaced by a script until this value ends. The program itself is beside it, as
/// `original`.
struct Replaced {
    path: PathBuf,
    original: PathBuf,
}

impl Replaced {
    fn by(path: &Path, script: &str) -> Self {
        let original = path.with_file_name("original");
        fs::rename(path, &original).unwrap();
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { path: path.to_owned(), original }
    }

    /// The hook's program, as Podman runs it.
    fn hook(stage: &str, instead: &str) -> Self {
        let path = state().join("bin/understudy-hook");
        let original = path.with_file_name("original");
        let original = original.display();
        Self::by(&path, &format!("if [ \"$1\" = {stage} ]; then {instead}; fi\nexec {original} \"$@\""))
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        fs::rename(&self.original, &self.path).unwrap();
    }
}

/// A container whose first act would be a request for `path`.
fn asking(path: &str) -> Outcome {
    let url = format!("https://other.example{path}");
    Agent::generic().run(&["curl", "-sS", "--max-time", "20", &url]).unwrap()
}

/// That a start cut short started nothing, and that the next one works.
fn assert_cut_short(step: &str, outcome: &Outcome, path: &str) {
    assert_ne!(outcome.code, Some(0), "{step}: {}", outcome.text());
    assert!(stand().requests(path).unwrap().is_empty(), "{step}: the container ran");
    let next = format!("{path}-next");
    let text = asking(&next).text();
    assert_eq!(stand().requests(&next).unwrap().len(), 1, "{step}: the next start does not work: {text}");
}

fn status() -> String {
    stand().operator(&["status"]).unwrap().success().unwrap()
}

#[test]
fn killed_at_the_beginning_of_a_stage() {
    stand();
    for stage in ["precreate", "create-runtime"] {
        let path = format!("/killed-before-{stage}");
        let replaced = Replaced::hook(stage, "kill -9 $$");
        let outcome = asking(&path);
        drop(replaced);
        assert_cut_short(stage, &outcome, &path);
    }
}

#[test]
fn killed_around_the_question_to_the_sidecar() {
    stand();
    for wanted in ["prepare", "attach"] {
        for moment in ["before", "after"] {
            let step = format!("{moment}-{wanted}");
            let path = format!("/killed-{step}");
            let outcome = between(
                |channel: Channel, question, real| {
                    let hit = kind(&question) == wanted;
                    if hit && moment == "before" {
                        return kill_caller(&channel);
                    }
                    let answer = real.ask(&question);
                    if hit {
                        return kill_caller(&channel);
                    }
                    channel.send(&answer.bytes, &[], deadline()).unwrap();
                },
                || asking(&path),
            );
            assert_cut_short(&step, &outcome, &path);
        }
    }
}

#[test]
fn killed_around_nft() {
    stand();
    let file = state().join("installation.json");
    let before = fs::read(&file).unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&before).unwrap();
    let nft = document["nft"].as_str().unwrap().to_owned();
    let wrapper = state().join("nft");
    document["nft"] = wrapper.to_str().unwrap().into();
    let cases =
        [("before-nft", "kill -9 $PPID".to_owned()), ("after-nft", format!("{nft} \"$@\"; kill -9 $PPID"))];
    for (step, script) in cases {
        fs::write(&wrapper, format!("#!/bin/sh\n{script}\nexec {nft} \"$@\"\n")).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, document.to_string()).unwrap();
        let path = format!("/killed-{step}");
        let outcome = asking(&path);
        fs::write(&file, &before).unwrap();
        fs::remove_file(&wrapper).unwrap();
        assert_cut_short(step, &outcome, &path);
    }
}

#[test]
fn killed_while_placing() {
    stand();
    let path = state().join("guest/understudy-hook");
    let cases = [
        ("before-placing", "kill -9 $$"),
        ("after-placing", "/run/understudy-bin/original \"$@\"; kill -9 $$"),
    ];
    for (step, script) in cases {
        let url = format!("/killed-{step}");
        let replaced = Replaced::by(&path, script);
        let outcome = asking(&url);
        drop(replaced);
        assert_cut_short(step, &outcome, &url);
    }
}

#[test]
fn a_container_whose_start_was_cut_short_can_be_started_again() {
    let stand = stand();
    let name = unique("again");
    let _removed = Container { name: name.clone() };
    let url = "https://other.example/started-again";
    let create = [
        "create",
        "--name",
        &name,
        "--network=none",
        "--annotation=understudy.harness=generic",
        "--annotation=understudy.policy=world",
        understudy_integration_tests::stand::AGENT_IMAGE,
        "curl",
        "-sS",
        url,
    ];
    podman(create).unwrap().success().unwrap();
    let first = between(
        |channel: Channel, question, real| {
            let answer = real.ask(&question);
            if kind(&question) == "attach" {
                return kill_caller(&channel);
            }
            channel.send(&answer.bytes, &[], deadline()).unwrap();
        },
        || podman(["start", "--attach", &name]).unwrap(),
    );
    assert_ne!(first.code, Some(0), "{}", first.text());
    assert!(stand.requests("/started-again").unwrap().is_empty());
    podman(["start", "--attach", &name]).unwrap().success().unwrap();
    assert_eq!(stand.requests("/started-again").unwrap().len(), 1);
}

#[test]
fn a_container_whose_poststop_was_killed_is_forgotten_by_the_next() {
    stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let id = container.inspect("{{.Id}}").unwrap();
    assert!(status().contains(&id[..12]));
    let replaced = Replaced::hook("poststop", "kill -9 $$");
    podman(["rm", "--force", "--time", "0", &container.name]).unwrap();
    drop(replaced);
    assert!(status().contains(&id[..12]), "it was told after all: this shows nothing");
    assert_cut_short_is_forgotten(&id);
}

#[test]
fn what_was_attached_and_never_started_is_forgotten() {
    stand();
    let before = status();
    between(
        |channel: Channel, question, real| {
            let answer = real.ask(&question);
            if kind(&question) == "attach" {
                return kill_caller(&channel);
            }
            channel.send(&answer.bytes, &[], deadline()).unwrap();
        },
        || asking("/attached-and-killed"),
    );
    let records = stand().paths.records();
    let ids: Vec<String> = fs::read_dir(&records)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|id| status().contains(&id[..12]) && !before.contains(&id[..12]))
        .collect();
    let [id] = ids.as_slice() else { panic!("the sidecar has {ids:?} from it: this shows nothing") };
    // as if more than two minutes had passed
    let touch = ["-d", "10 minutes ago"];
    run(Command::new("touch").args(touch).arg(records.join(id)), b"").unwrap().success().unwrap();
    assert_cut_short_is_forgotten(id);
}

/// That another container's whole life makes hook and sidecar forget this one.
fn assert_cut_short_is_forgotten(id: &str) {
    Agent::generic().run(&["true"]).unwrap().success().unwrap();
    until("Detach", || Ok(!status().contains(&id[..12]))).unwrap();
    let record = stand().paths.records().join(id);
    assert!(!record.exists());
}
