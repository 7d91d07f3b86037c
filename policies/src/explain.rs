//! Every rule about a host, and what it makes of one request: why a decision is what it is.

use std::fmt;

use crate::condition::Fit;
use crate::{Effect, PolicySet, Request, Rule, Terms};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    pub effect: Effect,
    /// As `*.example.com, a.example.net`.
    pub hosts: String,
    pub place: String,
    pub note: Option<String>,
    pub terms: Terms,
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
}

impl PolicySet {
    /// In the order of policies and files.
    pub fn explain(&self, request: &Request<'_>) -> Vec<Considered> {
        self.rules_about(request.host).map(|rule| considered(rule, request)).collect()
    }
}

fn considered(rule: &Rule, request: &Request<'_>) -> Considered {
    let fit = match rule.effect {
        Effect::Allow => rule.conditions.surely(request),
        Effect::Deny => rule.conditions.possibly(request),
    };
    let outcome = match fit {
        _ if rule.tcp => Outcome::Raw,
        _ if !rule.ports.contain(request.port) => Outcome::NotPort,
        Fit::Yes => Outcome::Matches,
        Fit::Unclear(_) => Outcome::AmbiguousPath,
        Fit::NotMethod => Outcome::NotMethod,
        Fit::NotPath => Outcome::NotPathOrQuery,
    };
    let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
    Considered {
        effect: rule.effect,
        hosts: hosts.join(", "),
        place: rule.place.clone(),
        note: rule.note.clone(),
        terms: rule.terms.clone(),
        splice: rule.splice,
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
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Policy;

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
}
