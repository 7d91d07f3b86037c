//! An image's passwd file: a home is a path from the root, and is in the file.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use understudy_hook::fuzzed::home;

fuzz_target!(|input: (u32, Vec<u8>)| {
    let (uid, passwd) = input;
    for uid in [uid, 0, 1000] {
        if let Some(home) = home(&passwd, uid) {
            assert!(home.is_absolute() && !home.as_os_str().as_bytes().contains(&0));
            let text = String::from_utf8_lossy(&passwd);
            assert!(text.contains(&format!(":{}", home.display())), "{home:?}");
        }
    }
});
