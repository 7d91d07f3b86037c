//! A policy of what a container was refused, or was let through without a rule. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::Value;
use understudy_policies::{HostName, PathPattern};

use super::filter::Filter;
use super::{Call, kept};
use crate::output::Output;
use crate::policy_files::Proposed;

/// Paths of one host that are written; more of them make the rule one for the whole host.
const MOST_PATHS: usize = 12;

#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    /// None: it was looked up, and never connected to.
    methods: BTreeSet<String>,
    paths: BTreeSet<String>,
    /// A path that cannot be written as a rule.
    other_paths: bool,
}

const HEAD: &str = "# What a container was refused, or was let through without a rule. The agent chose these hosts: look at each before you \
use it.\n# Save it as ~/.config/understudy/policies/NAME.toml, and run `understudy check`.\n";

/// Prints what the lines that the sidecar still has make of `container`.
pub fn run(container: &str, output: Output, call: Call<'_>) -> Result<()> {
    let filter = Filter { container: Some(container.to_owned()), ..Filter::default() };
    let lines = kept(call)?.into_iter().filter_map(|line| serde_json::from_str(&line).ok());
    let lines: Vec<Value> = lines.filter(|line| filter.matches(line)).collect();
    if lines.is_empty() {
        bail!(
            "no audit line of a container {container:?} is kept; list the containers with: understudy status"
        );
    }
    output.print(&Proposed::new(policy(&lines), Vec::new())?, |proposed| proposed.policy.clone())
}

/// `lines` are those of one container.
pub fn policy(lines: &[Value]) -> String {
    let mut seen: BTreeMap<(HostName, u16), Seen> = BTreeMap::new();
    for line in lines.iter().filter(|line| is_without_rule(line)) {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let Some(host) = text("host").and_then(|host| host.parse().ok()) else { continue };
        let port = line.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let seen = seen.entry((host, port.unwrap_or(443))).or_default();
        seen.requests += u64::from(port.is_some());
        seen.methods.extend(text("method").filter(|method| is_method(method)).map(str::to_owned));
        if let Some(path) = text("path") {
            let path = path.split('?').next().unwrap_or_default();
            // `{name}` stands for a stand-in, and a star would be a wildcard.
            match path.contains(['*', '{']) || path.parse::<PathPattern>().is_err() {
                true => seen.other_paths = true,
                false => drop(seen.paths.insert(path.to_owned())),
            }
        }
    }
    let mut text = HEAD.to_owned();
    if seen.is_empty() {
        text.push_str("#\n# Nothing was refused for want of a rule.\n");
    }
    for ((host, port), seen) in &seen {
        let _ = write!(text, "\n# {}\n[[allow]]\nhost = \"{host}\"\n", requests(seen.requests));
        if *port != 443 {
            let _ = writeln!(text, "port = {port}");
        }
        if !seen.methods.is_empty() {
            let _ = writeln!(text, "methods = [{}]", quoted(&seen.methods));
        }
        if seen.paths.len() > MOST_PATHS || seen.other_paths {
            let _ = writeln!(
                text,
                "# {} paths, so all are allowed",
                seen.paths.len() + usize::from(seen.other_paths)
            );
        } else if !seen.paths.is_empty() {
            let _ = writeln!(text, "paths = [{}]", quoted(&seen.paths));
        }
    }
    text
}

fn is_without_rule(line: &Value) -> bool {
    let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
    let unlisted = ["host-not-allowed", "port-not-allowed", "method-not-allowed", "path-not-allowed"];
    match text("decision") {
        "denied" => unlisted.contains(&text("reason")),
        _ => text("rule") == "mode log" || text("rule").starts_with("operator"),
    }
}

fn is_method(method: &str) -> bool {
    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn requests(count: u64) -> String {
    match count {
        0 => "looked up only".to_owned(),
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

fn quoted(items: &BTreeSet<String>) -> String {
    items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use understudy_policies::{Policy, PolicySet, Request, Verdict};

    use super::*;

    #[test]
    fn what_was_refused_for_want_of_a_rule_is_proposed_and_nothing_else() {
        let denied = |host: &str, port: u16, method: &str, path: &str, reason: &str| json!({"decision": "denied", "host": host, "port": port, "method": method, "path": path, "reason": reason});
        let mut lines = vec![
            denied("a.example", 443, "GET", "/x?k=", "host-not-allowed"),
            denied("a.example", 443, "POST", "/y", "method-not-allowed"),
            denied("b.example", 8443, "GET", "/*", "port-not-allowed"),
            denied("bad.example", 443, "GET", "/", "denied-by-rule"),
            denied("leak.example", 443, "GET", "/", "real-credential"),
            denied("10.0.0.1", 443, "GET", "/", "host-not-allowed"),
            json!({"decision": "allowed", "host": "c.example", "port": 443, "method": "GET", "path": "/", "rule": "mode log"}),
            json!({"decision": "allowed", "host": "d.example", "port": 443, "rule": "web.toml:1"}),
            json!({"decision": "denied", "host": "e.example", "reason": "host-not-allowed", "protocol": "dns"}),
            denied("q.example", 443, "\"]\nhost = 1", "/\"]\n[[allow]]", "host-not-allowed"),
        ];
        lines.extend(
            (0..20).map(|n| denied("many.example", 443, "GET", &format!("/{n}"), "host-not-allowed")),
        );
        let text = policy(&lines);
        let policy = Policy::parse("p", "p.toml", &text).unwrap();
        let set = PolicySet::combine(vec![Arc::new(policy)]);
        for (host, port, method, target, allowed) in [
            ("a.example", 443, "GET", "/x", true),
            ("a.example", 443, "POST", "/y", true),
            ("a.example", 443, "GET", "/z", false),
            ("b.example", 8443, "GET", "/any", true),
            ("b.example", 443, "GET", "/any", false),
            ("bad.example", 443, "GET", "/", false),
            ("leak.example", 443, "GET", "/", false),
            ("c.example", 443, "GET", "/", true),
            ("d.example", 443, "GET", "/", false),
            ("e.example", 443, "GET", "/", true),
            ("many.example", 443, "GET", "/any", true),
            ("many.example", 443, "POST", "/any", false),
        ] {
            let host = host.parse().unwrap();
            let verdict = set.decide_request(&Request::new(&host, port, method, target));
            assert_eq!(matches!(verdict, Verdict::Allowed { .. }), allowed, "{host}{target}\n{text}");
        }
        assert!(
            text.contains("# 2 requests\n[[allow]]\nhost = \"a.example\"")
                && text.contains("# looked up only\n")
        );
    }

    #[test]
    fn nothing_makes_an_empty_policy() {
        assert!(Policy::parse("p", "p.toml", &policy(&[])).unwrap().rules().is_empty());
    }
}
