//! Every rule about a host, and what it makes of one request: why a decision is what it is.

use std::fmt;

use crate::condition::Fit;
use crate::{Effect, HostName, PolicySet, Request, Rule, Terms};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    pub effect: Effect,
    /// As `*.example.com, a.example.net`.
    pub hosts: String,
    pub place: String,
    pub note: Option<String>,
    pub terms: Terms,
    /// Whether it passes TLS through, which a denial or a rule with `inspect` ends.
    pub splice: bool,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Matches,
    NotPort,
    NotMethod,
    NotPathOrQuery,
    AmbiguousPath,
    /// It is about bytes that are neither TLS nor HTTP.
    Raw,
    /// It is about requests, and says nothing of such bytes.
    Requests,
    /// It is about sessions of PostgreSQL alone.
    Postgres,
    /// It is about such sessions, with other databases.
    NotDatabase,
    /// It is not about such sessions.
    NotPostgres,
}

impl PolicySet {
    /// In the order of policies and files.
    pub fn explain(&self, request: &Request<'_>) -> Vec<Considered> {
        let splices = self.splice(request.host, request.port).is_some();
        let of = |rule: &Rule| Considered {
            splice: rule.splice && splices,
            ..considered(rule, of_request(rule, request))
        };
        self.rules_about(request.host).map(of).collect()
    }

    /// The same of bytes that are neither TLS nor HTTP, as [`PolicySet::decide_raw`] decides.
    pub fn explain_raw(&self, host: &HostName, port: u16) -> Vec<Considered> {
        self.rules_about(host).map(|rule| considered(rule, of_bytes(rule, port))).collect()
    }

    /// The same of a session of PostgreSQL, as [`PolicySet::decide_postgres`] decides.
    pub fn explain_postgres(&self, host: &HostName, port: u16, database: &str) -> Vec<Considered> {
        let of = |rule| considered(rule, of_session(rule, port, database));
        self.rules_about(host).map(of).collect()
    }
}

fn of_session(rule: &Rule, port: u16, database: &str) -> Outcome {
    match (rule.effect, &rule.postgres) {
        _ if !rule.ports.contain(port) => Outcome::NotPort,
        (Effect::Deny, _) => Outcome::Matches,
        (Effect::Allow, None) => Outcome::NotPostgres,
        (Effect::Allow, Some(names)) if names.is_empty() || names.iter().any(|name| name == database) => {
            Outcome::Matches
        }
        (Effect::Allow, Some(_)) => Outcome::NotDatabase,
    }
}

fn of_request(rule: &Rule, request: &Request<'_>) -> Outcome {
    let fit = match rule.effect {
        Effect::Allow => rule.conditions.surely(request),
        Effect::Deny => rule.conditions.possibly(request),
    };
    match fit {
        _ if rule.tcp => Outcome::Raw,
        _ if rule.postgres.is_some() => Outcome::Postgres,
        _ if !rule.ports.contain(request.port) => Outcome::NotPort,
        Fit::Yes => Outcome::Matches,
        Fit::Unclear(_) => Outcome::AmbiguousPath,
        Fit::NotMethod => Outcome::NotMethod,
        Fit::NotPath => Outcome::NotPathOrQuery,
    }
}

fn of_bytes(rule: &Rule, port: u16) -> Outcome {
    match rule.effect {
        _ if !rule.ports.contain(port) => Outcome::NotPort,
        // Whatever it asks of requests: nobody sees one.
        Effect::Deny => Outcome::Matches,
        Effect::Allow if rule.tcp => Outcome::Matches,
        Effect::Allow if rule.postgres.is_some() => Outcome::Postgres,
        Effect::Allow => Outcome::Requests,
    }
}

fn considered(rule: &Rule, outcome: Outcome) -> Considered {
    let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
    Considered {
        effect: rule.effect,
        hosts: hosts.join(", "),
        place: rule.place.clone(),
        note: rule.note.clone(),
        terms: rule.terms.clone(),
        splice: false,
        outcome,
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Matches => "matches",
            Self::NotPort => "another port",
            Self::NotMethod => "another method",
            Self::NotPathOrQuery => "another path or query",
            Self::AmbiguousPath => "the path is ambiguous",
            Self::Raw => "for raw bytes only (tcp), not for requests",
            Self::Requests => "for requests only (no tcp)",
            Self::Postgres => "for sessions of PostgreSQL only",
            Self::NotDatabase => "another database",
            Self::NotPostgres => "not for sessions of PostgreSQL (no postgres)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Policy, Verdict};

    #[test]
    fn every_rule_about_the_host_says_what_it_made_of_the_request() {
        let text = "[[allow]]\nhost = \"*.b.example\"\nport = 80\n[[allow]]\nhost = \"a.b.example\"\nmethods = \"PUT\"\n\
                    [[allow]]\nhost = \"a.b.example\"\npaths = \"/v1\"\n[[allow]]\nhost = \"other.example\"\n\
                    [[deny]]\nhost = \"a.b.example\"\nquery = \"k\"\nnote = \"keys\"\n";
        let set = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", text).unwrap())]);
        let host = "a.b.example".parse().unwrap();
        let outcomes = |target| -> Vec<Outcome> {
            let request = Request::new(&host, 443, "GET", target);
            set.explain(&request).into_iter().map(|considered| considered.outcome).collect()
        };
        use Outcome::*;
        assert_eq!(outcomes("/v1?k=1"), [NotPort, NotMethod, Matches, Matches]);
        assert_eq!(outcomes("/v1/../v1"), [NotPort, NotMethod, AmbiguousPath, NotPathOrQuery]);
        let request = Request::new(&host, 443, "GET", "/v1?k=1");
        let last = set.explain(&request).pop().unwrap();
        assert_eq!((last.place.as_str(), last.note.as_deref()), ("p.toml:13", Some("keys")));
    }

    #[test]
    fn what_ends_a_splice_is_seen_in_it() {
        let splice = "[[allow]]\nhost = \"*.b.example\"\nsplice = true\n";
        let inspect = format!("{splice}[[allow]]\nhost = \"a.b.example\"\ninspect = true\n");
        for (text, expected) in [(splice, true), (inspect.as_str(), false)] {
            let set = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", text).unwrap())]);
            let told = set.explain(&Request::new(&"a.b.example".parse().unwrap(), 443, "GET", "/"));
            assert_eq!(told[0].splice, expected, "{text}");
        }
    }

    #[test]
    fn of_bytes_every_denial_matches_and_no_allowance_without_tcp() {
        let text = "[[allow]]\nhost = \"*.b.example\"\nport = 5432\n[[allow]]\nhost = \"a.b.example\"\nport = 5432\ntcp = true\n\
                    [[allow]]\nhost = \"a.b.example\"\nport = 5433\ntcp = true\n[[deny]]\nhost = \"a.b.example\"\nport = 5433\nmethods = \"PUT\"\n";
        let set = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", text).unwrap())]);
        let host = "a.b.example".parse().unwrap();
        use Outcome::*;
        for (port, outcomes) in [
            (5432, [Requests, Matches, NotPort, NotPort]),
            (5433, [NotPort, NotPort, Matches, Matches]),
            (5434, [NotPort, NotPort, NotPort, NotPort]),
        ] {
            let told = set.explain_raw(&host, port);
            assert_eq!(told.iter().map(|told| told.outcome).collect::<Vec<_>>(), outcomes, "{port}");
            // The first that matches is the one that decides, a denial before any other.
            let first = |effect| told.iter().find(|told| (told.effect, told.outcome) == (effect, Matches));
            let decides = match set.decide_raw(&host, port) {
                Verdict::Denied { rule, .. } => Some((Effect::Deny, rule)),
                Verdict::Allowed { rule, .. } => Some((Effect::Allow, rule)),
                _ => None,
            };
            let said = first(Effect::Deny).or_else(|| first(Effect::Allow));
            assert_eq!(said.map(|said| (said.effect, said.place.clone())), decides, "{port}");
        }
    }
}
