//! A policy of what a container was refused, or was let through without a rule. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::Value;
use understudy_policies::{HostName, PathPattern};

use super::filter::Filter;
use super::{Call, From, source};
use crate::connection::ssh::command::Service;
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
    seen: BTreeMap<(HostName, u16, Kind), Seen>,
    /// Requests about other hosts than these.
    beyond: u64,
}

/// What a rule about it has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Requests,
    /// Git over SSH.
    Git,
    Postgres,
    /// Bytes that are neither TLS nor HTTP.
    Raw,
}

#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    /// None: it was looked up, and never connected to.
    methods: BTreeSet<String>,
    /// Repositories and databases, too.
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
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let Some(kind) = kind(line) else { return };
        let Some(host) = text("host").and_then(|host| host.parse().ok()) else { return };
        let port = line.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let key = (host, port.unwrap_or(443), kind);
        if self.seen.len() >= MOST_HOSTS && !self.seen.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        let seen = self.seen.entry(key).or_default();
        seen.requests += u64::from(port.is_some());
        seen.add(kind, text("method"), text("path"));
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
        for ((host, port, kind), seen) in &self.seen {
            let _ = write!(text, "\n{}", seen.rule(host, *port, *kind));
        }
        text
    }
}

impl Seen {
    fn add(&mut self, kind: Kind, method: Option<&str>, path: Option<&str>) {
        let is_one = |method: &&str| match kind {
            Kind::Requests => is_method(method),
            Kind::Git => Service::named(method).is_some(),
            Kind::Postgres | Kind::Raw => false,
        };
        if self.methods.len() < MOST_METHODS {
            self.methods.extend(method.filter(is_one).map(str::to_owned));
        }
        let Some(path) = path else { return };
        let named = match kind {
            Kind::Requests => path_of(path),
            Kind::Git => {
                let repository = path.trim_start_matches('/');
                Some(repository.strip_suffix(".git").unwrap_or(repository))
            }
            // Not one of those that the audit shortened, escaped or left out.
            Kind::Postgres => path.strip_prefix('/').filter(|name| is_plain(name)),
            Kind::Raw => None,
        };
        match named {
            Some(name) if kind != Kind::Git || is_repository(name) => {
                if self.paths.len() <= MOST_PATHS {
                    self.paths.insert(name.to_owned());
                }
            }
            _ => self.other_paths = true,
        }
    }

    fn rule(&self, host: &HostName, port: u16, kind: Kind) -> String {
        let (nouns, usual) = match kind {
            Kind::Requests => (["request", "requests"], 443),
            Kind::Git => (["git command", "git commands"], 443),
            Kind::Postgres => (["session of PostgreSQL", "sessions of PostgreSQL"], 5432),
            Kind::Raw => {
                (["connection that is neither TLS nor HTTP", "connections that are neither TLS nor HTTP"], 0)
            }
        };
        let mut rule = format!("[[allow]]\nhost = \"{host}\"\n");
        if port != usual {
            let _ = writeln!(rule, "port = {port}");
        }
        match kind {
            Kind::Requests if !self.methods.is_empty() => {
                let _ = writeln!(rule, "methods = [{}]", quoted(&self.methods));
            }
            Kind::Requests => {}
            Kind::Git => {
                let pushed = self.methods.contains(Service::ReceivePack.name());
                let direction = if pushed { Service::ReceivePack } else { Service::UploadPack }.direction();
                let _ = writeln!(rule, "git = \"{direction}\"");
            }
            Kind::Postgres => rule.push_str("postgres = true\n"),
            Kind::Raw => rule.push_str("tcp = true\n"),
        }
        let key = match kind {
            Kind::Requests | Kind::Raw => "paths",
            Kind::Git => "repos",
            Kind::Postgres => "databases",
        };
        if self.paths.len() > MOST_PATHS || self.other_paths {
            let _ = writeln!(rule, "# more {key} than are written here, so all are allowed");
        } else if !self.paths.is_empty() {
            let _ = writeln!(rule, "{key} = [{}]", quoted(&self.paths));
        }
        let count = counted(self.requests, nouns);
        match kind {
            Kind::Raw => {
                let rule: String = rule.lines().map(|line| format!("# {line}\n")).collect();
                format!(
                    "# {count}; nothing of them would be inspected, so this rule is yours to uncomment\n{rule}"
                )
            }
            _ => format!("# {count}\n{rule}"),
        }
    }
}

/// What a line is about that no rule allowed. None: a rule did, or one denied it.
fn kind(line: &Value) -> Option<Kind> {
    let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
    let unlisted = ["host-not-allowed", "port-not-allowed", "method-not-allowed", "path-not-allowed"];
    let listed = match text("decision") {
        "denied" => !unlisted.contains(&text("reason")),
        _ => text("rule") != "mode log" && !text("rule").starts_with("operator"),
    };
    match text("protocol") {
        "tcp" if text("reason") == "protocol-not-allowed" => Some(Kind::Raw),
        _ if listed => None,
        "ssh" => Some(Kind::Git),
        "postgres" => Some(Kind::Postgres),
        "tcp" => Some(Kind::Raw),
        "published" => None,
        _ => Some(Kind::Requests),
    }
}

/// As a rule can name it. `{name}` stands for a stand-in, and a star would be a wildcard.
fn path_of(path: &str) -> Option<&str> {
    let path = path.split('?').next().unwrap_or_default();
    Some(path).filter(|path| !path.contains(['*', '{']) && path.parse::<PathPattern>().is_ok())
}

/// As `repos` can name it: without a star, which would be a wildcard.
fn is_repository(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.+@/".contains(c);
    name.contains('/') && name.chars().all(letter)
}

fn is_plain(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
    (1..=63).contains(&name.len()) && name.chars().all(letter)
}

fn is_method(method: &str) -> bool {
    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn counted(count: u64, [one, more]: [&str; 2]) -> String {
    match count {
        0 => "looked up only".to_owned(),
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
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
        let one = &learned.seen[&("one.example".parse().unwrap(), 443, Kind::Requests)];
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
    fn what_is_no_request_is_proposed_in_the_words_of_its_kind() {
        let denied = |protocol: &str, port: u16, method: &str, path: &str, reason: &str| json!({"decision": "denied", "protocol": protocol, "host": "a.example", "port": port, "method": method, "path": path, "reason": reason});
        let text = policy(&[
            denied("ssh", 22, "git-upload-pack", "/me/one.git", "host-not-allowed"),
            denied("ssh", 22, "git-receive-pack", "/me/two", "path-not-allowed"),
            denied("postgres", 5432, "connect", "/app", "host-not-allowed"),
            denied("postgres", 5433, "connect", "/left\\u{2}out", "host-not-allowed"),
            denied("tcp", 25, "", "", "protocol-not-allowed"),
            denied("dns", 0, "", "", "protocol-not-allowed"),
            denied("tcp", 26, "", "", "denied-by-rule"),
        ]);
        let parsed = Policy::parse("p", "p.toml", &text).unwrap();
        let set = PolicySet::combine(vec![Arc::new(parsed)]);
        let host = "a.example".parse().unwrap();
        let is_allowed = |verdict| matches!(verdict, Verdict::Allowed { .. });
        let git = |target| is_allowed(set.decide_request(&Request::new(&host, 22, "POST", target)));
        assert!(git("/me/one.git/git-upload-pack") && git("/me/two.git/git-receive-pack"), "{text}");
        assert!(!git("/me/three/git-upload-pack") && !git("/other") && text.contains("# 2 git commands"));
        assert!(is_allowed(set.decide_postgres(&host, 5432, "app")), "{text}");
        assert!(!is_allowed(set.decide_postgres(&host, 5432, "other")));
        assert!(is_allowed(set.decide_postgres(&host, 5433, "any")) && text.contains("more databases"));
        assert!(!is_allowed(set.decide(&host, 443)) && !is_allowed(set.decide_raw(&host, 25)));
        // As it is after a person took the `#` away.
        let uncommented = text.replace(
            "\n# [[allow]]\n# host = \"a.example\"\n# port = 25\n# tcp",
            "\n[[allow]]\nhost = \"a.example\"\nport = 25\ntcp",
        );
        let parsed = Policy::parse("p", "p.toml", &uncommented).unwrap();
        let set = PolicySet::combine(vec![Arc::new(parsed)]);
        assert!(is_allowed(set.decide_raw(&host, 25)) && !is_allowed(set.decide_raw(&host, 26)), "{text}");
    }

    #[test]
    fn nothing_makes_an_empty_policy() {
        assert!(Policy::parse("p", "p.toml", &policy(&[])).unwrap().rules().is_empty());
    }
}
