//! The strings of a JSON document with their lines, which serde does not tell.

use serde::de::IgnoredAny;

/// A string that is the value of a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) line: usize,
    pub(super) message: String,
}

/// Of objects at any depth, in the order of the text. Nothing here calls itself: what is nested deep takes no stack.
pub(super) fn members(text: &str) -> Result<Vec<Member>, JsonError> {
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| JsonError { line: error.line(), message: format!("not JSON: {error}") })?;
    let mut members = Vec::new();
    let mut key: Option<String> = None;
    let (mut line, mut at) = (1, 0);
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => line += 1,
            b'"' => {
                let end = end_of_string(bytes, at);
                let string = text.get(at..end).and_then(|raw| serde_json::from_str::<String>(raw).ok());
                at = end;
                let followed_by_colon =
                    bytes.get(end..).unwrap_or_default().iter().find(|b| !b.is_ascii_whitespace())
                        == Some(&b':');
                match (string, followed_by_colon) {
                    (string, true) => key = string,
                    (Some(value), false) => {
                        members.extend(key.take().map(|key| Member { key, value, line }));
                    }
                    (None, false) => {}
                }
                continue;
            }
            b'{' | b'}' | b'[' | b']' | b',' => key = None,
            _ => {}
        }
        at += 1;
    }
    Ok(members)
}

/// Behind the quote that ends the string which begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_their_lines() {
        let text = "{\n \"a\": \"x\\\"y\", \"b\" :\n  \"\\u0068\", \"c\": [\"no\"], \"d\": {\"a\": 1, \"e\": \"z\"}\n}";
        let found: Vec<_> = members(text).unwrap().into_iter().map(|m| (m.key, m.value, m.line)).collect();
        let expected = [("a", "x\"y", 2), ("b", "h", 3), ("e", "z", 3)];
        assert_eq!(found, expected.map(|(key, value, line)| (key.to_owned(), value.to_owned(), line)));
    }

    #[test]
    fn what_is_no_json_is_an_error_with_its_line_however_deep() {
        let error = members("{\n\"a\": }").unwrap_err();
        assert_eq!(error.line, 2);
        let deep = |end: &str| format!("{}{{\"a\": \"b\"}}{}", "[".repeat(100_000), end.repeat(100_000));
        assert!(members(&deep("")).unwrap_err().message.contains("not JSON"));
        assert_eq!(members(&deep("]")).unwrap().len(), 1);
    }
}
