//! Policies, annotations and names that somebody wrote: an error or a policy, never a panic; an empty one allows nothing.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use understudy_policies::{HostName, Policy, PolicySet, Verdict};

fuzz_target!(|text: &str| {
    let host: HostName = match "probe.example".parse() {
        Ok(host) => host,
        Err(_) => return,
    };
    if let Ok(policy) = Policy::parse("fuzz", "fuzz.toml", text) {
        let empty = policy.rules().is_empty();
        let verdict = PolicySet::combine(vec![Arc::new(policy)]).decide(&host, 443);
        assert!(!empty || !matches!(verdict, Verdict::Allowed { .. }));
    }
    let _ = Policy::from_allow_annotation(text);
    if let Ok(name) = text.parse::<HostName>() {
        assert_eq!(HostName::from_wire(name.as_str().as_bytes()).as_ref(), Ok(&name));
    }
});
