//! The state on the other stages' stdin, and the record that they find: an id that is a file's name, a process that is
//! one, a record that is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_hook::fuzzed::{record, state};

fuzz_target!(|bytes: &[u8]| {
    if let Some((id, process)) = state(bytes) {
        assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(process.is_none_or(|process| process > 0));
    }
    if let Some(written) = record(bytes) {
        assert_eq!(record(&written).as_ref(), Some(&written));
    }
});
