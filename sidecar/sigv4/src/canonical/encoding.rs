//! Percent-encoding as signatures have it: all but RFC 3986's unreserved characters, in upper-case digits.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(crate) fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, &ESCAPED).to_string()
}

pub(crate) fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}
