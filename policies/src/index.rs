//! Which rules are about a host, found by the name and its parents: a policy of ten thousand rules must not cost more
//! than one of ten.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{HostName, HostPattern, Policy};

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
                for host in &rule.hosts {
                    let list = match host {
                        HostPattern::Exact(name) => index.exact.entry(name.to_string()).or_default(),
                        HostPattern::Below(parent) => index.below.entry(parent.to_string()).or_default(),
                        HostPattern::Everything => &mut index.everything,
                    };
                    list.push((policy_at, rule_at));
                }
            }
        }
        index
    }

    /// In order, each once.
    pub(crate) fn about(&self, host: &HostName) -> Vec<Position> {
        let mut found = self.everything.clone();
        found.extend(self.exact.get(host.as_str()).into_iter().flatten());
        let mut name = host.as_str();
        while let Some((_, parent)) = name.split_once('.') {
            found.extend(self.below.get(parent).into_iter().flatten());
            name = parent;
        }
        found.sort_unstable();
        found.dedup();
        found
    }
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
    }
}
