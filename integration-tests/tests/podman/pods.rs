//! Pods and `--network=container:…`: containers that share a network namespace are one to the sidecar.

use std::fs;

use understudy_integration_tests::podman::{Outcome, podman, unique, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, Agent, GENERIC};

use crate::{assert_nothing_arrived, assert_refused, received, stand};

/// Removed with its containers when dropped.
struct Pod(String);

impl Pod {
    fn create(options: &[&str]) -> Self {
        let name = unique("pod");
        let create = ["pod", "create", "--name", &name];
        podman(create.iter().chain(options)).unwrap().success().unwrap();
        Self(name)
    }

    fn member(&self) -> Agent {
        Agent::plain()
            .option(&format!("--pod={}", self.0))
            .annotation("understudy.harness", "generic")
            .annotation("understudy.policy", "world")
            .annotation("understudy.secrets", GENERIC)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = podman(["pod", "rm", "--force", "--time=0", &self.0]);
    }
}

fn status_of(url: &str) -> [&str; 10] {
    ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30", url, "--http1.1"]
}

fn known() -> Vec<serde_json::Value> {
    let status = stand().operator(&["status", "--json"]).unwrap().success().unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["containers"].as_array().unwrap().clone()
}

fn named(name: &str) -> Option<serde_json::Value> {
    known().into_iter().find(|container| container["name"] == name)
}

#[test]
fn members_of_a_sealed_pod_reach_each_other_and_the_sidecar() {
    let stand = stand();
    let pod = Pod::create(&["--network=none"]);
    let first = pod.member().start(&["sleep", "infinity"]).unwrap();
    let server =
        pod.member().start(&["python3", "-m", "http.server", "3000", "--directory", "/etc"]).unwrap();
    until("the server", || Ok(first.exec(&status_of("http://localhost:3000/hostname"))?.stdout == "200"))
        .unwrap();
    for member in [&first, &server] {
        assert_eq!(member.exec(&status_of("https://other.example/status/200")).unwrap().stdout, "200");
        assert_eq!(member.exec(&status_of("https://denied.example/pod-denied")).unwrap().stdout, "403");
    }
    assert_nothing_arrived("/pod-denied");
    let swapped = r#"curl -sS -o /dev/null -H "x-api-key: $EXAMPLE_API_KEY" https://api.example/pod-swapped"#;
    let third = pod.member().shell(swapped).unwrap();
    assert_eq!(third.code, Some(0), "{}", third.text());
    assert_eq!(received("/pod-swapped", "x-api-key"), [Some(stand.secrets.generic.clone())]);

    let [told, other] = [named(&first.name).unwrap(), named(&server.name).unwrap()];
    assert_eq!((&told["state"], &other["state"]), (&"attached".into(), &"attached".into()), "{told} {other}");
    assert!(told["denied"].as_u64().unwrap() >= 2 && other["denied"] == 0, "{told} {other}");
    let revoked = stand.operator(&["revoke", &server.name]).unwrap().success().unwrap();
    assert!(revoked.contains(&first.name) && revoked.contains(&server.name), "{revoked}");
    assert_ne!(first.exec(&status_of("https://other.example/status/200")).unwrap().stdout, "200");
}

#[test]
fn the_network_of_a_pod_outlives_its_first_member() {
    stand();
    let pod = Pod::create(&["--network=none"]);
    let first = pod.member().start(&["sleep", "infinity"]).unwrap();
    let second = pod.member().start(&["sleep", "infinity"]).unwrap();
    let reaches = |name: &str| {
        let exec = ["exec", name];
        let outcome = podman(exec.iter().chain(&status_of("https://other.example/status/200"))).unwrap();
        assert_eq!(outcome.stdout, "200", "{name}: {}", outcome.text());
    };
    podman(["stop", "--time=0", &first.name]).unwrap().success().unwrap();
    until("the first to be gone", || Ok(named(&first.name).is_none())).unwrap();
    reaches(&second.name);
    podman(["start", &first.name]).unwrap().success().unwrap();
    reaches(&first.name);
    podman(["restart", "--time=0", &second.name]).unwrap().success().unwrap();
    reaches(&first.name);
    reaches(&second.name);
    podman(["pod", "restart", &pod.0]).unwrap().success().unwrap();
    reaches(&first.name);
    reaches(&second.name);
}

#[test]
fn members_that_ask_for_different_things_are_refused() {
    stand();
    let pod = Pod::create(&["--network=none"]);
    let _first = pod.member().start(&["sleep", "infinity"]).unwrap();
    let other = Agent::plain()
        .option(&format!("--pod={}", pod.0))
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "locked");
    let outcome = other.run(&["echo", "it ran"]).unwrap();
    assert_refused(&outcome, "annotation understudy.policy is not what it is at");
    assert!(!outcome.stdout.contains("it ran"));
}

#[test]
fn pods_with_more_than_a_sealed_network_are_refused() {
    stand();
    for (options, reason) in [
        (&["--network=slirp4netns"][..], "create the pod with --network=none"),
        (&["--network=host"], "--network=host"),
        (&["--network=none", "--share=net,pid"], "pid"),
    ] {
        let pod = Pod::create(options);
        let outcome = pod.member().run(&["echo", "it ran"]).unwrap();
        assert!(!outcome.stdout.contains("it ran"), "{options:?}");
        assert_refused(&outcome, reason);
    }
    let pod = Pod::create(&["--network=slirp4netns"]);
    let guarded = pod.member().annotation("understudy.network", "guarded").run(&["true"]).unwrap();
    assert_refused(&guarded, "never guarded");
}

#[test]
fn the_network_of_a_protected_container_can_be_joined_and_no_other() {
    stand();
    let protected = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let joining = |whose: &str| {
        let network = format!("--network=container:{whose}");
        let agent = Agent::plain().option(&network).annotation("understudy.harness", "generic");
        agent.annotation("understudy.policy", "world")
    };
    let reached = joining(&protected.name).run(&status_of("https://other.example/status/200")).unwrap();
    assert_eq!(reached.stdout, "200", "{}", reached.text());
    let plain = Agent::plain().option("--network=none").start(&["sleep", "infinity"]).unwrap();
    let refused = joining(&plain.name).run(&["echo", "it ran"]).unwrap();
    assert_refused(&refused, "another that is not protected");
    // Of a guarded one as well: what shares its network could not be told from it.
    let guarded = Agent::plain()
        .option("--network=slirp4netns")
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "world")
        .annotation("understudy.network", "guarded")
        .start(&["sleep", "infinity"])
        .unwrap();
    assert_refused(&joining(&guarded.name).run(&["true"]).unwrap(), "a network with a way out");
}

fn kube_play(name: &str, annotations: &str) -> (Outcome, Vec<String>) {
    let directory = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let file = directory.path().join("pod.yaml");
    let container = |name: &str| {
        format!(
            "  - name: {name}\n    image: {AGENT_IMAGE}\n    command: [sleep, infinity]\n    imagePullPolicy: Never\n"
        )
    };
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n{annotations}spec:\n  containers:\n{}{}",
        container("one"),
        container("two")
    );
    fs::write(&file, text).unwrap();
    let outcome = podman(["kube", "play", "--network=none", file.to_str().unwrap()]).unwrap();
    (outcome, vec![format!("{name}-one"), format!("{name}-two")])
}

#[test]
fn a_pod_of_kube_play_is_protected_by_its_annotations() {
    stand();
    let name = unique("kube");
    let _pod = Pod(name.clone());
    let (outcome, members) = kube_play(
        &name,
        "    understudy.harness: generic\n    understudy.policy: world\n    understudy.policy/one: world\n",
    );
    outcome.success().unwrap();
    for member in members {
        let exec = ["exec", &member];
        let reached = podman(exec.iter().chain(&status_of("https://other.example/status/200"))).unwrap();
        assert_eq!(reached.stdout, "200", "{member}: {}", reached.text());
        assert_eq!(named(&member).unwrap()["state"], "attached");
    }
}
