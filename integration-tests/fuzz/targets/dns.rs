//! A datagram to the DNS socket: what is answered is a response with the query's id.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use understudy::dns::SyntheticNames;
use understudy::dns::answer::answer;
use understudy_policies::{Policy, PolicySet};

static POLICY: LazyLock<PolicySet> = LazyLock::new(|| {
    let policy = Policy::from_allow_annotation("api.example.com *.example.net");
    PolicySet::combine(policy.into_iter().map(Arc::new).collect())
});
static NAMES: LazyLock<SyntheticNames> = LazyLock::new(SyntheticNames::default);

fuzz_target!(|bytes: &[u8]| {
    if let Some(answer) = answer(bytes, &NAMES, &POLICY, false) {
        assert_eq!(answer.bytes[..2], bytes[..2]);
        assert_ne!(answer.bytes[2] & 0x80, 0);
        assert!(answer.bytes.len() < 4096);
    }
});
