//! Lock files and package-manager configuration of a hostile project: always a policy that is well-formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_policies::{Policy, from};

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let Some(file) = from::FILES.get(usize::from(which) % from::FILES.len()) else { return };
    let proposal = from::propose_from(file, bytes);
    assert!(Policy::parse("fuzz", "fuzz.toml", &proposal.text).is_ok());
});
