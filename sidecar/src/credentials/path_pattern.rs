//! Paths of requests, matched as the upstream will read them: what two programs could read differently matches nothing.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// `/v1/*/files/**`: `*` is one segment, `**` at the end is one or more. The rest is compared letter for letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Vec<Segment>);

/// A [`PathPattern`] with one segment that holds the credential: `/bot{}/**`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    One,
    /// Only as the last.
    Rest,
    /// What stands before and behind the credential. Exactly one in a template, none in a pattern.
    Credential(String, String),
}

// What was written is not quoted: people paste credentials into the wrong line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    #[error("a path starts with `/`, as `/v1/**`")]
    Relative,
    #[error("a `?` or `#` in a path; a path ends before them")]
    Query,
    #[error(
        "a path has letters, digits and `-._~!$&'()+,=:@` between its slashes, decoded; no `.` or `..` and nothing empty"
    )]
    Segment,
    #[error("`*` stands for a whole segment, and `**` for all that follow, at the end, as `/v1/*/files/**`")]
    Star,
    #[error("`{{}}` marks where the credential stands in the path of a placement; it has no place here")]
    Credential,
    #[error("exactly one `{{}}` must mark where in the path the credential stands, as `/bot{{}}/**`")]
    NoCredential,
}

/// The path of a request that all would read in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainPath {
    /// Decoded.
    segments: Vec<String>,
}

/// Decoded or not, merged or not, cut short or not: programs differ in how they read this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

impl PlainPath {
    /// `path` as it stands in a request, without a query. Refused: dot segments, empty ones but the last, `\` and `;`,
    /// an encoded slash, percent-encoding that is not valid or of itself, bytes that are not UTF-8, controls.
    pub fn new(path: &str) -> Result<Self, Ambiguous> {
        let mut segments = Vec::new();
        for raw in path.strip_prefix('/').ok_or(Ambiguous)?.split('/') {
            segments.push(decoded(raw)?);
        }
        let (_, inner) = segments.split_last().ok_or(Ambiguous)?;
        if inner.iter().any(String::is_empty) {
            return Err(Ambiguous);
        }
        Ok(Self { segments })
    }
}

fn decoded(raw: &str) -> Result<String, Ambiguous> {
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let bytes = raw.as_bytes();
    let broken = |at: usize| !hex(bytes.get(at + 1)) || !hex(bytes.get(at + 2));
    if bytes.iter().enumerate().any(|(at, b)| *b == b'%' && broken(at)) {
        return Err(Ambiguous);
    }
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| Ambiguous)?;
    let unclear = |c: char| c.is_control() || matches!(c, '/' | '\\' | ';' | '%');
    if text.chars().any(unclear) || matches!(text.as_ref(), "." | "..") {
        return Err(Ambiguous);
    }
    Ok(text.into_owned())
}

impl PathPattern {
    pub fn matches(&self, path: &PlainPath) -> bool {
        matched(&self.0, &path.segments)
    }
}

impl PathTemplate {
    /// For a path that fits: the number of the segment that holds the credential, and what stands around it there.
    pub fn slot(&self, path: &PlainPath) -> Option<(usize, &str, &str)> {
        if !matched(&self.0, &path.segments) {
            return None;
        }
        self.0.iter().enumerate().find_map(|(number, segment)| match segment {
            Segment::Credential(before, behind) => Some((number, before.as_str(), behind.as_str())),
            _ => None,
        })
    }
}

fn matched(pattern: &[Segment], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((Segment::Rest, _)), Some(_)) => true,
        (Some((segment, pattern)), Some((text, path))) => segment.fits(text) && matched(pattern, path),
        _ => false,
    }
}

impl Segment {
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::One => !text.is_empty(),
            Self::Rest => true,
            Self::Credential(before, behind) => {
                text.len() > before.len() + behind.len()
                    && text.starts_with(before.as_str())
                    && text.ends_with(behind.as_str())
            }
        }
    }
}

fn parsed(text: &str) -> Result<Vec<Segment>, PathPatternError> {
    let path = text.strip_prefix('/').ok_or(PathPatternError::Relative)?;
    if path.contains(['?', '#']) {
        return Err(PathPatternError::Query);
    }
    let raw: Vec<&str> = path.split('/').collect();
    raw.iter().enumerate().map(|(number, text)| segment(text, number + 1 == raw.len())).collect()
}

fn segment(text: &str, last: bool) -> Result<Segment, PathPatternError> {
    let plain = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()+,=:@".contains(&b))
            .then(|| text.to_owned())
            .ok_or(PathPatternError::Segment)
    };
    match text {
        "*" => Ok(Segment::One),
        "**" if last => Ok(Segment::Rest),
        _ if text.contains('*') => Err(PathPatternError::Star),
        "." | ".." => Err(PathPatternError::Segment),
        "" if !last => Err(PathPatternError::Segment),
        _ => match text.split_once("{}") {
            Some((before, behind)) => Ok(Segment::Credential(plain(before)?, plain(behind)?)),
            None => Ok(Segment::Literal(plain(text)?)),
        },
    }
}

fn credentials(segments: &[Segment]) -> usize {
    segments.iter().filter(|segment| matches!(segment, Segment::Credential(..))).count()
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        let segments = parsed(text)?;
        if credentials(&segments) > 0 { Err(PathPatternError::Credential) } else { Ok(Self(segments)) }
    }
}

impl FromStr for PathTemplate {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        let segments = parsed(text)?;
        if credentials(&segments) == 1 { Ok(Self(segments)) } else { Err(PathPatternError::NoCredential) }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.0, f)
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.0, f)
    }
}

fn shown(segments: &[Segment], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for segment in segments {
        match segment {
            Segment::Literal(text) => write!(f, "/{text}")?,
            Segment::One => f.write_str("/*")?,
            Segment::Rest => f.write_str("/**")?,
            Segment::Credential(before, behind) => write!(f, "/{before}{{}}{behind}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stand_for_segments() {
        for (pattern, path, expected) in [
            ("/v1/messages", "/v1/messages", true),
            ("/v1/messages", "/v1/%6dessages", true),
            ("/v1/messages", "/V1/messages", false),
            ("/v1/messages", "/v1/messages/", false),
            ("/v1/*", "/v1/messages", true),
            ("/v1/*", "/v1/", false),
            ("/v1/*", "/v1/a/b", false),
            ("/v1/*/files", "/v1/a%20b/files", true),
            ("/v1/**", "/v1/a/b/", true),
            ("/v1/**", "/v1/", true),
            ("/v1/**", "/v1", false),
            ("/**", "/", true),
            ("/", "/", true),
            ("/", "/a", false),
        ] {
            let pattern: PathPattern = pattern.parse().unwrap();
            let path = PlainPath::new(path).unwrap();
            assert_eq!(pattern.matches(&path), expected, "{pattern} {path:?}");
        }
    }

    #[test]
    fn a_path_that_could_be_read_in_two_ways_matches_nothing() {
        for path in [
            "",
            "v1",
            "*",
            "/v1/../admin",
            "/v1/./a",
            "/v1/%2e%2E/admin",
            "/v1/%2e./admin",
            "//v1",
            "/v1//a",
            "/v1%2fadmin",
            "/v1%5Cadmin",
            "/v1\\admin",
            "/v1;x=1/a",
            "/v1%3bx/a",
            "/v1/%252e%252e/a",
            "/v1/%",
            "/v1/%zz",
            "/v1/%0d",
            "/v1/%00",
            "/v1/%ff",
            "/v1/%c0%af",
            "/v1/..",
        ] {
            assert_eq!(PlainPath::new(path), Err(Ambiguous), "{path}");
        }
        assert!(PlainPath::new("/caf%C3%A9/a..b/...").is_ok());
    }

    #[test]
    fn a_template_tells_where_the_credential_stands() {
        let template: PathTemplate = "/bot{}/**".parse().unwrap();
        let slot = |path| template.slot(&PlainPath::new(path).unwrap());
        assert_eq!(slot("/botTOKEN/send"), Some((0, "bot", "")));
        assert_eq!(slot("/bot/send"), None);
        assert_eq!(slot("/file/botTOKEN/send"), None);
        assert_eq!(slot("/botTOKEN"), None);
        let template: PathTemplate = "/a/*/{}.json".parse().unwrap();
        assert_eq!(template.slot(&PlainPath::new("/a/b/x.json").unwrap()), Some((2, "", ".json")));
    }

    #[test]
    fn what_is_no_pattern_is_an_error() {
        for (text, error) in [
            ("v1", PathPatternError::Relative),
            ("", PathPatternError::Relative),
            ("/a?b", PathPatternError::Query),
            ("/a//b", PathPatternError::Segment),
            ("/a/../b", PathPatternError::Segment),
            ("/a%20b", PathPatternError::Segment),
            ("/a;b", PathPatternError::Segment),
            ("/v*", PathPatternError::Star),
            ("/**/a", PathPatternError::Star),
            ("/{}", PathPatternError::Credential),
        ] {
            assert_eq!(text.parse::<PathPattern>(), Err(error), "{text}");
        }
        for text in ["/a", "/{}/{}"] {
            assert_eq!(text.parse::<PathTemplate>(), Err(PathPatternError::NoCredential), "{text}");
        }
        for text in ["/{}{}", "/{", "/a{b}"] {
            assert_eq!(text.parse::<PathTemplate>(), Err(PathPatternError::Segment), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(text in "(/[a-z0-9._:-]{1,4}|/\\*){0,4}(/|/\\*\\*)?") {
            if let Ok(pattern) = text.parse::<PathPattern>() {
                prop_assert_eq!(pattern.to_string(), text);
            }
        }

        #[test]
        fn nothing_makes_it_panic(path in "\\PC{0,40}") {
            let pattern: PathPattern = "/a/*/**".parse().unwrap();
            if let Ok(path) = PlainPath::new(&path) {
                pattern.matches(&path);
            }
            drop(path.parse::<PathTemplate>());
        }
    }
}
