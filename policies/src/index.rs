//! Which rules are about a host, found by the name and its parents, and of many about one host those that could be about a
//! path: a policy of ten thousand rules must not cost more than one of ten.

use std::collections::HashMap;
use std::sync::Arc;

use crate::path::PathIndex;
use crate::{HostName, HostPattern, PathPattern, Policy, Request, Rule};

/// Positions of rules in the order of policies and files, as (policy, rule).
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    exact: HashMap<String, About>,
    /// By the name that the rule's hosts are below.
    below: HashMap<String, About>,
    everything: About,
}

pub(crate) type Position = (usize, usize);

/// The rules about one host pattern.
#[derive(Debug, Clone, Default)]
struct About {
    all: Vec<Position>,
    by_path: PathIndex<Position>,
}

impl Index {
    pub(crate) fn of(policies: &[Arc<Policy>]) -> Self {
        let mut index = Self::default();
        for (policy_at, policy) in policies.iter().enumerate() {
            for (rule_at, rule) in policy.rules().iter().enumerate() {
                index.add((policy_at, rule_at), rule);
            }
        }
        index
    }

    pub(crate) fn add(&mut self, at: Position, rule: &Rule) {
        for host in &rule.hosts {
            let about = match host {
                HostPattern::Exact(name) => self.exact.entry(name.to_string()).or_default(),
                HostPattern::Below(parent) => self.below.entry(parent.to_string()).or_default(),
                HostPattern::Everything => &mut self.everything,
            };
            about.add(at, rule);
        }
    }

    /// In order, each once.
    pub(crate) fn about(&self, host: &HostName) -> Vec<Position> {
        in_order(self.of_name(host).flat_map(|about| &about.all).copied())
    }

    /// Those about a request's host whose paths could be its own. In order, each once.
    pub(crate) fn near(&self, request: &Request<'_>) -> Vec<Position> {
        in_order(self.of_name(request.host).flat_map(|about| about.by_path.about(request.readings())))
    }

    /// Those about every name that `host` matches. In order, each once.
    pub(crate) fn covering(&self, host: &HostPattern) -> Vec<Position> {
        in_order(self.of_pattern(host).flat_map(|about| &about.all).copied())
    }

    /// Those of them that could be about every path that `path` matches; every one there is, if it is none.
    pub(crate) fn covering_near(&self, host: &HostPattern, path: Option<&PathPattern>) -> Vec<Position> {
        in_order(self.of_pattern(host).flat_map(|about| about.by_path.covering(path)))
    }

    fn of_name<'a>(&'a self, host: &'a HostName) -> impl Iterator<Item = &'a About> {
        let below = parents(host.as_str()).filter_map(|parent| self.below.get(parent));
        self.exact.get(host.as_str()).into_iter().chain(below).chain([&self.everything])
    }

    fn of_pattern<'a>(&'a self, host: &'a HostPattern) -> Box<dyn Iterator<Item = &'a About> + 'a> {
        match host {
            HostPattern::Exact(name) => Box::new(self.of_name(name)),
            HostPattern::Below(name) => {
                let names = std::iter::once(name.as_str()).chain(parents(name.as_str()));
                let below = names.filter_map(|name| self.below.get(name));
                Box::new(below.chain([&self.everything]))
            }
            HostPattern::Everything => Box::new(std::iter::once(&self.everything)),
        }
    }
}

impl About {
    fn add(&mut self, at: Position, rule: &Rule) {
        // However often a rule names a host.
        if self.all.last() == Some(&at) {
            return;
        }
        self.all.push(at);
        let mut patterns = rule.conditions.patterns().peekable();
        if patterns.peek().is_none() {
            self.by_path.add_for_all(at);
        }
        patterns.for_each(|pattern| self.by_path.add(pattern, at));
    }
}

fn in_order(found: impl Iterator<Item = Position>) -> Vec<Position> {
    let mut found: Vec<Position> = found.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Every name that this one is below.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(name.split_once('.'), |(_, parent)| parent.split_once('.'))
        .map(|(_, parent)| parent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_ten_thousand_rules_about_one_host_few_are_looked_at() {
        let rule = |at: usize| format!("[[allow]]\nhost = \"a.b.example\"\npaths = \"/v1/{at}/**\"\n");
        let text: String = (0..10_000).map(rule).collect();
        let text = text + "[[deny]]\nhost = \"*.b.example\"\nmethods = \"PUT\"\n";
        let policies = [Arc::new(Policy::parse("p", "p.toml", &text).unwrap())];
        let host: HostName = "a.b.example".parse().unwrap();
        let near = |target| Index::of(&policies).near(&Request::new(&host, 443, "GET", target));
        assert_eq!(near("/v1/4711/x"), [(0, 4711), (0, 10_000)]);
        assert_eq!(near("/"), [(0, 10_000)]);
        assert_eq!(Index::of(&policies).about(&host).len(), 10_001);
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_every_rule_would(
            hosts in proptest::collection::vec("(\\*\\.)?[ab]{1,2}(\\.[ab]{1,2}){1,2}", 0..12),
            name in "[ab]{1,2}(\\.[ab]{1,2}){0,3}",
        ) {
            let text: String = hosts.iter().map(|host| format!("[[allow]]\nhost = {host:?}\n")).collect();
            let policies = [Arc::new(Policy::parse("p", "p.toml", &text).unwrap())];
            let host: HostName = name.parse().unwrap();
            let every: Vec<Position> = (0..hosts.len())
                .filter(|at| policies[0].rules()[*at].is_about(&host))
                .map(|at| (0, at))
                .collect();
            prop_assert_eq!(Index::of(&policies).about(&host), every);
        }

        #[test]
        fn it_finds_what_covers_a_pattern_as_a_look_at_every_rule_would(
            hosts in proptest::collection::vec("(\\*\\.)?[ab]{1,2}(\\.[ab]{1,2}){1,2}", 0..12),
            pattern in "(\\*\\.)?[ab]{1,2}(\\.[ab]{1,2}){1,3}",
        ) {
            let text: String = hosts.iter().map(|host| format!("[[allow]]\nhost = {host:?}\n")).collect();
            let policies = [Arc::new(Policy::parse("p", "p.toml", &text).unwrap())];
            let pattern: HostPattern = pattern.parse().unwrap();
            let every: Vec<Position> = (0..hosts.len())
                .filter(|at| policies[0].rules()[*at].hosts[0].covers(&pattern))
                .map(|at| (0, at))
                .collect();
            prop_assert_eq!(Index::of(&policies).covering(&pattern), every);
        }
    }
}
