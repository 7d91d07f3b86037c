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

/// A name is given again and again; nobody reads more ids.
const MOST_CONTAINERS: usize = 16;

/// What lines have told so far.
#[derive(Debug, Default)]
pub struct Learned {
    /// The ids of the containers that they are of, oldest first.
    containers: Vec<String>,
    /// There are others than these.
    more_containers: bool,
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
    let learned = learn(container, from, call)?;
    output.print(&Proposed::new(learned.policy(), Vec::new())?, |proposed| proposed.policy.clone())
}

fn learn(container: &str, from: &From, call: Call<'_>) -> Result<Learned> {
    let filter = Filter { container: Some(container.to_owned()), ..Filter::default() };
    let (mut called, mut by_id) = (Learned::default(), Learned::default());
    let missing = source::read(from.file.as_deref(), call, |_, line| {
        let is_called = line.get("container").and_then(Value::as_str) == Some(container);
        match is_called {
            true => called.add(line),
            false if filter.matches(line) => by_id.add(line),
            false => {}
        }
        Ok(true)
    })?;
    missing.tell();
    // A name can be the beginning of another container's id.
    let learned = if called.containers.is_empty() { by_id } else { called };
    if learned.containers.is_empty() {
        bail!(
            "there is no audit line of a container {container:?}; list the containers with: understudy status"
        );
    }
    Ok(learned)
}

impl Learned {
    /// A line of the container.
    pub fn add(&mut self, line: &Value) {
        self.add_container(line);
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

    /// The line may be of a file that somebody else wrote.
    fn add_container(&mut self, line: &Value) {
        let id = line.get("container-id").and_then(Value::as_str).unwrap_or_default();
        let is_id = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = if is_id { id } else { "(no id)" };
        if self.containers.iter().any(|known| known == id) {
            return;
        }
        match self.containers.len() < MOST_CONTAINERS {
            true => self.containers.push(id.to_owned()),
            false => self.more_containers = true,
        }
    }

    pub fn policy(&self) -> String {
        let mut text = HEAD.to_owned();
        if self.containers.len() > 1 {
            let others = if self.more_containers { " and others" } else { "" };
            let _ = writeln!(
                text,
                "#\n# These are several containers, one after the other or with ids that begin alike: {}{others}.\n\
                 # For one of them alone: understudy learn ID",
                self.containers.join(", ")
            );
        }
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

    fn learned(container: &str, lines: &[Value]) -> Result<String> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("lines");
        std::fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        let mut text = None;
        learn(container, &From { file: Some(file) }, &|_| bail!("nobody"))
            .map(|learned| text = Some(learned.policy()))?;
        Ok(text.unwrap())
    }

    #[test]
    fn several_containers_of_one_name_are_named_and_each_can_be_had_alone() {
        let line = |container: &str, id: &str, host: &str| {
            json!({"schema": 1, "container": container, "container-id": id, "decision": "denied", "host": host, "port": 443,
                   "reason": "host-not-allowed"})
        };
        let lines = [
            line("agent", "aaaaaaaaaaaa", "a.example"),
            line("agent", "abbbbbbbbbbb", "b.example"),
            line("other", "cccccccccccc", "c.example"),
            // Its id begins with a name.
            line("sly", "a9e470000000", "d.example"),
            line("a9e47", "dddddddddddd", "e.example"),
        ];
        let hosts = |container: &str| -> Vec<String> {
            let text = learned(container, &lines).unwrap();
            text.lines()
                .filter_map(|line| Some(line.strip_prefix("host = \"")?.trim_end_matches('"').to_owned()))
                .collect()
        };
        assert_eq!(hosts("agent"), ["a.example", "b.example"]);
        assert!(
            learned("agent", &lines).unwrap().contains(
                "alike: aaaaaaaaaaaa, abbbbbbbbbbb.\n# For one of them alone: understudy learn ID\n"
            )
        );
        assert_eq!(
            (hosts("aaaa"), hosts("abbbbbbbbbbb")),
            (vec!["a.example".to_owned()], vec!["b.example".to_owned()])
        );
        assert!(!learned("aaaa", &lines).unwrap().contains("several"));
        assert_eq!(hosts("a9e47"), ["e.example"]);
        assert_eq!(hosts("a"), ["a.example", "b.example", "d.example"]);
        assert!(learned("a", &lines).unwrap().contains("aaaaaaaaaaaa, abbbbbbbbbbb, a9e470000000."));
        assert!(learned("nobody", &lines).is_err());
        // What is no id is not shown, and there is an end to them.
        let many: Vec<Value> = (0..100)
            .map(|n| line("agent", &format!("{n:012x}"), "a.example"))
            .chain([line("agent", "\n[[allow]]", "a.example")])
            .collect();
        let text = learned("agent", &many).unwrap();
        assert!(
            text.contains("00000000000f and others.\n")
                && !text.contains("\n[[allow]]\n#")
                && Policy::parse("p", "p.toml", &text).is_ok()
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
