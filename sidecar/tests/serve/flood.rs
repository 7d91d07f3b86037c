//! An agent that floods, with names, requests and bytes that are made to break out of lines, texts and counts: what the operator
//! reads of it is true, readable, and no more than there was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::{Sidecar, agent};

const ANNOTATIONS: [(&str, &str); 2] = [("understudy.harness", "generic"), ("understudy.policy", "flooded")];
const LIMIT: u64 = 150;
/// As docs/audit.md has them.
const FIELDS: [&str; 23] = [
    "schema",
    "time",
    "container",
    "container-id",
    "harness",
    "policy",
    "protocol",
    "host",
    "port",
    "method",
    "path",
    "decision",
    "reason",
    "rule",
    "secrets",
    "status",
    "bytes-up",
    "bytes-down",
    "stand-ins-in-body",
    "scrubbed",
    "duration",
    "detail",
    "lost",
];

/// What a terminal shows as it is, and nothing that steers it or hides text.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric())
}

#[test]
fn a_flood_of_odd_names_and_requests_forges_no_line_and_grows_no_count() {
    let mut sidecar = Sidecar::new();
    let file = sidecar.path("state/audit.jsonl");
    sidecar.write(
        "config/sidecar.toml",
        &format!("resolvers = [\"127.0.0.1:1\"]\n[audit]\nfile = {file:?}\nmax-size = \"64M\"\n"),
    );
    sidecar.write(
        "config/policies/flooded.toml",
        &format!("max-requests = {LIMIT}\n[[allow]]\nhost = \"ok.example\"\n"),
    );
    sidecar.start(&[]);
    let watched = sidecar.path("watched");
    let mut watch = sidecar.program("watch", &["control"]);
    let mut watch = watch
        .stdin(Stdio::null())
        .stdout(fs::File::create(&watched).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();

    let script = format!(
        "$(command -v /usr/bin/python3 || command -v python3) - <<'FLOOD'\n{}\nFLOOD\n",
        include_str!("flood.py")
    );
    let told = agent::run(&sidecar, "agent", &ANNOTATIONS, &script);
    let told = told.lines().find_map(|line| line.strip_prefix("events ")).unwrap();
    let sent: BTreeSet<u64> = told.split(' ').map(|number| number.parse().unwrap()).collect();
    let read = || fs::read_to_string(&file).unwrap();
    sidecar.until("the last line is written", || read().contains("/event-999999-"));

    // Each line is one of ours, with fields of the schema and nothing in them that steers or hides.
    let text = read();
    assert!(is_plain(&text) && text.ends_with('\n'));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut of_event: BTreeMap<u64, u64> = BTreeMap::new();
    for line in &lines {
        let fields: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(fields.iter().all(|field| FIELDS.contains(field)), "{line}");
        assert_eq!(
            (&line["schema"], &line["container"], &line["decision"]),
            (&1.into(), &"agent".into(), &"denied".into()),
            "{line}"
        );
        assert!(["dns", "http", "https", "tcp"].contains(&line["protocol"].as_str().unwrap()), "{line}");
        for field in ["host", "method", "path", "detail"] {
            let text = line.get(field).and_then(Value::as_str).unwrap_or_default();
            assert!(text.chars().count() <= 1024 + "...".len() && is_plain(text), "{line}");
        }
        if let Some(rest) =
            line.get("path").and_then(Value::as_str).and_then(|path| path.strip_prefix("/event-"))
        {
            *of_event.entry(rest.split('-').next().unwrap().parse().unwrap()).or_default() += 1;
        }
    }
    // One for each request, neither more nor less. Three of a number came on one connection.
    let once: BTreeSet<u64> =
        of_event.iter().filter(|(_, count)| **count == 1).map(|(event, _)| *event).collect();
    assert!(sent.is_subset(&once), "{:?}", sent.difference(&once));
    assert!(of_event.values().all(|count| matches!(count, 1 | 3)), "{of_event:?}");
    // One at least for each connection, and of those that are no requests one at most.
    let of_connections = lines.iter().filter(|line| line["protocol"] != "dns").count();
    assert!((6 * 80 + 1..=60 * 11 + 1).contains(&of_connections), "{of_connections}");
    // All kinds of it came through, what a terminal obeys or hides, too.
    assert!(lines.iter().any(|line| line["path"].as_str().is_some_and(|path| path.contains("\\u{202e}%65"))));
    for (protocol, reason) in [
        ("dns", "host-not-allowed"),
        ("dns", "protocol-not-allowed"),
        ("http", "host-not-allowed"),
        ("http", "malformed"),
        ("https", "handshake-failed"),
        ("tcp", "malformed"),
        ("tcp", "protocol-not-allowed"),
    ] {
        assert!(
            lines.iter().any(|line| line["protocol"] == protocol && line["reason"] == reason),
            "{protocol} {reason}"
        );
    }
    // The limit ended it.
    let reason = |line: &Value| line["reason"].as_str().unwrap().to_owned();
    let last = lines.iter().rfind(|line| line["path"] == "/event-999999-").unwrap();
    assert_eq!((reason(last), &last["status"]), ("limit-reached".to_owned(), &403.into()));
    let unlisted =
        lines.iter().filter(|line| line["protocol"] != "dns" && reason(line) == "host-not-allowed").count();
    assert!(unlisted as u64 <= LIMIT, "{unlisted}");

    // Counts are those of the lines, and no name is in them.
    let metrics = sidecar.told(&["metrics"]);
    assert!(metrics.ends_with("# EOF\n") && is_plain(&metrics), "{metrics}");
    let series: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() < 60 && !metrics.contains("example") && !metrics.contains("agent"), "{metrics}");
    let counted =
        series.iter().filter_map(|line| line.strip_prefix("understudy_requests_total")?.rsplit_once(' '));
    let counted: u64 = counted.map(|(_, count)| count.parse::<u64>().unwrap()).sum();
    assert_eq!(counted, lines.len() as u64);
    assert!(metrics.contains("understudy_audit_lost_total 0\n"));

    // What a person reads is one line for each, and steers no terminal.
    let shown = sidecar.told(&["log"]);
    assert_eq!(shown.lines().count(), lines.len());
    assert!(is_plain(&shown));
    for line in shown.lines() {
        let mut words = line.split(' ');
        let clock = words.next().unwrap();
        assert!(clock.len() == 8 && clock.matches(':').count() == 2, "{line}");
        assert_eq!((words.next(), words.next()), (Some("agent"), Some("denied")), "{line}");
    }
    let status = sidecar.told(&["status"]);
    assert!(is_plain(&status) && status.lines().count() < 40, "{status}");
    sidecar.until("watch has come to the end", || {
        fs::read_to_string(&watched).unwrap().contains("/event-999999-")
    });
    assert!(is_plain(&fs::read_to_string(&watched).unwrap()));
    drop(watch.kill());
    drop(watch.wait());
    // What is learned of it is a policy, and no longer than a person reads.
    let learned = sidecar.told(&["learn", "agent"]);
    assert!(is_plain(&learned) && learned.len() < 100_000, "{learned}");
    sidecar.write("config/policies/learned.toml", &learned);
    let output = sidecar.output("check", &["config", "state", "control"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(sidecar.output("health", &["control"]).status.success());
}
