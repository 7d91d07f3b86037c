//! Audit lines in a file of the operator's choice.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::{Sidecar, agent};

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
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(sidecar.path(name)).unwrap_or_default();
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
