//! A value as it is, or with some or all of its characters percent-encoded (RFC 3986 section 2.1) or escaped as in a JSON
//! string (RFC 8259 section 7), in either letter case.

use zeroize::Zeroizing;

use super::form::{Probe, hex_of, nibble};

pub(super) struct Escaped {
    value: Zeroizing<Vec<u8>>,
    other: Zeroizing<Vec<u8>>,
}

/// How one character is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Plain,
    /// `%41`
    Percent,
    /// `\u0041`
    Unicode,
    /// `\"`, `\\`, `\/`
    Short,
}

impl Unit {
    fn length(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Short => 2,
            Self::Percent => 3,
            Self::Unicode => 6,
        }
    }
}

impl Escaped {
    pub(super) fn new(value: &str, other: &str) -> Self {
        let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
        Self { value: bytes(value), other: bytes(other) }
    }

    pub(super) fn probe(&self, text: &[u8]) -> Probe {
        let mut at = 0;
        for wanted in self.value.iter() {
            match unit(*wanted, text.get(at..).unwrap_or_default()) {
                Ok(unit) => at += unit.length(),
                Err(Probe::Partial) => return Probe::Partial,
                Err(_) => return Probe::No,
            }
        }
        Probe::Match(at)
    }

    pub(super) fn rewrite(&self, matched: &[u8], out: &mut Vec<u8>) {
        let mut units = Vec::with_capacity(self.value.len());
        let mut at = 0;
        let (mut upper, mut lower) = (false, false);
        for wanted in self.value.iter() {
            let rest = matched.get(at..).unwrap_or_default();
            let unit = unit(*wanted, rest).unwrap_or(Unit::Plain);
            let digits = match unit {
                Unit::Percent => rest.get(1..3),
                Unit::Unicode => rest.get(2..6),
                Unit::Plain | Unit::Short => None,
            };
            upper |= digits.is_some_and(|digits| digits.iter().any(u8::is_ascii_uppercase));
            lower |= digits.is_some_and(|digits| digits.iter().any(u8::is_ascii_lowercase));
            at += unit.length();
            units.push(unit);
        }
        let percent = units.contains(&Unit::Percent);
        let json = units.iter().any(|unit| matches!(unit, Unit::Unicode | Unit::Short));
        for (unit, byte) in units.into_iter().zip(self.other.iter()) {
            match unit {
                Unit::Percent => {
                    out.push(b'%');
                    out.extend(hex_of(*byte, upper || !lower));
                }
                Unit::Unicode => {
                    out.extend(b"\\u00");
                    out.extend(hex_of(*byte, upper));
                }
                // What was not escaped may have to be in its place: the text must stay what it is.
                Unit::Plain | Unit::Short if json && matches!(byte, b'"' | b'\\') => {
                    out.extend([b'\\', *byte]);
                }
                Unit::Plain if percent && !is_unreserved(*byte) => {
                    out.push(b'%');
                    out.extend(hex_of(*byte, upper || !lower));
                }
                Unit::Short if *byte == b'/' => out.extend(b"\\/"),
                Unit::Plain | Unit::Short => out.push(*byte),
            }
        }
    }

    /// All of it as `\u0041`.
    pub(super) fn longest(&self) -> usize {
        self.value.len() * Unit::Unicode.length()
    }
}

/// RFC 3986 section 2.3. No encoding has a shorter or longer way to write one of these than another.
pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// How `wanted` is written at the start of `text`.
fn unit(wanted: u8, text: &[u8]) -> Result<Unit, Probe> {
    let escaped = match text {
        [] => return Err(Probe::Partial),
        [b'%', digits @ ..] => hex(wanted, digits).map(|()| Unit::Percent),
        [b'\\'] => return Err(Probe::Partial),
        [b'\\', b'u', digits @ ..] => unicode(wanted, digits).map(|()| Unit::Unicode),
        [b'\\', b'"' | b'\\' | b'/', ..] if text.get(1) == Some(&wanted) => Ok(Unit::Short),
        _ => Err(Probe::No),
    };
    match escaped {
        Err(Probe::No) if text.first() == Some(&wanted) => Ok(Unit::Plain),
        escaped => escaped,
    }
}

fn unicode(wanted: u8, digits: &[u8]) -> Result<(), Probe> {
    match digits {
        [] | [b'0'] => Err(Probe::Partial),
        [b'0', b'0', digits @ ..] => hex(wanted, digits),
        _ => Err(Probe::No),
    }
}

fn hex(wanted: u8, digits: &[u8]) -> Result<(), Probe> {
    let fits = |digit: &u8, wanted| nibble(*digit) == Some(wanted);
    match digits {
        [high, low, ..] if fits(high, wanted >> 4) && fits(low, wanted & 15) => Ok(()),
        [high] if fits(high, wanted >> 4) => Err(Probe::Partial),
        [] => Err(Probe::Partial),
        _ => Err(Probe::No),
    }
}
