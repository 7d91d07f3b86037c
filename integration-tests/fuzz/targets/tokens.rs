//! Tokens that a program signed itself: what is understood is signed as it was written, and says one thing alone.
#![no_main]

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use understudy::credentials::assertions::jws::{Jws, claimed_issuer};

fuzz_target!(|text: &str| {
    read(text);
    // The same as header and claims, one a line.
    if let Some((header, claims)) = text.split_once('\n') {
        let encoded = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        read(&format!("{}.{}.c2ln", encoded(header), encoded(claims)));
    }
});

fn read(text: &str) {
    let issuer = claimed_issuer(text);
    let Ok(token) = Jws::parse(text) else { return };
    assert_eq!(format!("{}.{}", token.signed(), token.signature_text()), text);
    assert_eq!(BASE64_URL_SAFE_NO_PAD.encode(token.signature()), token.signature_text());
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.claims_text()).unwrap();
    // One that reads claims as most do finds the same.
    let usual: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(usual.as_object().unwrap().len(), token.claims().all().count());
    for (name, value) in token.claims().all() {
        assert_eq!(usual.get(name), Some(value));
    }
    if let Some(said) = token.claims().text("iss") {
        assert_eq!(issuer.as_deref(), Some(said));
    }
}
