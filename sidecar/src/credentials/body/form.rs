//! Forms: <https://url.spec.whatwg.org/#application/x-www-form-urlencoded>.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use zeroize::Zeroizing;

use super::{Field, FieldError};

/// What its serializer leaves as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

pub(in crate::credentials) fn find(body: &[u8], name: &str) -> Result<Option<Field>, FieldError> {
    let mut found = None;
    let mut start = 0;
    for pair in body.split(|b| *b == b'&') {
        let equals = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        let (own, value) = pair.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        let (own, text) = (decoded(own)?, decoded(value)?);
        if own == name.as_bytes() {
            let range = start + pair.len() - value.len()..start + pair.len();
            let field = Field { range, value: String::from_utf8(text).ok() };
            if found.replace(field).is_some() {
                return Err(FieldError::Twice);
            }
        }
        start += pair.len() + 1;
    }
    Ok(found)
}

pub(super) fn spelled(credential: &str) -> Zeroizing<String> {
    Zeroizing::new(utf8_percent_encode(credential, KEPT).to_string())
}

fn decoded(raw: &[u8]) -> Result<Vec<u8>, FieldError> {
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let broken = |at: usize| !hex(raw.get(at + 1)) || !hex(raw.get(at + 2));
    if raw.iter().enumerate().any(|(at, b)| *b == b'%' && broken(at)) {
        return Err(FieldError::Malformed);
    }
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    Ok(percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_is_found_and_told_from_others() {
        for (body, expected) in [
            ("a=1&key=v%61lue&b", Ok(Some((8..15, Some("value"))))),
            ("k%65y=a+b", Ok(Some((6..9, Some("a b"))))),
            ("key", Ok(Some((3..3, Some(""))))),
            ("key=%ff", Ok(Some((4..7, None)))),
            ("Key=1&xkey=2&key[]=3", Ok(None)),
            ("", Ok(None)),
            ("key=1&key=1", Err(FieldError::Twice)),
            ("key=1&k%65y=2", Err(FieldError::Twice)),
            ("a=%&key=1", Err(FieldError::Malformed)),
            ("%zz=1", Err(FieldError::Malformed)),
        ] {
            let found = find(body.as_bytes(), "key");
            let expected = expected
                .map(|found| found.map(|(range, value)| Field { range, value: value.map(str::to_owned) }));
            assert_eq!(found, expected, "{body}");
        }
    }
}
