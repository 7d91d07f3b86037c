//! The decision: pure, total, deny wins, and nothing said means no.

use std::sync::Arc;

use crate::{Effect, HostName, Policy, Ports, Rule};

/// The policies of one container, asked together.
#[derive(Debug, Clone)]
pub struct PolicySet {
    label: String,
    policies: Vec<Arc<Policy>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// `rule` is the place of the first rule that allows it.
    Allowed { rule: String },
    /// `rule` is the place of the first rule that denies it.
    Denied { rule: String, note: Option<String> },
    /// No rule allows the host.
    NoHost,
    /// The host is allowed, but on these ports only (sorted).
    NoPort { ports: Vec<u16> },
    /// A policy of the set could not be loaded, so nothing is allowed.
    Failed { policy: String, error: String },
}

impl PolicySet {
    pub fn combine(policies: Vec<Arc<Policy>>) -> Self {
        let names: Vec<&str> = policies.iter().map(|policy| policy.name()).collect();
        let label = if names.is_empty() { crate::builtin::LOCKED.to_owned() } else { names.join("+") };
        Self { label, policies }
    }

    /// The names of the policies in it, joined by `+`.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    pub fn decide(&self, host: &HostName, port: u16) -> Verdict {
        if let Some((policy, error)) = self.failure() {
            return Verdict::Failed { policy: policy.to_owned(), error: error.to_owned() };
        }
        if let Some(rule) = self.rules(Effect::Deny, host).find(|rule| rule.ports.contain(port)) {
            return Verdict::Denied { rule: rule.place.clone(), note: rule.note.clone() };
        }
        if let Some(rule) = self.rules(Effect::Allow, host).find(|rule| rule.ports.contain(port)) {
            return Verdict::Allowed { rule: rule.place.clone() };
        }
        match self.open_ports(host) {
            ports if ports.is_empty() => Verdict::NoHost,
            ports => Verdict::NoPort { ports },
        }
    }

    /// Whether any rule could allow this host on some port: such names get a synthetic address of their own.
    pub fn may_permit(&self, host: &HostName) -> bool {
        self.failure().is_none() && !self.open_ports(host).is_empty()
    }

    fn failure(&self) -> Option<(&str, &str)> {
        self.policies.iter().find_map(|policy| Some((policy.name(), policy.error()?)))
    }

    fn rules<'a>(&'a self, effect: Effect, host: &'a HostName) -> impl Iterator<Item = &'a Rule> {
        let rules = self.policies.iter().flat_map(|policy| policy.rules());
        rules.filter(move |rule| rule.effect == effect && rule.is_about(host))
    }

    fn open_ports(&self, host: &HostName) -> Vec<u16> {
        let denied = |port: &u16| self.rules(Effect::Deny, host).any(|rule| rule.ports.contain(*port));
        let mut ports: Vec<u16> = self
            .rules(Effect::Allow, host)
            .filter_map(|rule| match &rule.ports {
                Ports::These(ports) => Some(ports),
                Ports::Any => None,
            })
            .flatten()
            .copied()
            .filter(|port| !denied(port))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// Allows nothing.
impl Default for PolicySet {
    fn default() -> Self {
        Self::combine(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(texts: &[(&str, &str)]) -> PolicySet {
        let parse = |(name, text): &(&str, &str)| {
            Arc::new(Policy::parse(name, &format!("{name}.toml"), text).unwrap())
        };
        PolicySet::combine(texts.iter().map(parse).collect())
    }

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    const WEB: &str = "[[allow]]\nhost = \"*.example.com\"\n[[allow]]\nhost = \"plain.example.net\"\nport = [80, 8080]\n\
                       [[deny]]\nhost = \"bad.example.com\"\nnote = \"uploads\"\n";

    #[test]
    fn the_table_of_verdicts() {
        let set = set(&[("web", WEB)]);
        let denied = Verdict::Denied { rule: "web.toml:7".into(), note: Some("uploads".into()) };
        for (name, port, verdict) in [
            ("a.example.com", 443, Verdict::Allowed { rule: "web.toml:2".into() }),
            ("a.example.com", 8443, Verdict::NoPort { ports: vec![443] }),
            ("example.com", 443, Verdict::NoHost),
            ("notexample.com", 443, Verdict::NoHost),
            ("bad.example.com", 443, denied.clone()),
            ("bad.example.com", 22, denied),
            ("worse.bad.example.com", 443, Verdict::Allowed { rule: "web.toml:2".into() }),
            ("plain.example.net", 80, Verdict::Allowed { rule: "web.toml:4".into() }),
            ("plain.example.net", 443, Verdict::NoPort { ports: vec![80, 8080] }),
            ("plain.example.net", 0, Verdict::NoPort { ports: vec![80, 8080] }),
        ] {
            assert_eq!(set.decide(&host(name), port), verdict, "{name}:{port}");
        }
        assert!(set.may_permit(&host("a.example.com")) && set.may_permit(&host("plain.example.net")));
        assert!(!set.may_permit(&host("example.com")) && !set.may_permit(&host("bad.example.com")));
    }

    #[test]
    fn a_denial_wins_over_any_policy_of_the_set() {
        let set = set(&[
            ("no", "[[deny]]\nhost = \"a.example.com\"\nport = 443"),
            ("yes", "[[allow]]\nhost = \"a.example.com\"\nport = [443, 444]"),
        ]);
        assert_eq!(set.label(), "no+yes");
        assert!(matches!(set.decide(&host("a.example.com"), 443), Verdict::Denied { .. }));
        assert!(matches!(set.decide(&host("a.example.com"), 444), Verdict::Allowed { .. }));
        assert_eq!(set.decide(&host("a.example.com"), 1), Verdict::NoPort { ports: vec![444] });
    }

    #[test]
    fn a_policy_that_failed_denies_everything_of_its_set() {
        let good = Arc::new(Policy::parse("web", "web.toml", WEB).unwrap());
        let set = PolicySet::combine(vec![good, Arc::new(Policy::failed("broken", "broken.toml:1:1: no"))]);
        let failed = Verdict::Failed { policy: "broken".into(), error: "broken.toml:1:1: no".into() };
        assert_eq!(set.decide(&host("a.example.com"), 443), failed);
        assert!(!set.may_permit(&host("a.example.com")));
    }

    #[test]
    fn nothing_said_means_no() {
        assert_eq!(PolicySet::default().label(), "locked");
        for set in [PolicySet::default(), set(&[("empty", "")])] {
            assert_eq!(set.decide(&host("a.example.com"), 443), Verdict::NoHost);
            assert!(!set.may_permit(&host("a.example.com")));
        }
    }

    proptest! {
        #[test]
        fn what_is_allowed_may_be_permitted_and_a_denial_never_allows(
            name in "[ab]{1,2}(\\.[ab]{1,2}){0,3}", port in 440u16..446,
            allow in "(\\*\\.)?[ab]{1,2}\\.[ab]{1,2}", deny in "(\\*\\.)?[ab]{1,2}\\.[ab]{1,2}",
        ) {
            let text = format!("[[allow]]\nhost = {allow:?}\nport = [443, 444]\n[[deny]]\nhost = {deny:?}\n");
            let (set, host) = (set(&[("p", &text)]), host(&name));
            let denied = deny.parse::<crate::HostPattern>().unwrap().matches(&host);
            let allowed = matches!(set.decide(&host, port), Verdict::Allowed { .. });
            prop_assert!(!(denied && (allowed || set.may_permit(&host))));
            prop_assert!(!allowed || set.may_permit(&host));
        }
    }
}
