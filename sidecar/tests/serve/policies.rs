//! Policies that break while a container runs, and before.

use std::fs;

use crate::{Sidecar, agent};

const GOOD: &str = "[[deny]]\nhost = \"x.example\"\nnote = \"as it was written first\"\n";
const HARNESS: (&str, &str) = ("understudy.harness", "generic");
const POLICY: (&str, &str) = ("understudy.policy", "web");
/// What a page says of a request.
const ASK: &str = "ask() { curl -sk --noproxy '*' --max-time 20 -D - https://x.example/ | tr -d '\\r' | \
                   sed -n 's/^x-understudy-reason: /reason: /p; s/.*\\(as it was written first\\).*/note: \\1/p'; }\n";

impl Sidecar {
    /// Of a script: `write NAME` takes the file `NAME` in the state directory for the policy, and `wait TEXT` waits until
    /// `status` says it.
    fn steps(&self) -> String {
        let [policies, state, control] =
            ["config/policies", "state", "control"].map(|name| self.path(name).display().to_string());
        let program = env!("CARGO_BIN_EXE_understudy");
        format!(
            "write() {{ cp {state}/$1 {policies}/new && mv {policies}/new {policies}/web.toml; }}\n\
             wait_for() {{ for n in $(seq 300); do {program} status --control {control} | grep -qF \"$1\" && return; sleep 0.1; done; echo \"never: $1\"; }}\n\
             wait_gone() {{ for n in $(seq 300); do {program} status --control {control} | grep -qF \"$1\" || return; sleep 0.1; done; echo \"always: $1\"; }}\n{ASK}"
        )
    }
}

fn told(text: &str) -> Vec<&str> {
    let told =
        |line: &&str| ["reason: ", "note: ", "never: ", "always: "].iter().any(|kind| line.starts_with(kind));
    text.lines().filter(told).collect()
}

#[test]
fn a_decision_for_a_time_is_gone_when_it_is_over_without_anybody_asking() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[]);
    let kept = || fs::read_to_string(sidecar.path("state/decisions.json")).unwrap();
    let decided = sidecar.told(&["allow", "a.example", "--for", "1s"]);
    assert!(decided.contains("allow a.example:443 in every container"), "{decided}");
    assert!(kept().contains("a.example"));
    sidecar.until("its end", || !kept().contains("a.example"));
    assert!(!sidecar.told(&["status"]).contains("a.example"));
}

#[test]
fn a_bad_file_leaves_what_was_good_while_a_container_runs_and_denies_what_starts_with_it() {
    let mut sidecar = Sidecar::new();
    sidecar.write("config/policies/web.toml", GOOD);
    sidecar.write("state/bad", "[[deny]]\nhots = \"x.example\"\n");
    sidecar.write("state/other", "[[deny]]\nhost = \"y.example\"\n");
    sidecar.start(&[]);
    let script = "ask\nwrite bad\nwait_for 'web.toml:2:1: unknown key `hots`'\nask\nwrite other\nwait_gone 'policy `web`: web.toml'\nask\nwrite bad\nwait_for 'stays in force'\nask";
    let text = agent::run(&sidecar, "agent", &[HARNESS, POLICY], &format!("{}{script}", sidecar.steps()));
    let kept = ["reason: denied-by-rule", "note: as it was written first"];
    let expected = [&kept[..], &kept, &["reason: host-not-allowed"; 2]].concat();
    assert_eq!(told(&text), expected, "{text}\n{}", sidecar.log());

    // A sidecar that never read a good one has nothing to go back to.
    sidecar.end();
    sidecar.start(&[]);
    assert!(
        sidecar.problems().iter().any(|line| line.contains("policy `web`: web.toml:2:1")),
        "{:?}",
        sidecar.problems()
    );
    let script = "ask\nwait_for 'note: agent: it may do nothing now, by policy `web`: web.toml:2:1'\nwrite other\nwait_gone 'policy `web`: web.toml'\nask\n\
                  wait_gone 'it may do nothing now'\ntrue";
    let text = agent::run(&sidecar, "agent", &[HARNESS, POLICY], &format!("{}{script}", sidecar.steps()));
    assert_eq!(told(&text), ["reason: policy-failed", "reason: host-not-allowed"], "{text}");
}

#[test]
fn a_name_that_is_not_looked_up_says_which_rule_is_in_the_way_and_is_not_learnt() {
    let mut sidecar = Sidecar::new();
    sidecar.write("config/policies/web.toml", "[[deny]]\nhost = \"no.example\"\n");
    sidecar.write("config/policies/bad.toml", "[[deny]]\nhots = \"x.example\"\n");
    sidecar.start(&[]);
    let look_up = "for host in no.example other.example; do curl -sk --noproxy '*' --max-time 20 -o /dev/null https://$host/; done; true";
    agent::run(&sidecar, "agent", &[HARNESS, POLICY], look_up);
    agent::run(&sidecar, "failed", &[HARNESS, ("understudy.policy", "bad")], look_up);
    let names = |container: &str| -> Vec<[String; 3]> {
        let lines = sidecar.told(&["log", "--json", "--container", container]);
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let text = |line: &serde_json::Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let names = lines.filter(|line| line["protocol"] == "dns");
        names.map(|line| ["host", "reason", "rule"].map(|key| text(&line, key))).collect()
    };
    let expected =
        [["no.example", "denied-by-rule", "web.toml:2"], ["other.example", "host-not-allowed", ""]];
    assert_eq!(names("agent"), expected, "{}", sidecar.log());
    assert!(names("failed").iter().all(|[_, reason, _]| reason == "policy-failed"));
    assert_eq!(names("failed").len(), 2);
    let learnt = sidecar.told(&["learn", "agent"]);
    assert!(learnt.contains("other.example") && !learnt.contains("no.example"), "{learnt}");
    assert!(!sidecar.told(&["learn", "failed"]).contains("[[allow]]"));
}

#[test]
fn status_tells_what_is_used_of_a_limit_and_a_refusal_which_policy_has_it() {
    let mut sidecar = Sidecar::new();
    sidecar.write("config/policies/web.toml", "max-requests = 2\nmax-bytes = \"1M\"\n");
    sidecar.start(&[]);
    let script = "ask\nwait_for 'limit: agent: max-requests: 1 of 2'\nask\nwait_for 'limit: agent: max-bytes: 0 of 1048576'\nask\n\
                  curl -sk --noproxy '*' --max-time 20 https://x.example/ | grep -o 'raise it in policy `web`' | sed 's/^/note: /'";
    let text = agent::run(&sidecar, "agent", &[HARNESS, POLICY], &format!("{}{script}", sidecar.steps()));
    let expected = [
        "reason: host-not-allowed",
        "reason: host-not-allowed",
        "reason: limit-reached",
        "note: raise it in policy `web`",
    ];
    assert_eq!(told(&text), expected, "{text}");
}

#[test]
fn explain_of_files_warns_of_what_the_own_ceiling_keeps_from_starting() {
    let sidecar = Sidecar::new();
    sidecar.write("config/policies/web.toml", "[[allow]]\nhost = \"a.example\"\n");
    let explain = || {
        let mut explain = sidecar.program("explain", &["config"]);
        let output = explain.args(["a.example", "--policy", "web"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(explain(), "");
    sidecar.write("config/ceiling.toml", "hosts = [\"b.example\"]\n");
    let said = explain();
    assert!(said.contains("web.toml:2") && said.contains("no container starts with it"), "{said}");
}
