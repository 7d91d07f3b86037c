//! Lock files and package-manager configuration of a hostile project: always a policy that is well-formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_policies::{Policy, from};

const FILES: [&str; 17] = [
    "package-lock.json",
    ".npmrc",
    "yarn.lock",
    ".yarnrc",
    ".yarnrc.yml",
    "pnpm-lock.yaml",
    "pip.conf",
    "Pipfile.lock",
    "Pipfile",
    "poetry.lock",
    "pyproject.toml",
    "uv.lock",
    "Cargo.lock",
    ".cargo/config.toml",
    "go.mod",
    ".env",
    "requirements.txt",
];

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let Some(file) = FILES.get(usize::from(which) % FILES.len()) else { return };
    let proposal = from::propose_from(file, bytes);
    assert!(Policy::parse("fuzz", "fuzz.toml", &proposal.text).is_ok());
});
