//! A body in pieces: no real value comes out, however it is cut, and nothing else changes.
#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use understudy::credentials::scrub::{Detector, Forms, Pair, Patterns, Replacer};

const REAL: &str = "sk-ant-api03-Zo9_-mJ4tKq7";
const STAND_IN: &str = "sk-ant-api03-aB3dE6gH-_1k";

static PATTERNS: LazyLock<Arc<Patterns>> = LazyLock::new(|| {
    let pair = Pair { owner: 0, value: REAL, other: STAND_IN.into(), forms: Forms::All };
    Arc::new(Patterns::new([pair]))
});

fuzz_target!(|chunks: Vec<Vec<u8>>| {
    // The fuzzer cannot guess 25 characters: these stand for them, and for the most of them.
    let fill = |chunk: &Vec<u8>| {
        let text = chunk.iter().flat_map(|byte| match byte {
            1 => REAL.as_bytes().to_vec(),
            2 => REAL.as_bytes()[..24].to_vec(),
            3 => REAL.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect(),
            4 => REAL.bytes().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect(),
            other => vec![*other],
        });
        text.collect::<Vec<u8>>()
    };
    let chunks: Vec<Vec<u8>> = chunks.iter().map(fill).collect();
    let body = chunks.concat();
    let mut replacer = Replacer::new(Arc::clone(&PATTERNS));
    let mut detector = Detector::new(Arc::clone(&PATTERNS));
    let (mut out, mut found) = (Vec::new(), 0);
    for chunk in chunks {
        let chunk = Bytes::from(chunk);
        found += detector.push(chunk.clone()).len();
        out.extend_from_slice(&replacer.push(chunk));
        assert!(replacer.held() < PATTERNS.longest());
    }
    out.extend_from_slice(&replacer.finish());
    found += detector.finish().len();
    assert_eq!(found as u64, replacer.replaced());
    assert_eq!(out.len(), body.len());
    assert!(!out.windows(REAL.len()).any(|part| part == REAL.as_bytes()));
    let mut whole = Replacer::new(Arc::clone(&PATTERNS));
    let mut again = whole.push(Bytes::from(body.clone())).to_vec();
    again.extend_from_slice(&whole.finish());
    assert_eq!(again, out);
    if found == 0 {
        assert_eq!(out, body);
    }
});
