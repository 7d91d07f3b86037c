//! Policies, ceilings, annotations, requests and names that somebody wrote: an error or a policy, never a panic; an empty one allows nothing.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use understudy_policies::ceiling::Held;
use understudy_policies::{Ceiling, HostName, Policy, PolicySet, Request, Verdict};

fuzz_target!(|text: &str| {
    let host: HostName = match "probe.example".parse() {
        Ok(host) => host,
        Err(_) => return,
    };
    if let Ok(policy) = Policy::parse("fuzz", "fuzz.toml", text) {
        let empty = policy.rules().is_empty();
        let set = PolicySet::combine(vec![Arc::new(policy)]);
        let allowed = |verdict| matches!(verdict, Verdict::Allowed { .. });
        let connection = allowed(set.decide(&host, 443));
        assert!(!empty || !connection);
        let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
        let request = Request::new(&host, 443, method, target);
        assert!(connection || !allowed(set.decide_request(&request)));
    }
    if let Ok(ceiling) = Ceiling::parse("fuzz", "fuzz.toml", text, &["understudy.allow", "understudy.mode"]) {
        for rule in ceiling.requirements() {
            // Who has nothing at all, and no default for it either, meets none.
            assert!(rule.check(&Held::default()).is_err());
            assert!(rule.of.matches::<&str>(&[], &[]) == rule.of.is_for_all());
        }
    }
    let _ = Policy::from_allow_annotation(text);
    if let Ok(name) = text.parse::<HostName>() {
        assert_eq!(HostName::from_wire(name.as_str().as_bytes()).as_ref(), Ok(&name));
    }
});
