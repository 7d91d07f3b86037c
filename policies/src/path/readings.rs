//! Every way in which a server may read a path.

/// The segments of a path, in every way that a server may read it: percent-encoding undone before or after it is divided,
/// also more than once; `.` and `..` followed or not; empty segments left out or not; without parameters. In lower case:
/// some servers ignore letter case. None: it has more segments than are looked at, so it may be any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readings(Option<Vec<Vec<Segment>>>);

use super::MOST_SEGMENTS;

pub(super) type Segment = Vec<u8>;

/// How often percent-encoding is undone.
const DECODINGS: usize = 3;

impl Readings {
    /// `path` is without its query, and may be any text.
    pub fn of(path: &str) -> Self {
        Self(readings(path))
    }

    /// None: it may be any path.
    pub(super) fn all(&self) -> Option<impl Iterator<Item = &[Segment]>> {
        self.0.as_ref().map(|readings| readings.iter().map(Vec::as_slice))
    }
}

fn readings(path: &str) -> Option<Vec<Vec<Segment>>> {
    let mut text = path.as_bytes().to_ascii_lowercase();
    let most = |text: &[u8]| text.iter().filter(|byte| is_slash(byte)).count() <= MOST_SEGMENTS;
    if !most(&text) {
        return None;
    }
    if is_plain(&text) {
        return Some(vec![segments(&text)]);
    }
    let mut readings = Vec::new();
    for _ in 0..=DECODINGS {
        let divided = segments(&text);
        let within = divided.iter().map(|segment| decoded(segment)).collect();
        for divided in [divided, within] {
            // In either order: a server may merge slashes before it follows dots, or after it.
            for reading in [without_empty(&divided), divided] {
                for reading in [without_dots(&reading), reading] {
                    for reading in [without_empty(&reading), reading] {
                        if !readings.contains(&reading) {
                            readings.push(reading);
                        }
                    }
                }
            }
        }
        let next = decoded(&text);
        if next == text {
            break;
        }
        if !most(&next) {
            return None;
        }
        text = next;
    }
    Some(readings)
}

fn is_slash(byte: &u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

/// Whether there is one reading only: what nearly all requests have.
fn is_plain(path: &[u8]) -> bool {
    let mut pairs = path.windows(2);
    path.first() == Some(&b'/')
        && path.last() != Some(&b'/')
        && !path.iter().any(|b| matches!(b, b'%' | b'\\' | b';'))
        && !pairs.any(|pair| pair == b"//" || pair == b"/.")
}

/// In lower case, with every `%` that two digits follow undone once.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|_| first == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        // `from_str_radix` takes a sign, too.
        let byte = byte.filter(|_| digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
        bytes.push(byte.unwrap_or(first).to_ascii_lowercase());
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes
}

/// Of what follows the first slash, without parameters.
fn segments(path: &[u8]) -> Vec<Segment> {
    let path = path.split_first().filter(|(first, _)| is_slash(first)).map_or(path, |(_, rest)| rest);
    let bare = path.split(is_slash).map(|segment| segment.split(|b| *b == b';').next().unwrap_or_default());
    bare.map(<[u8]>::to_vec).collect()
}

fn without_empty(segments: &[Segment]) -> Vec<Segment> {
    segments.iter().filter(|segment| !segment.is_empty()).cloned().collect()
}

fn without_dots(segments: &[Segment]) -> Vec<Segment> {
    let mut path: Vec<Segment> = Vec::new();
    for segment in segments {
        match segment.as_slice() {
            b"." => {}
            b".." => drop(path.pop()),
            _ => path.push(segment.clone()),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &str) -> Vec<String> {
        let text = |reading: &[Segment]| String::from_utf8_lossy(&reading.join(&b'/')).into_owned();
        Readings::of(path).all().unwrap().map(text).collect()
    }

    #[test]
    fn a_plain_path_has_one_reading_and_others_have_all() {
        assert_eq!(all("/Repos/o/keys.json"), ["repos/o/keys.json"]);
        for (path, reading) in [
            ("/a//../b", "b"),
            ("/a//../b", "a/b"),
            ("/a//../b", "a/../b"),
            ("/a/", "a/"),
            ("/a%2fb", "a/b"),
            ("/a%252fb", "a%2fb"),
            ("/a%25252fb", "a/b"),
            ("/a;x/b", "a/b"),
            ("/a\\b", "a/b"),
            ("a/b", "a/b"),
        ] {
            assert!(all(path).iter().any(|known| known == reading), "{path}: {:?}", all(path));
        }
    }

    #[test]
    fn what_has_too_many_segments_may_be_any_path() {
        for path in [
            "/a".repeat(MOST_SEGMENTS + 1),
            "\\;".repeat(MOST_SEGMENTS + 1),
            format!("/{}", "%2f".repeat(MOST_SEGMENTS)),
            format!("/{}", "%25252f".repeat(MOST_SEGMENTS)),
        ] {
            assert!(Readings::of(&path).all().is_none());
            assert!("/b".parse::<crate::PathPattern>().unwrap().matches_possibly(&Readings::of(&path)));
        }
        assert!(Readings::of(&"/a".repeat(MOST_SEGMENTS)).all().is_some());
    }

    #[test]
    fn only_two_digits_are_an_escape() {
        for (text, expected) in [("%41", "a"), ("%4", "%4"), ("%+1", "%+1"), ("%%41", "%a"), ("%zz%", "%zz%")]
        {
            assert_eq!(decoded(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }
}
