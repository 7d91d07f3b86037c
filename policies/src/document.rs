//! TOML into values, or into an error that says where, what, and what was probably meant. Shared by policies, harness
//! descriptors and the declarations of secrets, so that every file of a user is complained about in one voice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{self, DeserializeOwned, Deserializer, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a file. Never quotes a value: in the wrong place it could be a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct DocumentError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
}

impl DocumentError {
    /// `offset` is in bytes from the start of `text`.
    pub fn at(file: &str, text: &str, offset: usize, message: impl Into<String>) -> Self {
        let (line, column) = position(text, offset);
        Self { file: file.to_owned(), line, column, message: message.into() }
    }
}

/// `file` is only for messages.
pub fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, DocumentError> {
    toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        DocumentError::at(file, text, span.start, explain(error.message(), text, &span))
    })
}

/// Digits alone: no sign, which Rust's own parsing takes.
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Line and column, both from 1, of a byte offset; the end of the text if it lies behind it.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    Lines::of(text).position(offset)
}

/// Line and column of a key, which `keys` lead to, or of `item`, if that is its value or one of its list. As much of the way as
/// there is; None if not even that.
pub fn place_of(text: &str, keys: &[&str], item: Option<&str>) -> Option<(usize, usize)> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut at) = (document.get_ref(), None);
    for key in keys {
        let Some((key, value)) = table.iter().find(|(name, _)| name.get_ref() == key) else { break };
        at = Some(key.span().start);
        match value.get_ref() {
            DeValue::Table(below) => table = below,
            DeValue::Array(items) => {
                let meant = items.iter().find(|value| item.is_some() && value.get_ref().as_str() == item);
                at = meant.map(|value| value.span().start).or(at);
                break;
            }
            other if item.is_some() && other.as_str() == item => {
                at = Some(value.span().start);
                break;
            }
            _ => break,
        }
    }
    Some(position(text, at?))
}

/// Where the lines of a text begin, for many positions in it.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    /// In bytes; the first is 0.
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub fn of(text: &'t str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after).collect() }
    }

    /// As [`position`].
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= end);
        let start = line.checked_sub(1).and_then(|at| self.starts.get(at)).copied().unwrap_or_default();
        (line, self.text.get(start..end).unwrap_or_default().chars().count() + 1)
    }
}

/// The candidate that a misspelt word was probably meant to be: one or two slips away, or with the same beginning.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(slips, candidate)| {
            *slips <= 1 + usize::from(word.len() > 4) || strsim::jaro_winkler(word, candidate) >= 0.8
        })
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// A list that may also be written as its only item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de> de::Deserialize<'de> for OneOrMany<String> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = OneOrMany<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(OneOrMany(list))
            }
        }
        deserializer.deserialize_any(Strings)
    }
}

/// The same with the place of each item, in bytes from the start of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Items<T> {
    at: usize,
    items: Vec<(usize, T)>,
}

impl<T> Items<T> {
    /// Where it begins.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.items.iter().map(|(at, item)| (*at, item))
    }

    pub fn into_values(self) -> Vec<T> {
        self.items.into_iter().map(|(_, item)| item).collect()
    }
}

/// One item of such a list.
trait Item: Sized {
    const EXPECTED: &'static str;

    fn of_text(_: &str) -> Option<Self> {
        None
    }

    fn of_number(_: i64) -> Result<Self, Option<&'static str>> {
        Err(None)
    }
}

impl Item for String {
    const EXPECTED: &'static str = "a string or a list of strings";

    fn of_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Item for u16 {
    const EXPECTED: &'static str = "a number from 1 to 65535 or a list of such numbers";

    fn of_number(number: i64) -> Result<Self, Option<&'static str>> {
        Self::try_from(number).map_err(|_| Some("not a port: expected a number from 1 to 65535"))
    }
}

/// One alone, whose place is that of the whole, or several.
enum Parts<T> {
    One(T),
    Many(Vec<Spanned<Part<T>>>),
}

struct Part<T>(T);

struct Reading<T> {
    whole: bool,
    item: PhantomData<T>,
}

impl<'de, T: Item> Visitor<'de> for Reading<T> {
    type Value = Parts<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        T::of_text(text).map(Parts::One).ok_or_else(|| E::invalid_type(de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        T::of_number(number).map(Parts::One).map_err(|problem| match problem {
            Some(problem) => E::custom(problem),
            None => E::invalid_type(de::Unexpected::Signed(number), &self),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if !self.whole {
            return Err(de::Error::invalid_type(de::Unexpected::Seq, &self));
        }
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Parts::Many(list))
    }
}

impl<'de, T: Item> de::Deserialize<'de> for Parts<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading { whole: true, item: PhantomData })
    }
}

impl<'de, T: Item> de::Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Reading { whole: false, item: PhantomData })? {
            Parts::One(item) => Ok(Self(item)),
            Parts::Many(_) => Err(de::Error::custom(T::EXPECTED)),
        }
    }
}

impl<'de, T: Item> de::Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Spanned::<Parts<T>>::deserialize(deserializer)?;
        let at = whole.span().start;
        let items = match whole.into_inner() {
            Parts::One(item) => vec![(at, item)],
            Parts::Many(items) => {
                items.into_iter().map(|item| (item.span().start, item.into_inner().0)).collect()
            }
        };
        Ok(Self { at, items })
    }
}

/// serde and toml name the unknown thing and what was expected; we add the suggestion and drop quoted values.
fn explain(message: &str, text: &str, span: &Range<usize>) -> String {
    for (what, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((unknown, expected)) = message.strip_prefix(what).and_then(|rest| rest.split_once('`'))
        else {
            continue;
        };
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let shown = if noun == "key" { format!(" `{unknown}`") } else { String::new() };
        return match (closest(unknown, known.iter().copied()), known.is_empty()) {
            (Some(meant), _) => format!("unknown {noun}{shown}; did you mean `{meant}`?"),
            (None, false) => format!("unknown {noun}{shown}; known are: {}", known.join(", ")),
            (None, true) => format!("unknown {noun}{shown}; none is expected here"),
        };
    }
    let first = message.lines().next().unwrap_or(message);
    // `invalid type: string "…", expected …`: the quoted part may be anything, so only its type is told.
    let told = match (first.find('"'), first.rfind('"')) {
        (Some(from), Some(to)) if to > from => {
            format!(
                "{}{}",
                first.get(..from).unwrap_or_default().trim_end(),
                first.get(to + 1..).unwrap_or_default()
            )
        }
        _ => first.to_owned(),
    };
    match key_before(text, span.start) {
        Some(key) if !told.contains('`') => format!("`{key}`: {told}"),
        _ => told,
    }
}

/// The key of the line that `offset` is in.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |newline| newline + 1);
    let (key, _) = text.get(start..)?.lines().next()?.split_once('=')?;
    let key = key.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        host: Option<OneOrMany<String>>,
        port: Option<Items<u16>>,
        names: Option<Items<String>>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        ApiKey,
    }

    fn error(text: &str) -> String {
        parse::<Sample>("x.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_error_says_where_and_what() {
        for (text, said) in [
            ("hots = \"a\"", "x.toml:1:1: unknown key `hots`; did you mean `host`?"),
            ("\n  zzz = 1", "x.toml:2:3: unknown key `zzz`; known are: host, port, names, kind"),
            ("kind = \"api-kee\"", "x.toml:1:8: unknown value; did you mean `api-key`?"),
            ("port = 70000", "x.toml:1:8: `port`: not a port"),
            (
                "port = \"sk-secret-value\"",
                "x.toml:1:8: `port`: invalid type: string, expected a number from 1",
            ),
            ("host = 7", "x.toml:1:8: "),
            ("names = 7", "x.toml:1:9: invalid type: integer `7`, expected a string or a list of strings"),
            ("port = [\n  80,\n  70000]", "x.toml:3:3: not a port: expected a number from 1"),
            ("names = [\n  \"a\", [\"b\"]]", "x.toml:2:8: invalid type: sequence, expected a string"),
            ("host = [\"a\"", "x.toml:1:"),
            ("host = \"a\"\nhost = \"b\"", "x.toml:2:1: `host`: duplicate key"),
        ] {
            let found = error(text);
            assert!(found.starts_with(said), "{text:?}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }

    #[test]
    fn each_item_of_a_list_has_its_place() {
        let places = |text: &str| {
            let sample: Sample = parse("x.toml", text).unwrap();
            let names = sample.names.unwrap();
            (names.at(), names.iter().map(|(at, name)| (at, name.clone())).collect::<Vec<_>>())
        };
        assert_eq!(places("names = \"a\""), (8, vec![(8, "a".to_owned())]));
        assert_eq!(
            places("names = [ # two\n \"a\",\n \"b\"]"),
            (8, vec![(17, "a".to_owned()), (23, "b".to_owned())])
        );
        assert!(places("names = []").1.is_empty());
    }

    #[test]
    fn a_key_and_an_item_are_found_again() {
        let text = "a = \"x\"\n[t]\n\"b.c\" = [\n \"y\",\n \"z\"]\n  d = 1\n";
        for (keys, item, place) in [
            (&["a"][..], None, Some((1, 1))),
            (&["a"], Some("x"), Some((1, 5))),
            (&["t", "b.c"], None, Some((3, 1))),
            (&["t", "b.c"], Some("z"), Some((5, 2))),
            (&["t", "b.c"], Some("none"), Some((3, 1))),
            (&["t", "d"], Some("1"), Some((6, 3))),
            (&["t", "none"], None, Some((2, 2))),
            (&["none"], None, None),
        ] {
            assert_eq!(place_of(text, keys, item), place, "{keys:?} {item:?}");
        }
        assert_eq!(place_of("a = ", &["a"], None), None);
    }

    #[test]
    fn the_closest_is_what_was_meant_or_nothing() {
        let known = ["key", "key2", "claude-code", "generic"];
        for (word, meant) in [
            ("kye", Some("key")),
            ("claude", Some("claude-code")),
            ("genreic", Some("generic")),
            ("zzzz", None),
            ("", None),
        ] {
            assert_eq!(closest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn a_number_is_digits_alone() {
        assert_eq!((number("0443"), number::<u64>("0")), (Some(443_u16), Some(0)));
        for text in ["", "+1", "-1", " 1", "1 ", "1_000", "0x1", "\u{661}", "65536"] {
            assert_eq!(number::<u16>(text), None, "{text}");
        }
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("ä = 1\nöö x", "ä = 1\nöö ".len()), (2, 4));
        assert_eq!(position("", 10), (1, 1));
        let lines = Lines::of("\na\n");
        let found: Vec<_> = (0..5).map(|at| lines.position(at)).collect();
        assert_eq!(found, [(1, 1), (2, 1), (2, 2), (3, 1), (3, 1)]);
        assert_eq!(position("ää", 3), (1, 2), "in the middle of a letter: before it");
    }
}
