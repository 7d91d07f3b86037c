//! The head of a CONNECT from inside: a target and where the tunnel begins, the same however it is cut, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy::connection::connect::{Asked, asked};

fuzz_target!(|bytes: &[u8]| {
    // Most of what is drawn is no CONNECT at all.
    let bytes = [b"CONNECT ", bytes].concat();
    let whole = asked(&bytes);
    match &whole {
        Asked::Tunnel(tunnel, length) => {
            assert!(tunnel.port != 0 && bytes[..*length].ends_with(b"\n"));
            // What follows belongs to the tunnel.
            assert_eq!(asked(&[&bytes[..*length], b"CONNECT x"].concat()), whole);
        }
        Asked::NeedMore | Asked::Other => {}
    }
    for end in 0..bytes.len() {
        match asked(&bytes[..end]) {
            Asked::NeedMore | Asked::Other if end < 8 => {}
            Asked::NeedMore => {}
            Asked::Other => assert_eq!(whole, Asked::Other),
            early @ Asked::Tunnel(..) => assert_eq!(early, whole),
        }
    }
});
