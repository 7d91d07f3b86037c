//! Which rules are about a host, found by the name and its parents: a policy of ten thousand rules must not cost more
//! than one of ten.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{HostName, HostPattern, Policy, Rule};

/// Positions of rules in the order of policies and files, as (policy, rule).
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    exact: HashMap<String, Vec<Position>>,
    /// By the name that the rule's hosts are below.
    below: HashMap<String, Vec<Position>>,
    everything: Vec<Position>,
}

pub(crate) type Position = (usize, usize);

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
            let list = match host {
                HostPattern::Exact(name) => self.exact.entry(name.to_string()).or_default(),
                HostPattern::Below(parent) => self.below.entry(parent.to_string()).or_default(),
                HostPattern::Everything => &mut self.everything,
            };
            // However often a rule names it.
            if list.last() != Some(&at) {
                list.push(at);
            }
        }
    }

    /// In order, each once.
    pub(crate) fn about(&self, host: &HostName) -> Vec<Position> {
        let exact = self.exact.get(host.as_str()).into_iter().flatten();
        self.with_those_below(exact, parents(host.as_str()))
    }

    /// Those about every name that `host` matches. In order, each once.
    pub(crate) fn covering(&self, host: &HostPattern) -> Vec<Position> {
        match host {
            HostPattern::Exact(name) => self.about(name),
            HostPattern::Below(name) => {
                let own = self.below.get(name.as_str()).into_iter().flatten();
                self.with_those_below(own, parents(name.as_str()))
            }
            HostPattern::Everything => self.with_those_below([].iter(), std::iter::empty()),
        }
    }

    fn with_those_below<'a>(
        &'a self,
        own: impl Iterator<Item = &'a Position>,
        parents: impl Iterator<Item = &'a str>,
    ) -> Vec<Position> {
        let below = parents.filter_map(|parent| self.below.get(parent)).flatten();
        let mut found: Vec<Position> = self.everything.iter().chain(own).chain(below).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
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
