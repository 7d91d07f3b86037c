//! A WebSocket's frames in pieces: the same bytes come out however they are cut, as many as went in, and never a panic.
#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use understudy::credentials::scrub::{Forms, Pair, Patterns};
use understudy::proxy::websocket::{BadFrame, Replacing, Sender, Side};

const REAL: &str = "sk-ant-api03-Zo9_-mJ4tKq7";
const STAND_IN: &str = "sk-ant-api03-aB3dE6gH-_1k";

static PATTERNS: LazyLock<Arc<Patterns>> = LazyLock::new(|| {
    let pair = Pair { owner: 0, value: REAL, other: STAND_IN.into(), forms: Forms::All };
    Arc::new(Patterns::new([pair]))
});

fn through(sender: Sender, chunks: &[Vec<u8>]) -> Result<Vec<u8>, BadFrame> {
    let replacing = if sender == Sender::Server { Replacing::All } else { Replacing::Text };
    let mut side = Side::new(sender, replacing, Arc::clone(&PATTERNS), Arc::clone(&PATTERNS));
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&side.push(Bytes::from(chunk.clone()))?);
    }
    Ok(out)
}

fuzz_target!(|input: (bool, Vec<Vec<u8>>)| {
    let (server, chunks) = input;
    let sender = if server { Sender::Server } else { Sender::Client };
    // The fuzzer cannot guess 25 characters: this stands for a whole text frame of a server with them.
    let fill = |chunk: &Vec<u8>| match chunk.as_slice() {
        [0xff, rest @ ..] => [&[0x81, 25], REAL.as_bytes(), rest].concat(),
        other => other.to_vec(),
    };
    let chunks: Vec<Vec<u8>> = chunks.iter().map(fill).collect();
    let whole = chunks.concat();
    let out = through(sender, &chunks);
    assert_eq!(out, through(sender, &[whole.clone()]));
    if let Ok(out) = out {
        assert!(out.len() <= whole.len());
        // No byte of the value can begin a frame: where it stands in one piece, it stands in what the server says.
        assert!(!server || !out.windows(REAL.len()).any(|window| window == REAL.as_bytes()), "a real value came back");
    }
});
