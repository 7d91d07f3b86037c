//! Audit lines in a file of the operator's choice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Sidecar, USER, agent};

#[test]
fn lines_go_to_the_file_that_is_named_and_to_the_next_when_it_is_full() {
    let mut sidecar = Sidecar::new();
    let file = sidecar.path("state/audit.jsonl");
    let table = format!("[audit]\nfile = {file:?}\nmax-size = \"64K\"\nkeep = 1\nsync = \"write\"\n");
    sidecar.write("config/sidecar.toml", &format!("resolvers = [\"127.0.0.1:1\"]\n{table}"));
    sidecar.start(&[]);
    let long = "x".repeat(900);
    let script = format!(
        "for n in $(seq 90); do curl -sk --noproxy '*' --max-time 20 -o /dev/null https://x.example/$n/{long}; done"
    );
    agent::run(&sidecar, "agent", &[("understudy.harness", "generic")], &script);
    let root = sidecar.root.path().to_owned();
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let all = || [lines("state/audit.jsonl.1"), lines("state/audit.jsonl")].concat();
    let requests = || all().into_iter().filter(|line| line.contains("\"protocol\":\"https\"")).count();
    sidecar.until("each request has its line", || requests() == 90);
    for line in all() {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["schema"], &line["container"]), (&1.into(), &"agent".into()), "{line}");
    }
    let meta = fs::metadata(sidecar.path("state/audit.jsonl.1")).unwrap();
    assert!(meta.len() <= 64 << 10 && meta.len() > 32 << 10, "{}", meta.len());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    // They are there for the operator after a restart, too, from the oldest file on.
    sidecar.end();
    sidecar.start(&[]);
    let shown = |words: &[&str]| sidecar.told(words);
    let https = |text: &str| text.lines().filter(|line| line.contains("\"protocol\":\"https\"")).count();
    assert_eq!(https(&shown(&["log", "--json"])), 90);
    assert_eq!(https(&shown(&["log", "--json", "--host", "y.example"])), 0);
    assert_eq!(https(&shown(&["log", "--json", "--container", "agent", "--denied", "--since", "1h"])), 90);
    assert_eq!(
        https(&shown(&["log", "--json", "--from", file.to_str().unwrap()])),
        lines("state/audit.jsonl").iter().filter(|line| line.contains("\"https\"")).count()
    );
    assert!(
        shown(&["learn", "agent"]).contains("# 90 requests\n[[allow]]\nhost = \"x.example\""),
        "{}",
        shown(&["learn", "agent"])
    );
    // Another file is nothing that a reload begins, and status says so for as long as it is so.
    sidecar.write("config/sidecar.toml", "resolvers = [\"127.0.0.1:1\"]\n");
    let told = || sidecar.problems().iter().any(|line| line.contains("`audit` was changed"));
    sidecar.until("status says that it takes a restart", told);
    sidecar.write("config/policies/web.toml", "[[deny]]\nhots = \"x.example\"\n");
    let reloaded = || sidecar.problems().iter().any(|line| line.contains("web.toml:2:1"));
    sidecar.until("it reads its files again", reloaded);
    assert!(told());
}

#[test]
fn one_that_cannot_be_opened_keeps_the_sidecar_from_starting() {
    let sidecar = Sidecar::new();
    let file = sidecar.path("absent/audit.jsonl");
    sidecar.write("config/sidecar.toml", &format!("[audit]\nfile = {file:?}\n"));
    let output = sidecar.output("serve", &["config", "state", "control"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("sidecar.toml: audit: file"), "{said}");
}

/// The kernel takes no more of any file than this process may write, as a full disk does, until it may write more. It sends
/// SIGXFSZ, too, which would end the process.
#[test]
fn a_file_that_takes_no_more_for_a_while_costs_no_line_and_status_says_so() {
    let mut sidecar = Sidecar::new();
    let file = sidecar.path("state/audit.jsonl");
    sidecar.write(
        "config/sidecar.toml",
        &format!(
            "resolvers = [\"127.0.0.1:1\"]\n[audit]\nfile = {file:?}\nmax-size = \"8M\"\nsync = \"write\"\n"
        ),
    );
    sidecar.start(&[]);
    assert_eq!(sidecar.problems(), Vec::<String>::new());
    // By whoever it runs as: nobody else may.
    let may_write = |most: &str| {
        let mut limit = Command::new("prlimit");
        limit.arg(format!("--pid={}", sidecar.pid().as_raw_nonzero())).arg(format!("--fsize={most}:"));
        if rustix::process::geteuid().is_root() {
            limit.uid(USER).gid(USER);
        }
        assert!(limit.status().unwrap().success());
    };
    may_write("49152");
    let long = "x".repeat(900);
    let script = format!(
        "for n in $(seq 100); do curl -sk --noproxy '*' --max-time 20 -o /dev/null https://x.example/$n/{long}; done"
    );
    agent::run(&sidecar, "agent", &[("understudy.harness", "generic")], &script);
    let told = || sidecar.problems().iter().any(|line| line.starts_with("the audit cannot be written: "));
    sidecar.until("status says it", told);
    let numbers = || -> Vec<u64> {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let https = lines.filter(|line| line["protocol"] == "https");
        https.map(|line| line["path"].as_str().unwrap().split('/').nth(1).unwrap().parse().unwrap()).collect()
    };
    assert!(numbers().len() < 100);
    may_write("unlimited");
    sidecar.until("it is written", || sidecar.problems().is_empty());
    assert_eq!(numbers(), (1..=100).collect::<Vec<u64>>());
    assert!(sidecar.told(&["metrics"]).contains("understudy_audit_lost_total 0\n"));
}
