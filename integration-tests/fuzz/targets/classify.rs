//! The first bytes of a connection: an answer, the same one however they are cut, and never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy::connection::{Classified, classify};

fuzz_target!(|bytes: &[u8]| {
    let whole = classify(bytes);
    // What is clear early stays as it is when more arrives.
    for end in 0..bytes.len().min(64) {
        let early = classify(&bytes[..end]);
        if matches!(early, Classified::Http1 | Classified::Http2Preface | Classified::Other) {
            assert_eq!(early, whole, "after {end} of {} bytes", bytes.len());
        }
    }
});
