//! A packet on the control socket: only with the hello secret does it become a request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy_control::{Envelope, HelloSecret, VERSION, server};

fuzz_target!(|bytes: &[u8]| {
    let Some(hello) = HelloSecret::from_hex(&"a".repeat(64)) else { return };
    if let Ok(request) = server::parse(bytes, &hello) {
        let again = serde_json_round_trip(&Envelope { version: VERSION, hello: hello.clone(), request: request.clone() });
        assert_eq!(server::parse(&again, &hello).ok(), Some(request));
    }
});

fn serde_json_round_trip(envelope: &Envelope) -> Vec<u8> {
    serde_json::to_vec(envelope).unwrap_or_default()
}
