//! The policies that are compiled in. Their names are reserved: no file can change what they mean.

use crate::{Effect, HostPattern, Policy, Ports, Rule};

/// Allows nothing.
pub const LOCKED: &str = "locked";

/// Allows what the container's harness needs in order to work, as its descriptor says.
pub const HARNESS_ONLY: &str = "harness-only";

/// Whether a file must not be named like this.
pub fn is_reserved(name: &str) -> bool {
    matches!(name, LOCKED | HARNESS_ONLY)
}

pub fn locked() -> Policy {
    Policy::new(LOCKED, Vec::new())
}

/// `hosts` of the descriptor of `harness`, on port 443.
pub fn harness_only(harness: &str, hosts: impl IntoIterator<Item = HostPattern>) -> Policy {
    let hosts: Vec<_> = hosts.into_iter().collect();
    let rules = (!hosts.is_empty()).then(|| Rule {
        effect: Effect::Allow,
        hosts,
        ports: Ports::These(vec![443]),
        note: None,
        place: format!("harness {harness}"),
    });
    Policy::new(HARNESS_ONLY, rules.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{PolicySet, Verdict};

    #[test]
    fn harness_only_allows_the_hosts_of_the_harness_and_locked_none() {
        let api = "api.example.com".parse().unwrap();
        let set = PolicySet::combine(vec![Arc::new(harness_only("h", [HostPattern::Exact(api)]))]);
        let host = "api.example.com".parse().unwrap();
        assert_eq!(set.decide(&host, 443), Verdict::Allowed { rule: "harness h".into() });
        assert_eq!(set.decide(&host, 80), Verdict::NoPort { ports: vec![443] });
        let none = [locked(), harness_only("generic", [])];
        for policy in none {
            assert_eq!(PolicySet::combine(vec![Arc::new(policy)]).decide(&host, 443), Verdict::NoHost);
        }
    }
}
