//! Signatures that a request claims to have: what is understood is of one scope and over the host, and none is guessed.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use understudy_sigv4::{Request, claim, is_signed, service};

fuzz_target!(|text: &str| {
    // Path and query, then headers, one a line.
    let mut lines = text.lines();
    let (path, query) = lines.next().unwrap_or_default().split_once('?').unwrap_or_default();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
            continue;
        };
        headers.append(name, value);
    }
    let request = Request { method: "PUT", path, query, host: "bucket.example", headers: &headers };
    let told = service(&request);
    let Ok(Some(claim)) = claim(&request) else {
        assert_eq!(told, None);
        return;
    };
    assert!(is_signed(&request));
    assert_eq!(told.as_ref(), Some(&claim.scope().service));
    let scope = claim.scope().to_string();
    assert_eq!(scope.split('/').count(), 4);
    assert!(!claim.key_id().is_empty() && claim.key_id().len() <= 128);
    let _ = claim.check_time(1_796_027_056);
    // Nobody can guess one.
    assert!(claim.verify(&request, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", text.as_bytes()).is_err());
});
