//! A policy of what a container was refused, or was let through without a rule. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::Value;
use understudy_policies::{HostName, PathPattern};

use super::filter::Filter;
use super::{Call, From, source};
use crate::output::Output;
use crate::policy_files::Proposed;

/// Paths of one host that are written; more of them make the rule one for the whole host.
const MOST_PATHS: usize = 12;
/// More than any protocol has.
const MOST_METHODS: usize = 16;
/// An agent can make up as many as it likes. Nobody looks through more.
const MOST_HOSTS: usize = 1000;

/// What lines have told so far.
#[derive(Debug, Default)]
pub struct Learned {
    seen: BTreeMap<(HostName, u16), Seen>,
    /// Requests about other hosts than these.
    beyond: u64,
}

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

/// Prints what the lines make of `container`.
pub fn run(container: &str, from: &From, output: Output, call: Call<'_>) -> Result<()> {
    let filter = Filter { container: Some(container.to_owned()), ..Filter::default() };
    let (mut learned, mut any) = (Learned::default(), false);
    let missing = source::read(from.file.as_deref(), call, |_, line| {
        if filter.matches(line) {
            any = true;
            learned.add(line);
        }
        Ok(true)
    })?;
    missing.tell();
    if !any {
        bail!(
            "there is no audit line of a container {container:?}; list the containers with: understudy status"
        );
    }
    output.print(&Proposed::new(learned.policy(), Vec::new())?, |proposed| proposed.policy.clone())
}

impl Learned {
    /// A line of the container.
    pub fn add(&mut self, line: &Value) {
        if !is_without_rule(line) {
            return;
        }
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let Some(host) = text("host").and_then(|host| host.parse().ok()) else { return };
        let port = line.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let key = (host, port.unwrap_or(443));
        if self.seen.len() >= MOST_HOSTS && !self.seen.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        let seen = self.seen.entry(key).or_default();
        seen.requests += u64::from(port.is_some());
        if seen.methods.len() < MOST_METHODS {
            seen.methods.extend(text("method").filter(|method| is_method(method)).map(str::to_owned));
        }
        if let Some(path) = text("path") {
            let path = path.split('?').next().unwrap_or_default();
            // `{name}` stands for a stand-in, and a star would be a wildcard.
            if path.contains(['*', '{']) || path.parse::<PathPattern>().is_err() {
                seen.other_paths = true;
            } else if seen.paths.len() <= MOST_PATHS {
                seen.paths.insert(path.to_owned());
            }
        }
    }

    pub fn policy(&self) -> String {
        let mut text = HEAD.to_owned();
        if self.seen.is_empty() {
            text.push_str("#\n# Nothing was refused for want of a rule.\n");
        }
        if self.beyond > 0 {
            let _ =
                writeln!(text, "#\n# {} requests to more than {MOST_HOSTS} hosts are left out.", self.beyond);
        }
        for ((host, port), seen) in &self.seen {
            let _ = write!(text, "\n# {}\n[[allow]]\nhost = \"{host}\"\n", requests(seen.requests));
            if *port != 443 {
                let _ = writeln!(text, "port = {port}");
            }
            if !seen.methods.is_empty() {
                let _ = writeln!(text, "methods = [{}]", quoted(&seen.methods));
            }
            if seen.paths.len() > MOST_PATHS || seen.other_paths {
                text.push_str("# more paths than are written here, so all are allowed\n");
            } else if !seen.paths.is_empty() {
                let _ = writeln!(text, "paths = [{}]", quoted(&seen.paths));
            }
        }
        text
    }
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

    fn policy(lines: &[Value]) -> String {
        let mut learned = Learned::default();
        lines.iter().for_each(|line| learned.add(line));
        learned.policy()
    }

    #[test]
    fn what_an_agent_makes_up_is_bounded() {
        let mut learned = Learned::default();
        for n in 0..20_000 {
            learned.add(&json!({"decision": "denied", "host": format!("{n}.example"), "port": 443, "reason": "host-not-allowed"}));
            learned.add(&json!({"decision": "denied", "host": "one.example", "port": 443, "reason": "host-not-allowed",
                                "method": format!("M{}", "X".repeat(n % 100)), "path": format!("/{n}")}));
        }
        assert_eq!(learned.seen.len(), MOST_HOSTS);
        let one = &learned.seen[&("one.example".parse().unwrap(), 443)];
        assert!(
            one.methods.len() <= MOST_METHODS && one.paths.len() <= MOST_PATHS + 1 && one.requests == 20_000
        );
        let text = learned.policy();
        assert!(
            text.contains(&format!("# {} requests to more than {MOST_HOSTS} hosts", 20_001 - MOST_HOSTS)),
            "{}",
            &text[..300]
        );
        assert!(Policy::parse("p", "p.toml", &text).is_ok());
    }

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
