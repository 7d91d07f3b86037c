//! The installed hook, called with what no runtime would give it: a precise error, nothing on stdout, nothing made.

use std::process::Command;

use serde_json::{Value, json};
use understudy_integration_tests::podman::{Outcome, run};
use understudy_integration_tests::stand::as_owner;

use crate::stand;

/// A configuration as Podman writes it, of another machine: its bundle does not exist here.
const SAMPLE: &str = include_str!("../../../hook/src/precreate/samples/none-5.4.2.json");

/// As Podman runs a stage: root of its user namespace, no environment.
fn stage(stage: &str, stdin: &[u8]) -> Outcome {
    let state = &stand().paths.state;
    let mut command = as_owner("env");
    command.arg("-i").arg(state.join("bin/understudy-hook"));
    command.arg(stage).arg("--state").arg(state).args(["see:", "understudy-hook", "why"]);
    run(&mut command, stdin).unwrap()
}

/// Records that no container of the tests that run beside this one can have.
fn strange_records() -> Vec<String> {
    let podmans: Value = serde_json::from_str(SAMPLE).unwrap();
    let names = std::fs::read_dir(stand().paths.records()).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let known = |name: &str| {
        let digits = name.chars().all(|c| c.is_ascii_hexdigit());
        let repeated = name.chars().all(|c| name.starts_with(c));
        name.len() == 64 && digits && !repeated && !podmans.to_string().contains(name)
    };
    names.filter(|name| !known(name)).collect()
}

fn assert_fails(name: &str, outcome: &Outcome, reason: &str) {
    assert_eq!(outcome.code, Some(1), "{name}: {}", outcome.text());
    assert_eq!(outcome.stdout, "", "{name}");
    assert!(outcome.stderr.contains(reason), "{name}: expected {reason:?} in: {}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{name}: {}", outcome.stderr);
}

fn sample(change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut document: Value = serde_json::from_str(SAMPLE).unwrap();
    document["annotations"]["understudy.harness"] = json!("generic");
    change(&mut document);
    document.to_string().into_bytes()
}

/// Where the container's id comes from.
fn identify(document: &mut Value, source: &str) {
    let mounts = document["mounts"].as_array_mut().unwrap();
    let mount = mounts.iter_mut().find(|mount| mount["destination"] == "/run/.containerenv").unwrap();
    mount["source"] = json!(source);
}

#[test]
fn configurations_that_are_none_fail_the_stage() {
    let whole = sample(|_| ());
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("nothing", Vec::new(), "not"),
        ("an empty object", b"{}".to_vec(), ""),
        ("another type", b"[]".to_vec(), ""),
        ("truncated", whole[..whole.len() / 2].to_vec(), ""),
        ("trailing", [&whole[..], b"{}"].concat(), ""),
        ("not UTF-8", b"{\"ociVersion\":\"\xff\xfe\"}".to_vec(), ""),
        ("2 MiB", vec![b' '; 2 << 20], "more than"),
        ("2 MiB of a good one", [&whole[..], &vec![b' '; 2 << 20]].concat(), "more than"),
        ("deep", [vec![b'['; 100_000], vec![b']'; 100_000]].concat(), ""),
    ];
    for (name, stdin, reason) in cases {
        assert_fails(name, &stage("precreate", &stdin), reason);
    }
    assert_eq!(strange_records(), Vec::<String>::new());
}

#[test]
fn an_id_that_is_a_path_fails_the_stage() {
    let (short, odd) = ("f".repeat(63), format!("{}%2f", "f".repeat(61)));
    for (id, reason) in [
        ("..", "container's directory"),
        ("../../../../etc", "container's directory"),
        ("a/b", "container's directory"),
        ("", "container's directory"),
        ("A", "not an id"),
        (&short, "not an id"),
        (&odd, "not an id"),
    ] {
        let config = sample(|document| {
            identify(document, &format!("/x/overlay-containers/{id}/userdata/.containerenv"));
        });
        assert_fails(id, &stage("precreate", &config), reason);
    }
    assert_eq!(strange_records(), Vec::<String>::new());
}

#[test]
fn a_bundle_that_does_not_exist_is_a_refusal_and_runs_nothing() {
    let outcome = stage("precreate", &sample(|_| ()));
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(document["process"]["args"][1], "refuse", "{}", outcome.text());
    assert!(
        document["process"]["args"][3].as_str().unwrap().contains("no record of the container"),
        "{document:#}"
    );
    let root_gone = sample(|document| document["root"]["path"] = json!("/nonexistent/root"));
    let outcome = stage("precreate", &root_gone);
    let refused =
        serde_json::from_str::<Value>(&outcome.stdout).is_ok_and(|d| d["process"]["args"][1] == "refuse");
    assert!(refused || outcome.code != Some(0), "{}", outcome.text());
}

#[test]
fn states_that_are_none_fail_their_stage() {
    let id = "a".repeat(64);
    let with = |rest: &str| {
        format!(r#"{{"ociVersion":"1.0","id":"{id}","bundle":"/nonexistent",{rest}}}"#).into_bytes()
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "not an OCI state"),
        ("an empty object", b"{}".to_vec(), "missing field"),
        ("truncated", with(r#""status":"created""#)[..40].to_vec(), "not an OCI state"),
        (
            "an id that is a path",
            br#"{"id":"../../x","status":"created","pid":1,"bundle":"/nonexistent"}"#.to_vec(),
            "not an id",
        ),
        ("2 MiB", vec![b' '; 2 << 20], "larger than"),
        ("no process", with(r#""status":"created""#), "no process"),
        ("process 0", with(r#""status":"created","pid":0"#), "process 0"),
        ("another status", with(r#""status":"running","pid":1"#), "running"),
        // its own, in the host's network namespace; it was never prepared
        ("never prepared", with(r#""status":"created","pid":1"#), ""),
        ("a process that is gone", with(r#""status":"created","pid":2147483646"#), "cannot be opened"),
    ];
    for (name, stdin, reason) in &cases {
        assert_fails(name, &stage("create-runtime", stdin), reason);
    }
    for (name, stdin, reason) in &cases[..5] {
        assert_fails(name, &stage("poststop", stdin), reason);
        assert_fails(name, &stage("reattach", stdin), reason);
    }
}

#[test]
fn poststop_of_a_container_that_nobody_knows_is_no_error() {
    let state =
        json!({"ociVersion": "1.0", "id": "b".repeat(64), "status": "stopped", "bundle": "/nonexistent"});
    assert_eq!(stage("poststop", state.to_string().as_bytes()).code, Some(0));
}

#[test]
fn an_installation_that_is_missing_is_named_with_the_remedy() {
    stand();
    let hook = stand().paths.state.join("bin/understudy-hook");
    for name in ["precreate", "create-runtime", "poststop", "reattach"] {
        let outcome = run(Command::new(&hook).args([name, "--state", "/nonexistent/state"]), b"{}").unwrap();
        assert_ne!(outcome.code, Some(0), "{name}");
        if name == "precreate" {
            assert!(
                outcome.stderr.contains("/nonexistent/state") && outcome.stderr.contains("install"),
                "{name}: {}",
                outcome.stderr
            );
        }
    }
}
