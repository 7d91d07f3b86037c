//! Paths of requests, and the patterns that rules are written in.
//!
//! Servers differ in how they read a path: some decode before they split it, resolve dot segments, take `\` for `/`,
//! drop what follows a `;`, or merge slashes. A path on which they would differ is an error here, never guessed at. The
//! one exception is `%2F`, which package managers and forges send every day: such a path has two readings, and a rule
//! that allows must hold for both, while one that denies needs only one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A path of an origin-form target (RFC 9112 section 3.2.1), without its query. Escapes of unreserved characters are
/// undone, all others are in upper case (RFC 3986 section 6.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath {
    literal: String,
    /// With `/` for every `%2F`, if there is one.
    split: Option<String>,
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
}

impl RequestPath {
    /// # Errors
    /// If servers could read it differently, but for `%2F`.
    pub fn parse(raw: &str) -> Result<Self, PathError> {
        let literal = normalised(raw)?;
        unambiguous(&literal)?;
        let split = literal.contains("%2F").then(|| literal.replace("%2F", "/"));
        if let Some(split) = &split {
            unambiguous(split)?;
        }
        Ok(Self { literal, split })
    }

    /// As it is compared.
    pub fn as_str(&self) -> &str {
        &self.literal
    }

    fn readings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.literal.as_str()).chain(self.split.as_deref())
    }
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
            b'%' if starts_with_digits(rest) => return Err(PathError::DoubleEncoding),
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') => {
                path.push(char::from(b));
            }
            b => path.push_str(&format!("%{b:02X}")),
        }
    }
    Ok(path)
}

fn starts_with_digits(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_hexdigit()) && bytes.next().is_some_and(|b| b.is_ascii_hexdigit())
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

/// `/v1/*/items`, `/repos/org/**`: `*` is any number of characters of one segment, `**` any number of segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    #[error("a path starts with `/`")]
    Relative,
    #[error("`**` stands for whole segments, as in `/v1/**`")]
    Stars,
    #[error("a path has no `{0}`; the query is not part of it")]
    Query(char),
    #[error("such a path is always refused: {0}")]
    Never(PathError),
}

impl PathPattern {
    /// Whether it matches however the server reads the path: what a rule that allows something asks.
    pub fn matches_surely(&self, path: &RequestPath) -> bool {
        path.readings().all(|reading| glob(&self.text, reading, |a, b| a == b))
    }

    /// Whether it matches in some reading, with letters of either case, with or without a slash at the end, and with any
    /// character percent-encoded or not: what a rule that denies something asks.
    pub fn matches_possibly(&self, path: &RequestPath) -> bool {
        let like = |pattern: &str, reading: &str| glob(pattern, reading, u8::eq_ignore_ascii_case);
        let pattern = encoded(&self.text, b"*");
        path.readings().any(|reading| {
            let reading = encoded(reading, b"");
            like(&pattern, &reading) || like(bare(&pattern), bare(&reading))
        })
    }
}

/// With every reserved character encoded (RFC 3986 section 2.2) but slashes and `kept`: most servers do not tell `@` from
/// `%40`.
fn encoded<'t>(path: &'t str, kept: &[u8]) -> Cow<'t, str> {
    let reserved = |b: u8| b"!$&'()*+,:=@[]".contains(&b) && !kept.contains(&b);
    if !path.bytes().any(reserved) {
        return Cow::Borrowed(path);
    }
    let letter = |letter: char| match u8::try_from(letter) {
        Ok(b) if reserved(b) => format!("%{b:02X}"),
        _ => letter.to_string(),
    };
    Cow::Owned(path.chars().map(letter).collect())
}

/// Without the slash at the end.
fn bare(path: &str) -> &str {
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        if !text.starts_with('/') {
            return Err(PathPatternError::Relative);
        }
        if let Some(mark) = text.chars().find(|c| matches!(c, '?' | '#')) {
            return Err(PathPatternError::Query(mark));
        }
        if text.split('/').any(|segment| segment.contains("**") && segment != "**") {
            return Err(PathPatternError::Stars);
        }
        let path = RequestPath::parse(text).map_err(PathPatternError::Never)?;
        Ok(Self { text: path.literal })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn glob(pattern: &str, path: &str, same: fn(&u8, &u8) -> bool) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    matches(
        &pattern,
        &path,
        |segment| *segment == "**",
        |a, b| matches(a.as_bytes(), b.as_bytes(), |letter| *letter == b'*', same),
    )
}

/// Whether `items` match `pattern`, in which whatever `is_star` stands for any number of items. In at most the product of
/// both lengths: only the last star is ever tried again.
fn matches<P, I>(
    pattern: &[P],
    items: &[I],
    is_star: impl Fn(&P) -> bool,
    same: impl Fn(&P, &I) -> bool,
) -> bool {
    let (mut p, mut i) = (0, 0);
    // Where the last star stands, and up to where it reaches.
    let mut star: Option<(usize, usize)> = None;
    while let Some(item) = items.get(i) {
        match pattern.get(p) {
            Some(part) if is_star(part) => {
                star = Some((p, i));
                p += 1;
            }
            Some(part) if same(part, item) => {
                p += 1;
                i += 1;
            }
            _ => {
                let Some((at, reach)) = star else { return false };
                star = Some((at, reach + 1));
                p = at + 1;
                i = reach + 1;
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

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
            ("/a%2", PathError::Escape),
            ("/a%zz", PathError::Escape),
            ("/a%00", PathError::Character),
            ("/a b", PathError::Character),
            ("/\u{e9}", PathError::Character),
        ] {
            assert_eq!(RequestPath::parse(raw), Err(error), "{raw}");
        }
    }

    #[test]
    fn stars_stay_in_their_segment_and_double_stars_do_not() {
        for (text, raw, expected) in [
            ("/v1/messages", "/v1/messages", true),
            ("/v1/messages", "/v1/messages/", false),
            ("/v1/messages", "/V1/messages", false),
            ("/v1/*", "/v1/messages", true),
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v1/a/b", false),
            ("/v1/**", "/v1/a/b", true),
            ("/v1/**", "/v1", true),
            ("/v1/**", "/v10", false),
            ("/**/info/refs", "/org/repo.git/info/refs", true),
            ("/**/info/refs", "/info/refs", true),
            ("/org/*.git/**", "/org/x.git/HEAD", true),
            ("/org/*.git/**", "/org/x/y.git/HEAD", false),
            ("/*a*b", "/xaxxb", true),
            ("/*a*b", "/xbxxa", false),
            ("/%7e", "/~", true),
        ] {
            assert_eq!(pattern(text).matches_surely(&path(raw)), expected, "{text} {raw}");
        }
    }

    #[test]
    fn an_encoded_slash_is_allowed_only_where_both_readings_are() {
        let scoped = path("/@org%2Fpackage");
        assert!(pattern("/**").matches_surely(&scoped));
        assert!(!pattern("/*").matches_surely(&scoped) && !pattern("/@org/**").matches_surely(&scoped));
        assert!(
            pattern("/*").matches_possibly(&scoped) && pattern("/@org/package").matches_possibly(&scoped)
        );
    }

    #[test]
    fn a_denial_cannot_be_spelled_around() {
        for raw in ["/admin", "/ADMIN", "/admin/", "/%61dmin"] {
            assert!(pattern("/admin").matches_possibly(&path(raw)), "{raw}");
        }
        for (text, raw) in [
            ("/users/@me/**", "/users/%40me/x"),
            ("/users/%40me/**", "/users/@me/x"),
            ("/*/keys:delete", "/p/keys%3adelete"),
            ("/a(b)!$&'+,=", "/a%28b%29%21%24%26%27%2B%2C%3D"),
            ("/a%2Ab", "/a*b"),
        ] {
            assert!(pattern(text).matches_possibly(&path(raw)), "{text} {raw}");
            // To allow, nothing is guessed at.
            assert!(!pattern(text).matches_surely(&path(raw)), "{text} {raw}");
        }
        assert!(!pattern("/a%2Ab").matches_possibly(&path("/axb")));
        assert!(pattern("/admin/").matches_possibly(&path("/admin")));
        assert!(pattern("/**/*/*").matches_possibly(&path("/a/")));
        assert!(!pattern("/admin").matches_possibly(&path("/administrator")));
    }

    #[test]
    fn patterns_that_never_match_are_errors() {
        for (text, error) in [
            ("v1", PathPatternError::Relative),
            ("/v1?x", PathPatternError::Query('?')),
            ("/v1#x", PathPatternError::Query('#')),
            ("/v1/a**", PathPatternError::Stars),
            ("/v1/***", PathPatternError::Stars),
            ("/a/../b", PathPatternError::Never(PathError::DotSegment)),
            ("/a//b", PathPatternError::Never(PathError::EmptySegment)),
        ] {
            assert_eq!(text.parse::<PathPattern>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(raw in "/[a-z%0-9A-F./~-]{0,20}") {
            if let Ok(path) = RequestPath::parse(&raw) {
                let again = RequestPath::parse(path.as_str()).unwrap();
                prop_assert_eq!(again, path);
            }
        }

        #[test]
        fn what_matches_surely_matches_possibly(
            text in "/([a*]{1,3}|\\*\\*)(/([a*]{1,3}|\\*\\*)){0,3}", raw in "/[aA%2F/b]{0,12}",
        ) {
            if let (Ok(pattern), Ok(path)) = (text.parse::<PathPattern>(), RequestPath::parse(&raw)) {
                prop_assert!(!pattern.matches_surely(&path) || pattern.matches_possibly(&path));
            }
        }

        #[test]
        fn stars_agree_with_a_plain_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            fn plain(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|n| plain(rest, &text[n..])),
                    Some((letter, rest)) => text.first() == Some(letter) && plain(rest, &text[1..]),
                }
            }
            let (p, t) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(p, t, |b| *b == b'*', |a, b| a == b), plain(p, t));
        }

        #[test]
        fn nothing_makes_it_panic(raw in "\\PC{0,40}") {
            drop(RequestPath::parse(&raw));
            drop(raw.parse::<PathPattern>());
        }
    }
}
