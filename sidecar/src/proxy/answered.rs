//! What a container sees of an answer: the same steps as an answer of an upstream takes, for the report on secrets.

use pingora_http::ResponseHeader;

use super::headers;

/// An answer that has `text` in a header and as its body. Names of headers stay as they are, so values and body are all.
pub fn answered(text: &[u8]) -> Vec<u8> {
    let Ok(mut head) = ResponseHeader::build(200, Some(1)) else { return text.to_vec() };
    if head.insert_header("x-echo", text).is_err() {
        return text.to_vec();
    }
    headers::clean_response(&mut head);
    let mut seen: Vec<u8> =
        head.headers.values().flat_map(|value| value.as_bytes().iter().copied()).collect();
    // As in the engine: bodies pass as they are.
    seen.extend_from_slice(text);
    seen
}
