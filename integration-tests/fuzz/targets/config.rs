//! A configuration on precreate's stdin: one that is understood can be refused, and then runs nothing of its own; and
//! whatever its seccomp profile says, vsock is closed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_hook::fuzzed::configuration;

fuzz_target!(|bytes: &[u8]| {
    let Some(found) = configuration(bytes) else { return };
    assert!(found.id.len() == 64 && found.id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(found.vsock, Some(true));
    let refused = &found.refused;
    assert_eq!(refused["process"]["args"][1], "refuse");
    assert_eq!(refused["process"]["env"].as_array().map(Vec::len), Some(1));
    assert!(refused.get("hooks").is_none());
    for mount in refused["mounts"].as_array().into_iter().flatten() {
        assert!(mount["type"] != "bind" || mount["source"] == "/state/guest");
    }
});
