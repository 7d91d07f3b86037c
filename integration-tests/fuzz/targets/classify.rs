//! The first bytes of a connection: an answer, the same one however they are cut, and never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy::connection::{Classified, classify};

fuzz_target!(|bytes: &[u8]| {
    let whole = classify(bytes);
    // What is clear early stays as it is when more arrives.
    for end in 0..bytes.len().min(64) {
        let early = classify(&bytes[..end]);
        if matches!(early, Classified::Http1 | Classified::Http2Preface | Classified::Other) {
            assert_eq!(early, whole, "after {end} of {} bytes", bytes.len());
        }
    }
    if is_smuggled(bytes) {
        assert_ne!(whole, Classified::Other);
    }
});

/// What some server takes for HTTP or TLS, said once more: words with any white space between them, of which the last is a
/// version of HTTP's and the first a method; a hello in the form of SSL 2; what a proxy says before either.
fn is_smuggled(bytes: &[u8]) -> bool {
    if matches!(bytes, [0x80..=0xbf, _, 1, 3, ..]) || bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
        return true;
    }
    let before = bytes.iter().take_while(|byte| b" \t\r\n\x0b\x0c".contains(byte)).count();
    let line = &bytes[before..];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else { return false };
    let words: Vec<&[u8]> =
        line[..end].split(|byte| b" \t\r\x0b\x0c".contains(byte)).filter(|word| !word.is_empty()).collect();
    let token = |word: &[u8]| word.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b));
    match words.as_slice() {
        [b"PROXY", b"TCP4" | b"TCP6" | b"UNKNOWN", ..] => true,
        [method, target, .., version] => {
            token(method) && target.is_ascii() && target[0].is_ascii_graphic() && *version == b"HTTP/1.1"
        }
        _ => false,
    }
}
