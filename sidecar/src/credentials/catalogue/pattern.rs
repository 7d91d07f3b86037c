//! What a credential looks like: fixed text, and parts of an alphabet and a length.

use std::fmt;
use std::str::FromStr;

use understudy_policies::document;

use super::alphabet::Alphabet;
use super::checksum::Checksum;

/// `ghp_{base62:30}{crc32-base62}`. Outside braces: the text itself. `{ALPHABET:LENGTH}` or `{ALPHABET:FROM-TO}`: so many
/// letters of an [`Alphabet`]; with `=` after the brace they are no secret, and a stand-in has the same.
/// `{CHECKSUM}`: the [`Checksum`] of the part before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Fixed(String),
    Run { alphabet: Alphabet, from: usize, to: usize, kept: bool },
    Checksum(Checksum),
}

/// A part of one credential, in the order in which they stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'v> {
    /// A stand-in has the same.
    Same(&'v str),
    /// A stand-in has other letters of the alphabet.
    Drawn(Alphabet, &'v str),
    /// A stand-in has that of its own part before it.
    Checksum(Checksum),
}

/// The most characters of one part.
const LONGEST: usize = 4096;

/// The fewest that a stand-in must not share with the real value; with fewer the value could be guessed.
pub const MIN_DRAWN: usize = 12;

impl Pattern {
    /// How credentials of this kind start; empty if they have nothing in common.
    pub fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Fixed(text)) => text,
            _ => "",
        }
    }

    /// The parts of `value`; None if it is of another shape.
    pub fn split<'v>(&self, value: &'v str) -> Option<Vec<Piece<'v>>> {
        let mut pieces = Vec::new();
        let length = pieces_of(&self.parts, value, "", &|rest| rest.is_empty(), &mut pieces)?;
        (length == value.len()).then(|| pieces.into_iter().rev().collect())
    }

    pub fn fits(&self, value: &str) -> bool {
        self.split(value).is_some()
    }

    fn longest(&self) -> usize {
        let of = |part: &Part| match part {
            Part::Fixed(fixed) => fixed.len(),
            Part::Run { to, .. } => *to,
            Part::Checksum(checksum) => checksum.length(),
        };
        self.parts.iter().map(of).sum()
    }

    /// Whether `text` starts with such a credential that ends where its word ends.
    pub fn starts(&self, text: &[u8]) -> bool {
        // What is not graphic ASCII is in no pattern, and ends a word. What follows the longest such credential by more
        // than a character is not looked at: in a long text, many may start.
        let graphic = text.iter().take(self.longest() + 1).take_while(|byte| byte.is_ascii_graphic());
        let Some(text) = text.get(..graphic.count()).and_then(|text| std::str::from_utf8(text).ok()) else {
            return false;
        };
        let ends = |rest: &str| !rest.bytes().next().is_some_and(is_word);
        pieces_of(&self.parts, text, "", &ends, &mut Vec::new()).is_some()
    }
}

/// What a word of a credential is made of; another character before or behind it ends it.
pub fn is_word(letter: u8) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_')
}

/// The length of what `parts` match at the start of `text`, with its pieces in reverse order. `before` is the part
/// before. The longest reading of each part comes first; no part is longer than [`LONGEST`].
fn pieces_of<'v>(
    parts: &[Part],
    text: &'v str,
    before: &'v str,
    ends: &dyn Fn(&str) -> bool,
    pieces: &mut Vec<Piece<'v>>,
) -> Option<usize> {
    let Some((part, parts)) = parts.split_first() else { return ends(text).then_some(0) };
    let (lengths, checksum) = match part {
        Part::Fixed(fixed) => {
            let rest = text.strip_prefix(fixed.as_str())?;
            let (fixed, _) = text.split_at(fixed.len());
            let length = pieces_of(parts, rest, fixed, ends, pieces)?;
            pieces.push(Piece::Same(fixed));
            return Some(fixed.len() + length);
        }
        Part::Checksum(checksum) => (checksum.length()..=checksum.length(), Some(*checksum)),
        Part::Run { alphabet, from, to, .. } => {
            let run = text.bytes().take(*to).take_while(|letter| alphabet.holds(*letter)).count();
            (*from..=run, None)
        }
    };
    for length in lengths.rev() {
        let Some((run, rest)) = text.split_at_checked(length) else { continue };
        if checksum.is_some_and(|checksum| checksum.of(before.as_bytes()) != run) {
            continue;
        }
        if let Some(behind) = pieces_of(parts, rest, run, ends, pieces) {
            pieces.push(match part {
                Part::Run { alphabet, kept: false, .. } => Piece::Drawn(*alphabet, run),
                Part::Checksum(checksum) => Piece::Checksum(*checksum),
                _ => Piece::Same(run),
            });
            return Some(length + behind);
        }
    }
    None
}

// Nothing is quoted: people paste credentials into the wrong line.
impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.bytes().all(|letter| letter.is_ascii_graphic()) {
            return Err("a pattern is ASCII without white space".to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (fixed, open) = rest.split_once('{').unwrap_or((rest, ""));
            if fixed.contains('}') {
                return Err("a `}` without a `{` before it".to_owned());
            }
            if !fixed.is_empty() {
                parts.push(Part::Fixed(fixed.to_owned()));
            }
            if fixed.len() == rest.len() {
                break;
            }
            let (inside, behind) = open.split_once('}').ok_or("a `{` without a `}` behind it")?;
            parts.push(part(inside)?);
            rest = behind;
        }
        let drawn = |part: &Part| match part {
            Part::Run { from, kept: false, .. } => *from,
            _ => 0,
        };
        if parts.iter().map(drawn).sum::<usize>() < MIN_DRAWN {
            return Err(format!(
                "fewer than {MIN_DRAWN} characters are secret; as `acme_{{base62:32}}`, and never a value"
            ));
        }
        let checksum_of_nothing = parts
            .windows(2)
            .any(|pair| matches!(pair, [before, Part::Checksum(_)] if !matches!(before, Part::Run { .. })));
        if checksum_of_nothing || matches!(parts.first(), Some(Part::Checksum(_))) {
            return Err("a checksum stands right behind the part that it is of".to_owned());
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

fn part(inside: &str) -> Result<Part, String> {
    if let Ok(checksum) = inside.parse() {
        return Ok(Part::Checksum(checksum));
    }
    let (kept, inside) = inside.strip_prefix('=').map_or((false, inside), |inside| (true, inside));
    let (alphabet, length) = inside
        .split_once(':')
        .ok_or("a part is written as `{base62:32}`, `{base62:20-40}`, `{=base62:8}` or `{crc32-base62}`")?;
    let alphabet = alphabet.parse()?;
    let (from, to) = length.split_once('-').unwrap_or((length, length));
    let number = |text: &str| document::number(text).ok_or("a length is a number, or two as `20-40`");
    let (from, to) = (number(from)?, number(to)?);
    if from == 0 || from > to || to > LONGEST {
        return Err(format!("a length is from 1 to {LONGEST}, the smaller number first"));
    }
    Ok(Part::Run { alphabet, from, to, kept })
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_value_is_taken_apart() {
        let github = pattern("ghp_{base62:30}{crc32-base62}");
        let token = "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";
        let drawn = "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ";
        assert_eq!(
            github.split(token).unwrap(),
            [
                Piece::Same("ghp_"),
                Piece::Drawn(Alphabet::Base62, drawn),
                Piece::Checksum(Checksum::Crc32Base62)
            ]
        );
        assert_eq!((github.prefix(), github.to_string().as_str()), ("ghp_", "ghp_{base62:30}{crc32-base62}"));
        for other in [token.replace("17", "18"), token.to_lowercase(), format!("{token}x"), String::new()] {
            assert!(!github.fits(&other), "{other}");
        }
    }

    #[test]
    fn parts_of_any_length_are_told_apart_by_what_stands_between_them() {
        let slack = pattern("xoxb-{=digits:10-13}-{digits:10-13}-{base62:24}");
        let value = "xoxb-123456789012-1234567890123-abcdefghijklmnopqrstuvwX";
        let pieces = slack.split(value).unwrap();
        assert_eq!(pieces[1], Piece::Same("123456789012"));
        assert_eq!(pieces[3], Piece::Drawn(Alphabet::Digits, "1234567890123"));
        // The first part must give back what the marker needs.
        let marked = pattern("sk-{base62:4-40}T3Bl{base62:20-40}");
        assert!(marked.fits("sk-abcdT3BlabcdefghijT3Bluvwxyz") && !marked.fits("sk-abcdabcdefghijuvwxyz"));
    }

    #[test]
    fn at_the_start_of_a_text_a_word_must_end_too() {
        let github = pattern("ghp_{base62:30}{crc32-base62}");
        let token = "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";
        for (behind, expected) in [
            ("", true),
            ("&x=1", true),
            ("\u{e9}", true),
            (", b", true),
            ("/x", true),
            ("_", false),
            ("x", false),
        ] {
            assert_eq!(github.starts(format!("{token}{behind}").as_bytes()), expected, "{behind}");
        }
    }

    #[test]
    fn mistakes_are_told_and_not_repeated() {
        for (text, said) in [
            ("acme_0123456789abcdef", "fewer than 12 characters are secret"),
            ("acme_{base62:4}", "fewer than 12"),
            ("acme_{=base62:40}", "fewer than 12"),
            ("", "fewer than 12"),
            ("a b", "without white space"),
            ("{base62", "a `{` without"),
            ("base62:30}", "a `}` without"),
            ("{base61:30}", "no such alphabet; did you mean `base62`?"),
            ("{base62}", "a part is written as"),
            ("{base62:x}", "a length is a number"),
            ("{base62:30-20}", "the smaller number first"),
            ("{base62:0-20}", "from 1"),
            ("{base62:99999}", "from 1 to 4096"),
            ("{crc32-base62}{base62:30}", "right behind the part"),
            ("{base62:30}-{crc32-base62}", "right behind the part"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains(said) && !error.contains("0123456789"), "{text}: {error}");
        }
    }

    #[test]
    fn no_more_is_looked_at_than_the_longest_credential_needs() {
        let acme = pattern("acme_{base62:12-16}");
        let longest = "acme_0123456789abcdef";
        for (behind, expected) in [("", true), (".", true), ("\n", true), ("x", false), ("-", false)] {
            assert_eq!(acme.starts(format!("{longest}{behind}").as_bytes()), expected, "{behind:?}");
        }
        // Quadratic, it would take minutes.
        let many = "acme_.".repeat(1 << 18);
        let mut at = (0..many.len()).step_by(6);
        assert!(!at.any(|at| acme.starts(&many.as_bytes()[at..])));
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_whole_value(value in "sk-[a-z0-9]{12,30}-[A-Z0-9]{1,8}") {
            let pattern = pattern("sk-{base36:12-30}-{=base64url:1-8}");
            let pieces = pattern.split(&value).unwrap();
            let joined: String = pieces.iter().map(|piece| match piece {
                Piece::Same(text) | Piece::Drawn(_, text) => *text,
                Piece::Checksum(_) => "",
            }).collect();
            prop_assert_eq!(joined, value);
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,60}", value in "\\PC{0,60}") {
            let known = pattern("ghp_{base62:2-30}{crc32-base62}{base64:10}");
            known.split(&value);
            known.starts(value.as_bytes());
            if let Ok(pattern) = text.parse::<Pattern>() {
                pattern.split(&value);
            }
        }
    }
}
