//! An image's CA bundle: what is passed on holds certificates and nothing else, and is the same when read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_hook::fuzzed::bundle;

fuzz_target!(|bytes: &[u8]| {
    let passed_on = bundle(bytes);
    for line in passed_on.lines() {
        let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let bound = line.starts_with("-----BEGIN CERTIFICATE") || line.starts_with("-----END CERTIFICATE");
        assert!(bound || line.len() <= 64 && line.bytes().all(base64), "{line}");
    }
    assert_eq!(bundle(passed_on.as_bytes()), passed_on);
});
