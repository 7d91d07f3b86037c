//! TOML into values, or into an error that says where, what, and what was probably meant. Shared by policies, harness
//! descriptors and the declarations of secrets, so that every file of a user is complained about in one voice.

use std::fmt;
use std::ops::Range;

use serde::de::{self, DeserializeOwned, Deserializer, SeqAccess, Visitor};

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

impl<'de> de::Deserialize<'de> for OneOrMany<u16> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = OneOrMany<u16>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 to 65535 or a list of such numbers")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                let number = u16::try_from(number)
                    .map_err(|_| E::custom("not a port: expected a number from 1 to 65535"))?;
                Ok(OneOrMany(vec![number]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(OneOrMany(list))
            }
        }
        deserializer.deserialize_any(Numbers)
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
        port: Option<OneOrMany<u16>>,
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
            ("\n  zzz = 1", "x.toml:2:3: unknown key `zzz`; known are: host, port, kind"),
            ("kind = \"api-kee\"", "x.toml:1:8: unknown value; did you mean `api-key`?"),
            ("port = 70000", "x.toml:1:8: `port`: not a port"),
            (
                "port = \"sk-secret-value\"",
                "x.toml:1:8: `port`: invalid type: string, expected a number from 1",
            ),
            ("host = 7", "x.toml:1:8: "),
            ("host = [\"a\"", "x.toml:1:"),
            ("host = \"a\"\nhost = \"b\"", "x.toml:2:1: `host`: duplicate key"),
        ] {
            let found = error(text);
            assert!(found.starts_with(said), "{text:?}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
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
