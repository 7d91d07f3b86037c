//! The mount table, in which names are anybody's: a place is a path from the root, and lies in itself.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use understudy_hook::fuzzed::mounted;

fuzz_target!(|bytes: &[u8]| {
    for path in ["/", "/srv/volumes/x/_data", "/home/u/.ssh"] {
        if let Some((place, itself)) = mounted(bytes, Path::new(path)) {
            assert!(itself, "{place:?}");
        }
    }
});
