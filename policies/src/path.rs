//! Paths of requests, and the patterns that rules are written in.
//!
//! Servers differ in how they read a path: some decode before they split it, resolve dot segments, take `\` for `/`,
//! drop what follows a `;`, or merge slashes. What allows something asks of a [`RequestPath`]: a path on which they would
//! differ is an error there, never guessed at. The one exception is `%2F`, which package managers and forges send every
//! day: such a path has two readings, and what allows must hold for both. What refuses something asks of [`Readings`],
//! which any path has, and needs only one of them.

mod index;
mod pattern;
mod readings;

pub(crate) use index::PathIndex;
pub use pattern::{PathPattern, PathPatternError};
pub use readings::Readings;
use readings::Segment;

/// A path of an origin-form target (RFC 9112 section 3.2.1), without its query. Escapes of unreserved characters are
/// undone, all others are in upper case (RFC 3986 section 6.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath {
    literal: String,
    /// What is between its slashes; once more with `/` for every `%2F`, if there is one.
    readings: Vec<Vec<Segment>>,
}

/// Why servers may differ on what a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PathError {
    #[error("the path does not start with `/`")]
    Relative,
    #[error("the path has a `%` that two hexadecimal digits do not follow")]
    Escape,
    #[error("the path is percent-encoded twice")]
    DoubleEncoding,
    #[error("the path has a control character, a space or a character that is not ASCII in it")]
    Character,
    #[error("the path has a segment `.` or `..`")]
    DotSegment,
    #[error("the path has an empty segment (`//`)")]
    EmptySegment,
    #[error("the path has a `\\` in it")]
    Backslash,
    #[error("the path has a `;` in it")]
    Parameter,
    #[error("the path has more than {MOST_SEGMENTS} segments")]
    Segments,
}

/// Segments of a path that are looked at: no server has so many, and each is compared with every pattern.
const MOST_SEGMENTS: usize = 256;

impl RequestPath {
    /// # Errors
    /// If servers could read it differently, but for `%2F`.
    pub fn parse(raw: &str) -> Result<Self, PathError> {
        if raw.bytes().filter(|byte| *byte == b'/').count() > MOST_SEGMENTS {
            return Err(PathError::Segments);
        }
        let literal = normalised(raw)?;
        unambiguous(&literal)?;
        let split = literal.contains("%2F").then(|| literal.replace("%2F", "/"));
        if let Some(split) = &split {
            if split.bytes().filter(|byte| *byte == b'/').count() > MOST_SEGMENTS {
                return Err(PathError::Segments);
            }
            unambiguous(split)?;
        }
        let readings = std::iter::once(&literal).chain(&split).map(|text| segments(text)).collect();
        Ok(Self { literal, readings })
    }

    /// As it is compared.
    pub fn as_str(&self) -> &str {
        &self.literal
    }

    fn readings(&self) -> impl Iterator<Item = &[Segment]> {
        self.readings.iter().map(Vec::as_slice)
    }
}

/// Of what follows the first slash.
fn segments(path: &str) -> Vec<Segment> {
    path.split('/').skip(1).map(|segment| segment.as_bytes().to_vec()).collect()
}

fn normalised(raw: &str) -> Result<String, PathError> {
    let mut path = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(letter) = rest.chars().next() {
        if letter != '%' {
            if !letter.is_ascii_graphic() {
                return Err(PathError::Character);
            }
            path.push(letter);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let digits = rest.get(1..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(PathError::Escape)?;
        rest = rest.get(3..).unwrap_or_default();
        match byte {
            b if b.is_ascii_control() => return Err(PathError::Character),
            b'\\' => return Err(PathError::Backslash),
            b';' => return Err(PathError::Parameter),
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') => {
                path.push(char::from(b));
            }
            b => path.push_str(&format!("%{b:02X}")),
        }
    }
    // Only now, since the digits may have been encoded themselves.
    if path.split("%25").skip(1).any(starts_with_digits) {
        return Err(PathError::DoubleEncoding);
    }
    Ok(path)
}

fn starts_with_digits(text: &str) -> bool {
    text.as_bytes().first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

fn unambiguous(path: &str) -> Result<(), PathError> {
    if path.contains('\\') {
        return Err(PathError::Backslash);
    }
    if path.contains(';') {
        return Err(PathError::Parameter);
    }
    let mut segments = path.strip_prefix('/').ok_or(PathError::Relative)?.split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => return Err(PathError::DotSegment),
            // What follows the last slash may be nothing.
            "" if segments.peek().is_some() => return Err(PathError::EmptySegment),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RequestPath {
        RequestPath::parse(text).unwrap()
    }

    #[test]
    fn spellings_of_one_path_are_one() {
        for (raw, canonical) in [
            ("/", "/"),
            ("/v1/%6Dessages", "/v1/messages"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%20b/", "/a%20b/"),
            ("/%7euser/%C3%a9", "/~user/%C3%A9"),
            ("/compare/a...b", "/compare/a...b"),
            ("/100%25", "/100%25"),
        ] {
            assert_eq!(path(raw).as_str(), canonical, "{raw}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (raw, error) in [
            ("", PathError::Relative),
            ("v1", PathError::Relative),
            ("*", PathError::Relative),
            ("/a/../b", PathError::DotSegment),
            ("/a/%2e%2E/b", PathError::DotSegment),
            ("/a/.%2e", PathError::DotSegment),
            ("/a%2F..%2Fb", PathError::DotSegment),
            ("/.", PathError::DotSegment),
            ("//a", PathError::EmptySegment),
            ("/a//", PathError::EmptySegment),
            ("/a%2F/b", PathError::EmptySegment),
            ("/a\\b", PathError::Backslash),
            ("/a%5cb", PathError::Backslash),
            ("/a;x/b", PathError::Parameter),
            ("/..;/b", PathError::Parameter),
            ("/a%3Bx", PathError::Parameter),
            ("/%252e%252e/b", PathError::DoubleEncoding),
            ("/%25%32%65%25%32%65/b", PathError::DoubleEncoding),
            ("/%25%32e/b", PathError::DoubleEncoding),
            ("/%252%65", PathError::DoubleEncoding),
            (&"/a".repeat(MOST_SEGMENTS + 1), PathError::Segments),
            (&format!("/{}a", "a%2F".repeat(MOST_SEGMENTS)), PathError::Segments),
            ("/a%2", PathError::Escape),
            ("/a%zz", PathError::Escape),
            ("/a%00", PathError::Character),
            ("/a b", PathError::Character),
            ("/\u{e9}", PathError::Character),
        ] {
            assert_eq!(RequestPath::parse(raw), Err(error), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(raw in "/([a-z%0-9A-F./~-]|%25|%3[0-9]|%6[0-9]){0,20}") {
            if let Ok(path) = RequestPath::parse(&raw) {
                let again = RequestPath::parse(path.as_str()).unwrap();
                prop_assert_eq!(again, path);
            }
        }

        #[test]
        fn nothing_makes_it_panic(raw in "\\PC{0,40}") {
            drop(RequestPath::parse(&raw));
        }
    }
}
