//! The patterns that rules about paths are written in.

use std::fmt;
use std::str::FromStr;

use super::readings::{Readings, Segment, decoded};
use super::{PathError, RequestPath};

/// `/v1/*/items`, `/repos/org/**`: `*` is any number of characters of one segment, `**` any number of segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    text: String,
    /// What is between its slashes.
    exact: Vec<Part>,
    /// The same, as readings are compared with it.
    loose: Vec<Part>,
    /// The same without the name of a format at its end.
    formless: Vec<Part>,
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
    /// Whether it matches however the server reads the path: what allows something asks this.
    pub fn matches_surely(&self, path: &RequestPath) -> bool {
        path.readings().all(|reading| like(&self.exact, reading))
    }

    /// Whether it matches in some reading, with letters of either case, with or without a slash or the name of a format
    /// (`.json`) at the end, and with any character percent-encoded or not: what refuses something asks this.
    pub fn matches_possibly(&self, readings: &Readings) -> bool {
        let Some(mut readings) = readings.all() else { return true };
        readings.any(|path| {
            like(&self.loose, path)
                || path.split_last().is_some_and(|(last, before)| {
                    let last = bare(last, |letter| Some(*letter));
                    self.formless != self.loose && like(&self.formless, path)
                        || last.len() < path.last().map_or(0, Vec::len)
                            && like(&self.formless, &[before, &[last.to_vec()]].concat())
                })
        })
    }

    /// Whether every path that `other` matches for sure is matched so by this one, too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        contains(&self.exact, &other.exact)
    }

    /// Whether every path that `other` matches, for sure or possibly, is possibly matched by this one.
    pub(crate) fn takes(&self, other: &Self) -> bool {
        contains(&self.loose, &other.loose) && contains(&self.formless, &other.formless)
    }

    /// Whether every path that `other` matches for sure is possibly matched by this one.
    pub(crate) fn surely_takes(&self, other: &Self) -> bool {
        contains(&self.loose, &other.loose) || contains(&self.formless, &other.formless)
    }

    /// Whether it matches every path.
    pub(crate) fn is_everything(&self) -> bool {
        self.exact == [Part::Any]
    }

    /// Its segments as readings have them; None for one with a star.
    pub(super) fn plain(&self) -> impl Iterator<Item = Option<Segment>> {
        self.loose.iter().map(|part| match part {
            Part::Any => None,
            Part::Segment(letters) => letters.iter().copied().collect(),
        })
    }

    /// Of segments.
    pub(super) fn len(&self) -> usize {
        self.loose.len()
    }

    /// How much there is of it, for bounds.
    pub(crate) fn size(&self) -> usize {
        self.text.len()
    }
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
        let text = RequestPath::parse(text).map_err(PathPatternError::Never)?.literal;
        let exact = text.split('/').skip(1).map(Part::exactly).collect();
        let loose: Vec<Part> = text.split('/').filter(|segment| !segment.is_empty()).map(Part::of).collect();
        let mut formless = loose.clone();
        if let Some(Part::Segment(letters)) = formless.last_mut() {
            let stem = bare(letters, |letter| *letter);
            // `*.json` asks for the format; without it, it would be anything.
            if stem.last().is_some_and(Option::is_some) {
                letters.truncate(stem.len());
            }
        }
        Ok(Self { text, exact, loose, formless })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A part of a pattern between slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    /// `**`.
    Any,
    /// None: `*`.
    Segment(Vec<Option<u8>>),
}

impl Part {
    fn exactly(segment: &str) -> Self {
        match segment {
            "**" => Self::Any,
            _ => Self::Segment(segment.bytes().map(|letter| (letter != b'*').then_some(letter)).collect()),
        }
    }

    /// Decoded and in lower case.
    fn of(segment: &str) -> Self {
        if segment == "**" {
            return Self::Any;
        }
        let mut letters = Vec::new();
        for (place, plain) in segment.split('*').enumerate() {
            letters.extend((place > 0).then_some(None));
            letters.extend(decoded(plain.as_bytes()).into_iter().map(Some));
        }
        Self::Segment(letters)
    }
}

fn like(pattern: &[Part], path: &[Segment]) -> bool {
    let same = |part: &Part, segment: &Segment| match part {
        Part::Any => true,
        Part::Segment(letters) => matches(letters, segment, Option::is_none, |a, b| *a == Some(*b)),
    };
    matches(pattern, path, |part| *part == Part::Any, same)
}

/// Whether everything that is like `other` is like `pattern`. What a star of `other` stands for, only a star takes.
fn contains(pattern: &[Part], other: &[Part]) -> bool {
    let same = |part: &Part, other: &Part| match (part, other) {
        (Part::Any, _) => true,
        (_, Part::Any) => false,
        (Part::Segment(letters), Part::Segment(others)) => {
            matches(letters, others, Option::is_none, |a, b| a == b)
        }
    };
    matches(pattern, other, |part| *part == Part::Any, same)
}

/// What frameworks take for the format of the answer at the end of a path, and do not need.
const FORMATS: [&str; 6] = [".json", ".xml", ".html", ".js", ".txt", ".yaml"];

/// Without one of them. `letter` is None for a star.
pub(super) fn bare<T>(segment: &[T], letter: impl Fn(&T) -> Option<u8>) -> &[T] {
    let ends = |format: &str| {
        let start = segment.len().checked_sub(format.len())?;
        let (stem, end) = segment.split_at_checked(start)?;
        end.iter().map(&letter).eq(format.bytes().map(Some)).then_some(stem)
    };
    FORMATS.iter().find_map(|format| ends(format)).unwrap_or(segment)
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
    fn a_pattern_that_covers_another_takes_all_of_it() {
        for (wide, narrow, covers, takes) in [
            ("/v1/**", "/v1/messages", true, true),
            ("/v1/**", "/v1", true, true),
            ("/v1/**", "/v1/*/x/**", true, true),
            ("/v1/messages", "/v1/**", false, false),
            ("/v1/*", "/v1/**", false, false),
            ("/v1/*", "/v1/a*b", true, true),
            ("/v1/a*", "/v1/*", false, false),
            ("/*a*b", "/xa*yb", true, true),
            ("/*a*b", "/x*yb", false, false),
            ("/**", "/", true, true),
            ("/**/x", "/a/**/x", true, true),
            ("/**/x", "/a/**", false, false),
            ("/v1/Keys", "/v1/keys", false, true),
            ("/keys", "/keys.json", false, false),
            ("/v1", "/v2", false, false),
        ] {
            let (wide, narrow) = (pattern(wide), pattern(narrow));
            assert_eq!((wide.covers(&narrow), wide.takes(&narrow)), (covers, takes), "{wide} {narrow}");
        }
        assert!(pattern("/keys").surely_takes(&pattern("/keys.json")));
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
            pattern("/*").matches_possibly(&Readings::of("/@org%2Fpackage"))
                && pattern("/@org/package").matches_possibly(&Readings::of("/@org%2Fpackage"))
        );
    }

    #[test]
    fn a_denial_cannot_be_spelled_around() {
        for raw in ["/admin", "/ADMIN", "/admin/", "/%61dmin"] {
            assert!(pattern("/admin").matches_possibly(&Readings::of(raw)), "{raw}");
        }
        for (text, raw) in [
            ("/users/@me/**", "/users/%40me/x"),
            ("/users/%40me/**", "/users/@me/x"),
            ("/*/keys:delete", "/p/keys%3adelete"),
            ("/a(b)!$&'+,=", "/a%28b%29%21%24%26%27%2B%2C%3D"),
            ("/a%2Ab", "/a*b"),
        ] {
            assert!(pattern(text).matches_possibly(&Readings::of(raw)), "{text} {raw}");
            // To allow, nothing is guessed at.
            assert!(!pattern(text).matches_surely(&path(raw)), "{text} {raw}");
        }
        assert!(!pattern("/a%2Ab").matches_possibly(&Readings::of("/axb")));
        assert!(pattern("/admin/").matches_possibly(&Readings::of("/admin")));
        assert!(pattern("/**/*/*").matches_possibly(&Readings::of("/a/")));
        assert!(!pattern("/admin").matches_possibly(&Readings::of("/administrator")));
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

    #[test]
    fn what_refuses_finds_a_path_in_whatever_way_it_is_written() {
        let keys = pattern("/repos/*/*/keys");
        for (path, expected) in [
            ("/repos/o/r/keys", true),
            ("/repos/o/r/keys/", true),
            ("/REPOS/o/r/Keys", true),
            ("//repos//o/r/keys", true),
            ("/repos/o/r/%6beys", true),
            ("/repos/o/r/%256beys", true),
            ("/repos/o/r%2Fkeys", true),
            ("/repos%2fo%2fr%2fkeys", true),
            ("/x/../repos/o/r/./keys", true),
            ("/x//../repos/o/r/keys", true),
            ("/x/%2e%2e/repos/o/r/keys", true),
            ("/x%2f..%2frepos/o/r/keys", true),
            ("/repos/o/r/keys;a=b", true),
            ("/repos\\o\\r\\keys", true),
            ("/repos/o/r/keys.json", true),
            ("/repos/o/r/keys%2EXML/", true),
            ("/repos/o/r/keys.", false),
            ("/repos/o/r/keys.jsonp", false),
            ("/repos.json/o/r/keys", false),
            ("/repos/o/a%2Fr/keys", true),
            ("/repos/o/r/keys/1", false),
            ("/repos/o/r", false),
            ("/repos/o/r/pulls", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(keys.matches_possibly(&Readings::of(path)), expected, "{path}");
        }
        for (text, path, expected) in [
            ("/admin/webhooks.json", "/admin/webhooks", true),
            ("/admin/webhooks.json", "/admin/webhooks.xml", true),
            ("/files/*.json", "/files/a.json", true),
            ("/files/*.json", "/files/a", false),
            ("/admin/**", "/admin/a/b", true),
            ("/admin/**", "/admin", true),
            ("/admin/**", "/administrators", false),
            ("/**/hooks", "/a/b/hooks.json", true),
        ] {
            assert_eq!(pattern(text).matches_possibly(&Readings::of(path)), expected, "{text} {path}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in "/([a-zA-Z0-9*%./~-]|%[0-9a-fA-F]{2}){0,12}(/[*]{1,2})?") {
            if let Ok(pattern) = text.parse::<PathPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<PathPattern>(), Ok(pattern));
            }
        }

        #[test]
        fn what_matches_surely_matches_possibly(
            text in "/([a*]{1,3}|\\*\\*)(/([a*]{1,3}|\\*\\*)){0,3}", raw in "/[aA%2F/b]{0,12}",
        ) {
            if let (Ok(pattern), Ok(path)) = (text.parse::<PathPattern>(), RequestPath::parse(&raw)) {
                prop_assert!(!pattern.matches_surely(&path) || pattern.matches_possibly(&Readings::of(path.as_str())));
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
        fn encoding_letters_hides_nothing(
            path in Just("/api/v4/user/keys"), encode in proptest::collection::vec(any::<bool>(), 20),
        ) {
            let written: String = path.bytes().zip(encode).map(|(b, encode)| {
                if encode { format!("%{b:02x}") } else { char::from(b).to_string() }
            }).collect();
            prop_assert!(pattern(path).matches_possibly(&Readings::of(&written)), "{}", written);
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,40}", path in "\\PC{0,60}") {
            if let Ok(pattern) = text.parse::<PathPattern>() {
                pattern.matches_possibly(&Readings::of(&path));
            }
        }
    }
}
