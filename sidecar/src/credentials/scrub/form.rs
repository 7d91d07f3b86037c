//! One way to write one value.

use super::base64::Base64;
use super::escaped::Escaped;
use super::hex::Hex;

/// In which forms a value is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forms {
    /// As it is, or with any of its characters escaped: `%41` (RFC 3986), `\u0041`, `\"` (RFC 8259).
    Text,
    /// And in hex, and in Base64 at any alignment.
    All,
}

/// What a text that starts here is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    No,
    /// All of it fits, and it ends before the form does.
    Partial,
    /// The form has this many bytes.
    Match(usize),
}

/// Does not print: it holds the value.
pub(super) enum Form {
    Escaped(Escaped),
    Hex(Hex),
    Base64(Base64),
}

impl Form {
    pub(super) fn all(value: &str, other: &str, forms: Forms) -> Vec<Self> {
        let mut all = vec![Self::Escaped(Escaped::new(value, other))];
        if forms == Forms::All {
            all.push(Self::Hex(Hex::new(value, other)));
            all.extend((0..3).map(|shift| Self::Base64(Base64::new(value, other, shift))));
        }
        all
    }

    pub(super) fn probe(&self, text: &[u8]) -> Probe {
        match self {
            Self::Escaped(form) => form.probe(text),
            Self::Hex(form) => form.probe(text),
            Self::Base64(form) => form.probe(text),
        }
    }

    /// Writes the counterpart as `matched` is written: in the same encoding, letter case and alphabet.
    pub(super) fn rewrite(&self, matched: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Escaped(form) => form.rewrite(matched, out),
            Self::Hex(form) => form.rewrite(matched, out),
            Self::Base64(form) => form.rewrite(matched, out),
        }
    }

    /// The most bytes that it can have.
    pub(super) fn longest(&self) -> usize {
        match self {
            Self::Escaped(form) => form.longest(),
            Self::Hex(form) => form.longest(),
            Self::Base64(form) => form.longest(),
        }
    }
}

/// A hex digit's value.
pub(super) fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Two hex digits.
pub(super) fn hex_of(byte: u8, upper: bool) -> [u8; 2] {
    let digits: &[u8; 16] = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [byte >> 4, byte & 15].map(|nibble| digits.get(usize::from(nibble)).copied().unwrap_or_default())
}
