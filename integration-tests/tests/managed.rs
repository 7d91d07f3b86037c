//! The machine's own rules, `/etc/understudy/managed.toml` and the hook that sees every container, as a user's Podman meets
//! them. `machine/enter` puts them where only root writes; run by `machine/run-tests`, on one thread.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

use std::fs;
use std::path::Path;

use understudy_integration_tests::podman::{Outcome, podman, unique, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, Agent, GIT, Stand};

const RULES: &str = "/etc/understudy/managed.toml";

fn stand() -> &'static Stand {
    assert!(Path::new(RULES).exists(), "no {RULES}: run this by machine/run-tests, as root");
    Stand::shared().unwrap()
}

fn assert_refused(outcome: &Outcome, said: &str) {
    let text = outcome.text();
    assert_eq!(outcome.code, Some(126), "{text}");
    assert!(text.contains("understudy: refused: ") && text.contains(said), "expected {said:?} in: {text}");
    assert!(!text.contains("it ran"), "{text}");
}

#[test]
fn what_goes_beyond_a_rule_of_the_machine_is_refused_with_its_name_and_place() {
    stand();
    let ran = ["echo", "it ran"];
    for (key, value, said) in [
        (
            "understudy.allow",
            "evil.example",
            "allows `evil.example` goes beyond managed rule `hosts` (/etc/understudy/managed.toml:2)",
        ),
        (
            "understudy.allow",
            "other.example:8443",
            "allows `other.example:8443` goes beyond managed rule `hosts`",
        ),
        (
            "understudy.allow",
            "api.example:8443",
            "allows `api.example:8443` goes beyond managed rule `deny` (/etc/understudy/managed.toml:3)",
        ),
        ("understudy.policy", "world", "policy `world` goes beyond managed rule `policies.forbid`"),
        ("understudy.secrets", GIT, "secret `git-token` goes beyond managed rule `secrets.forbid`"),
        ("understudy.mode", "log", "mode `log`"),
        (
            "understudy.privacy",
            "strict",
            "annotation understudy.privacy goes beyond managed rule `annotations.forbid`",
        ),
    ] {
        let outcome = Agent::new("generic").annotation(key, value).run(&ran).unwrap();
        assert_refused(&outcome, said);
    }
    assert_refused(
        &Agent::new("codex").run(&ran).unwrap(),
        "harness `codex` goes beyond managed rule `harnesses.forbid`",
    );
    let outcome = Agent::new("generic").annotation("understudy.allow", "evil.example").run(&ran).unwrap();
    assert!(outcome.text().contains("ask the administrator of this machine to change"), "{}", outcome.text());
}

#[test]
fn what_lies_within_runs_and_a_denied_host_stays_denied_below_a_wider_rule() {
    stand();
    let agent = Agent::new("generic").annotation("understudy.allow", "other.example *.wild.example");
    let script = "curl -sS -o /dev/null -w '%{http_code}\n' https://other.example/managed/within; curl -sS https://bad.wild.example/";
    let text = agent.shell(script).unwrap().success().unwrap();
    assert!(text.starts_with("404\n"), "{text}");
    assert!(text.contains("denied-by-rule") && text.contains("/etc/understudy/managed.toml:3"), "{text}");
    assert_eq!(stand().requests("/managed/within").unwrap().len(), 1);
}

#[test]
fn an_operator_stays_below_the_rules_of_the_machine() {
    let stand = stand();
    let agent = Agent::new("generic").start(&["sleep", "infinity"]).unwrap();
    for (host, said) in [("evil.example", "beyond `hosts`"), ("bad.wild.example", "beyond `deny`")] {
        let outcome = stand.operator(&["allow", host, "--container", &agent.name]).unwrap();
        assert!(outcome.code != Some(0) && outcome.text().contains(said), "{}", outcome.text());
    }
    stand.operator(&["allow", "api.example", "--container", &agent.name]).unwrap().success().unwrap();
    let explained = stand.operator(&["explain", "bad.wild.example", "--container", &agent.name]).unwrap();
    assert!(
        explained.code == Some(2) && explained.text().contains("/etc/understudy/managed.toml:3"),
        "{}",
        explained.text()
    );
}

/// The agent's image with a label.
fn labelled(label: &str) -> String {
    let image = unique("localhost/labelled");
    let directory = tempfile::tempdir().unwrap();
    let text = format!("FROM {AGENT_IMAGE}\nLABEL {label}\n");
    fs::write(directory.path().join("Containerfile"), text).unwrap();
    let context = directory.path().display().to_string();
    podman(["build", "--quiet", "--tag", &image, &context]).unwrap().success().unwrap();
    image
}

#[test]
fn what_is_required_of_a_container_is_there_or_it_does_not_start() {
    stand();
    let ran = ["echo", "it ran"];
    let started = |agent: &Agent| assert_eq!(agent.run(&ran).unwrap().success().unwrap(), "it ran\n");
    let guarded =
        |key: &str| Agent::plain().annotation(key, "guarded").annotation("understudy.harness", "generic");
    for key in ["understudy.network", "understudy.network/agent"] {
        let outcome = guarded(key).option("--network=slirp4netns").run(&ran).unwrap();
        assert_refused(
            &outcome,
            "managed rule `require` (/etc/understudy/managed.toml:11) is not met: annotation understudy.network says `guarded` (of all)",
        );
        assert!(outcome.text().contains("--annotation understudy.network=sealed"), "{}", outcome.text());
    }
    started(&Agent::new("generic").annotation("understudy.network", "sealed"));
    // Of an image, by its label.
    let house = Agent::new("generic").image(&labelled("org.example.house=1"));
    for named in [None, Some("harness-only")] {
        let agent = named.map_or(house.clone(), |name| house.clone().annotation("understudy.policy", name));
        let outcome = agent.run(&ran).unwrap();
        assert_refused(
            &outcome,
            "managed rule `require` (/etc/understudy/managed.toml:16) is not met: policy `locked` is not among this container's",
        );
        let remedy = "--annotation \"understudy.policy=harness-only locked\"";
        assert!(outcome.text().contains(remedy), "{}", outcome.text());
    }
    started(&house.annotation("understudy.policy", "harness-only locked"));
    started(&Agent::new("generic").image(&labelled("org.example.home=1")));
}

#[test]
fn containers_with_different_grants_share_no_mount_that_one_may_write_to() {
    stand();
    let project = tempfile::tempdir().unwrap();
    fs::create_dir(project.path().join("sub")).unwrap();
    let volume = unique("volume");
    let having =
        |source: &str, options: &str| Agent::new("generic").option(&format!("-v={source}:/work{options}"));
    let path = |below: &str| project.path().join(below).display().to_string();
    let (at, ran) = (path("."), ["echo", "it ran"]);
    let first = having(&at, "").option(&format!("-v={volume}:/data")).start(&["sleep", "infinity"]).unwrap();
    let other = |agent: Agent| agent.annotation("understudy.allow", "other.example");
    for (source, options) in [(at.as_str(), ""), (&at, ":ro"), (&path("sub"), ""), (&volume, "")] {
        let outcome = other(having(source, options)).run(&ran).unwrap();
        let said = format!(
            "with {}, which has another understudy.allow, beyond managed rule `mounts.shared`",
            first.name
        );
        assert_refused(&outcome, &said);
        assert!(outcome.text().contains("mounts.toml:1"), "{}", outcome.text());
        assert_eq!(having(source, options).run(&ran).unwrap().success().unwrap(), "it ran\n");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().display().to_string();
    assert_eq!(other(having(&elsewhere, "")).run(&ran).unwrap().success().unwrap(), "it ran\n");
    drop(first);
    assert_eq!(other(having(&at, "")).run(&ran).unwrap().success().unwrap(), "it ran\n");
    let _ = podman(["volume", "rm", "--force", &volume]);
}

#[test]
fn who_must_carry_an_annotation_does_not_start_without_one() {
    stand();
    let image = labelled("org.example.agent=yes");
    let ran = ["echo", "it ran"];
    let bare = Agent::plain().option("--network=none");
    let outcome = bare.clone().image(&image).run(&ran).unwrap();
    assert_refused(
        &outcome,
        "managed rule `required` (/etc/understudy/managed.d/agents.toml:1): this container carries no understudy annotation",
    );
    assert!(outcome.text().contains("--annotation understudy.harness=NAME"), "{}", outcome.text());
    // Those that carry one, and those that no rule is about.
    assert_eq!(Agent::new("generic").image(&image).run(&ran).unwrap().success().unwrap(), "it ran\n");
    assert_eq!(bare.run(&ran).unwrap().success().unwrap(), "it ran\n");
}

#[test]
fn a_user_cannot_change_them() {
    stand();
    assert!(fs::write(RULES, "").is_err());
    assert!(fs::remove_file("/usr/share/containers/oci/hooks.d/40-understudy-required.json").is_err());
    assert!(fs::rename("/etc/understudy", "/etc/understudy.away").is_err());
}

/// Here and not among the others, whose containers it would end.
#[test]
fn all_containers_are_revoked_at_once() {
    let stand = stand();
    let agents: Vec<_> = (0..2)
        .map(|_| {
            Agent::new("generic")
                .annotation("understudy.allow", "other.example")
                .start(&["sleep", "infinity"])
                .unwrap()
        })
        .collect();
    let fetch =
        ["curl", "-sS", "-o", "/dev/null", "--max-time", "10", "https://other.example/managed/revoked"];
    for agent in &agents {
        assert_eq!(agent.exec(&fetch).unwrap().code, Some(0));
    }
    let text = stand.operator(&["revoke", "--all"]).unwrap().success().unwrap();
    for agent in &agents {
        assert!(text.contains(&format!("revoked: {}\n", agent.name)), "{text}");
        assert_ne!(agent.exec(&fetch).unwrap().code, Some(0));
        let explained = stand.operator(&["explain", "other.example", "--container", &agent.name]).unwrap();
        assert!(
            explained.code == Some(2) && explained.text().contains("refused: revoked"),
            "{}",
            explained.text()
        );
        podman(["restart", "--time", "0", &agent.name]).unwrap();
        until("its end", || Ok(agent.inspect("{{.State.Running}}")? == "false")).unwrap();
        assert!(agent.logs().unwrap().contains("revoked by the operator"), "{}", agent.logs().unwrap());
    }
    assert_eq!(stand.requests("/managed/revoked").unwrap().len(), 2);
    // One that is made later is another.
    let later = Agent::new("generic").run(&["echo", "it ran"]).unwrap();
    assert_eq!(later.success().unwrap(), "it ran\n");
}
