//! `notify = ["COMMAND"]`: the operator's command is told of what containers do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::{Sidecar, VALUE, agent};

/// Bound to `api.example.com`, which no policy here allows.
const TOKEN: &str = "env = \"TOKEN\"";
const ASKING: [(&str, &str); 4] = [
    ("understudy.harness", "generic"),
    ("understudy.policy", "web"),
    ("understudy.mode", "ask"),
    ("understudy.secrets", "token"),
];
/// As long as nobody answers, a request to such a host waits.
const CURL: &str = "curl() { command curl -sk --noproxy '*' -o /dev/null --max-time \"$@\" || true; }\n";

impl Sidecar {
    /// The command is `sh -c script a-word`; `TOLD` in it is a file.
    fn notifying(script: &str) -> Self {
        let mut sidecar = Self::new();
        sidecar.write("value", VALUE);
        sidecar.declare("token", &format!("{}\n{TOKEN}", sidecar.file("value")));
        sidecar.write(
            "config/policies/web.toml",
            "[[allow]]\nhost = \"b.example\"\n[[deny]]\nhost = \"*.bad.example\"\n",
        );
        let script = script.replace("TOLD", &sidecar.path("state/told").display().to_string());
        sidecar.notify_by(&["sh", "-c", &script, "a-word"]);
        sidecar.start(&[]);
        sidecar
    }

    fn notify_by(&self, words: &[&str]) {
        let words = serde_json::to_string(words).unwrap();
        self.write("config/sidecar.toml", &format!("resolvers = [\"127.0.0.1:1\"]\nnotify = {words}\n"));
    }

    fn agent(&self, name: &str, script: &str) -> String {
        agent::run(self, name, &ASKING, &format!("{CURL}{script}"))
    }

    /// Lines that the command wrote.
    fn notified(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path("state/told")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn until_notified(&self, count: usize) -> Vec<serde_json::Value> {
        self.until("the command was told", || self.notified().len() >= count);
        self.notified()
    }
}

fn short(facts: &[serde_json::Value]) -> Vec<String> {
    let text = |fact: &serde_json::Value, key: &str| fact[key].as_str().unwrap_or("-").to_owned();
    let short = |fact| format!("{} {} {}", text(fact, "event"), text(fact, "host"), text(fact, "reason"));
    facts.iter().map(short).collect()
}

#[test]
fn a_question_a_leak_and_a_first_refusal_are_on_standard_input_and_nowhere_else() {
    let sidecar = Sidecar::notifying("cat >> TOLD; { tr '\\0' ' ' < /proc/$$/cmdline; env; } >> TOLD.around");
    let script = "curl 20 https://x.bad.example/\n\
                  curl 20 https://x.bad.example/again\n\
                  curl 20 -H \"Authorization: Bearer $TOKEN\" https://b.example/\n\
                  curl 2 https://docs.example.com/\n\
                  curl 20 https://\u{fc}.bad.example/";
    sidecar.agent("agent", script);
    let facts = sidecar.until_notified(4);
    assert_eq!(
        short(&facts),
        [
            "denied x.bad.example denied-by-rule",
            "leak b.example credential-misdirected",
            "ask docs.example.com -",
            "denied xn--tda.bad.example denied-by-rule",
        ]
    );
    assert!(facts.iter().all(|fact| fact["container"] == "agent" && fact["port"] == 443), "{facts:#?}");
    assert_eq!(facts[1]["secrets"], serde_json::json!(["token"]));
    let around = fs::read_to_string(sidecar.path("state/told.around")).unwrap();
    assert!(around.contains("a-word"), "{around}");
    for word in ["example", "agent", "token", "tok_", "denied"] {
        assert!(!around.replace("state/told", "").contains(word), "{word}: {around}");
    }
    // One that has the same name is another container.
    sidecar.agent("agent", "curl 20 https://x.bad.example/");
    assert_eq!(short(&sidecar.until_notified(5)[4..]), ["denied x.bad.example denied-by-rule"]);
}

#[test]
fn a_command_that_hangs_is_killed_with_its_children_and_the_next_event_arrives() {
    let sidecar = Sidecar::notifying(
        "read -r line; echo \"$line\" >> TOLD\n\
         case $line in *one.bad*) sleep 600 & echo $! > TOLD.pid; wait;; esac",
    );
    sidecar.agent("agent", "curl 20 https://one.bad.example/; curl 20 https://two.bad.example/");
    let facts = sidecar.until_notified(2);
    assert_eq!(facts[1]["host"], "two.bad.example", "{facts:#?}");
    let pid = fs::read_to_string(sidecar.path("state/told.pid")).unwrap();
    sidecar.until("the child is gone", || {
        fs::read_to_string(format!("/proc/{}/stat", pid.trim())).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(sidecar.log().contains("\"sh\" was not done after 10 s, and was killed"), "{}", sidecar.log());
}

#[test]
fn one_that_fails_or_prints_much_or_reads_nothing_is_told_of_the_next_event_too() {
    let sidecar = Sidecar::notifying(
        "cat >> TOLD; exec <&-; head -c 9000000 /dev/zero; head -c 9000000 /dev/zero >&2; exit 7",
    );
    sidecar.agent("agent", "curl 20 https://one.bad.example/; curl 20 https://two.bad.example/");
    assert_eq!(sidecar.until_notified(2)[1]["host"], "two.bad.example");
    sidecar.until("its status is in the log", || sidecar.log().contains("\"sh\" failed: exit status: 7"));
}

#[test]
fn one_that_does_not_exist_is_said_and_keeps_nothing_from_working() {
    let mut sidecar = Sidecar::notifying("true");
    sidecar.end();
    sidecar.notify_by(&["/no/such/command"]);
    sidecar.start(&[]);
    sidecar.agent("agent", "curl 20 https://one.bad.example/; curl 20 https://two.bad.example/");
    sidecar.until("the log says it", || {
        sidecar.log().matches("\"/no/such/command\" cannot be run").count() == 2
    });
    sidecar.notify_by(&["true"]);
    sidecar.until("status says it", || {
        sidecar.problems().iter().any(|line| line.contains("`notify` was changed"))
    });
}

#[test]
fn a_burst_is_capped_what_was_left_out_is_said_and_another_container_is_heard() {
    let sidecar = Sidecar::notifying(
        "read -r line; echo \"$line\" >> TOLD; while [ -e TOLD ] && ! [ -e TOLD.go ]; do sleep 0.05; done",
    );
    sidecar.agent(
        "loud",
        "for n in $(seq 40); do curl 20 https://$n.bad.example/; done\n\
         for n in $(seq 40); do curl 20 -H \"Authorization: Bearer $TOKEN\" https://b.example/$n; done",
    );
    sidecar.agent("quiet", "curl 20 https://quiet.bad.example/");
    let go = sidecar.path("state/told.go");
    fs::write(&go, "").unwrap();
    fs::set_permissions(&go, fs::Permissions::from_mode(0o644)).unwrap();
    let is_quiet = |fact: &serde_json::Value| fact["container"] == "quiet";
    sidecar.until("the other container is heard", || sidecar.notified().iter().any(is_quiet));
    let facts = sidecar.notified();
    assert!(facts.len() <= 18, "{facts:#?}");
    let left_out: u64 = facts.iter().filter_map(|fact| fact["left-out"].as_u64()).sum();
    assert_eq!(left_out as usize + facts.len(), 81, "{facts:#?}");
    assert!(sidecar.log().contains("events were not told: too much happened at once"));
}
