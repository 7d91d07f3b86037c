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
    let script = "ask\nwrite other\nwait_gone 'policy `web`: web.toml'\nask";
    let text = agent::run(&sidecar, "agent", &[HARNESS, POLICY], &format!("{}{script}", sidecar.steps()));
    assert_eq!(told(&text), ["reason: policy-failed", "reason: host-not-allowed"], "{text}");
}
