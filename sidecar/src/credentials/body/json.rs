//! JSON (RFC 8259) and pointers into it (RFC 6901). The whole document must be well-formed, and no object on the way
//! may name the member twice: of two, programs differ in which they take.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{Field, FieldError};
use crate::credentials::placement::Pointer;

const DEEPEST: usize = 128;
const TWICE: &str = "a member is named twice";

pub(in crate::credentials) fn find(body: &[u8], pointer: &Pointer) -> Result<Option<Field>, FieldError> {
    let text = std::str::from_utf8(body).map_err(|_| FieldError::Malformed)?;
    if depth(body) > DEEPEST {
        return Err(FieldError::Deep);
    }
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| FieldError::Malformed)?;
    let mut value = raw.get();
    for token in pointer.tokens() {
        match child(value, token)? {
            Some(child) => value = child,
            None => return Ok(None),
        }
    }
    if value == "null" {
        return Ok(None);
    }
    // Borrowed from `text`, so that addresses tell where.
    let start = value.as_ptr().addr() - text.as_ptr().addr();
    let range = start..start + value.len();
    Ok(Some(Field { range, value: serde_json::from_str(value).ok() }))
}

pub(in crate::credentials) fn spelled(credential: &str) -> Zeroizing<String> {
    Zeroizing::new(serde_json::Value::from(credential).to_string())
}

/// The most levels that are open at once, if the text is JSON.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for b in text {
        match (quoted, b) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'[' | b'{') => {
                open += 1;
                deepest = deepest.max(open);
            }
            (false, b']' | b'}') => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The text of a member of an object or an item of an array; None if there is none.
fn child<'t>(value: &'t str, token: &str) -> Result<Option<&'t str>, FieldError> {
    if !value.starts_with(['{', '[']) {
        return Ok(None);
    }
    let found = serde_json::Deserializer::from_str(value).deserialize_any(Child { token });
    found.map(|found| found.map(RawValue::get)).map_err(|error| {
        if error.to_string().starts_with(TWICE) { FieldError::Twice } else { FieldError::Malformed }
    })
}

struct Child<'p> {
    token: &'p str,
}

impl<'t> Visitor<'t> for Child<'_> {
    type Value = Option<&'t RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<M: MapAccess<'t>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'t, str>>()? {
            if name != self.token {
                members.next_value::<IgnoredAny>()?;
            } else if found.replace(members.next_value()?).is_some() {
                return Err(M::Error::custom(TWICE));
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'t>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let plain = self.token == "0" || !self.token.starts_with(['0', '+']);
        let wanted: Option<usize> = self.token.parse().ok().filter(|_| plain);
        let mut found = None;
        let mut number = 0;
        while let Some(item) = items.next_element()? {
            if Some(number) == wanted {
                found = Some(item);
            }
            number += 1;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str, pointer: &str) -> Result<Option<(String, Option<String>)>, FieldError> {
        let field = find(body.as_bytes(), &pointer.parse().unwrap())?;
        Ok(field.map(|field| (body[field.range].to_owned(), field.value)))
    }

    #[test]
    fn a_string_is_found_where_the_pointer_says() {
        for (body, pointer, raw, value) in [
            (r#"{"a":1, "key" : "x\u0079" }"#, "/key", r#""x\u0079""#, Some("xy")),
            (r#"{"k\u0065y":"x"}"#, "/key", r#""x""#, Some("x")),
            (r#" {"a":[{"b":"no"},{"b/c":{"~":"x"}}]}"#, "/a/1/b~1c/~0", r#""x""#, Some("x")),
            (r#"["a","b"]"#, "/1", r#""b""#, Some("b")),
            (r#"{"key":{"x":1}}"#, "/key", r#"{"x":1}"#, None),
            (r#"{"key":12}"#, "/key", "12", None),
            (r#"{"":"x"}"#, "/", r#""x""#, Some("x")),
        ] {
            let expected = Some((raw.to_owned(), value.map(str::to_owned)));
            assert_eq!(found(body, pointer), Ok(expected), "{body}");
        }
        for (body, pointer) in [
            (r#"{"a":1}"#, "/key"),
            (r#"["a"]"#, "/01"),
            (r#"["a"]"#, "/-"),
            ("\"key\"", "/key"),
            (r#"{"key":null}"#, "/key"),
        ] {
            assert_eq!(found(body, pointer), Ok(None), "{body}");
        }
    }

    #[test]
    fn what_is_not_well_formed_or_not_clear_is_an_error() {
        for body in [
            "",
            "{",
            r#"{"key":"x"} x"#,
            r#"{"key":"x",}"#,
            r#"{key:"x"}"#,
            "{\"key\":\"\u{1}\"}",
            "\u{feff}{}",
        ] {
            assert_eq!(found(body, "/key"), Err(FieldError::Malformed), "{body:?}");
        }
        assert_eq!(find(b"{\"key\":\"\xff\"}", &"/key".parse().unwrap()), Err(FieldError::Malformed));
        for body in [r#"{"key":"x","key":"y"}"#, r#"{"key":"x","k\u0065y":"y"}"#, r#"{"key":null,"key":"y"}"#]
        {
            assert_eq!(found(body, "/key"), Err(FieldError::Twice), "{body}");
        }
        assert_eq!(found(r#"{"a":{"key":"x"},"a":{}}"#, "/a/key"), Err(FieldError::Twice));
        // Elsewhere it is the server's matter.
        assert!(found(r#"{"b":1,"b":2,"key":"x"}"#, "/key").is_ok());
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(found(&nested(128), "/key"), Ok(None));
        assert_eq!(found(&nested(129), "/key"), Err(FieldError::Deep));
        assert_eq!(found(&"[{\"a\":".repeat(100_000), "/key"), Err(FieldError::Deep));
        assert_eq!(found(&format!("[\"{}\\\"[\"]", "[".repeat(1000)), "/key"), Ok(None));
    }
}
