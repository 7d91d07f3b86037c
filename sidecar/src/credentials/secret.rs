//! A real credential. It does not print, and it is wiped when it is dropped.

use std::fmt;

use zeroize::Zeroizing;

/// The fewest characters of a value: a shorter one would be found by accident in harmless requests.
pub const MIN_LENGTH: usize = 16;

/// The most, so that a wrong file (a log, an image) is noticed.
pub const MAX_LENGTH: usize = 8192;

/// ASCII letters, digits and punctuation, [`MIN_LENGTH`] to [`MAX_LENGTH`] of them: what a header value can hold
/// (RFC 9110 section 5.5) and a shell variable too.
pub struct SecretValue(Zeroizing<String>);

/// Why some bytes are not a usable value. Says nothing of the value but its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the value has {0} characters; at least {MIN_LENGTH} are needed")]
    TooShort(usize),
    #[error("the value has more than {MAX_LENGTH} characters")]
    TooLong,
    #[error("the value has a control character or a line break in it")]
    Control,
    #[error("the value has white space in it")]
    Space,
    #[error("the value has characters other than ASCII")]
    NotAscii,
}

impl SecretValue {
    /// One line break at the end is taken off, as editors and `echo` leave it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ValueError> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.iter().any(u8::is_ascii_control) {
            return Err(ValueError::Control);
        }
        if bytes.contains(&b' ') {
            return Err(ValueError::Space);
        }
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
        let text = text.ok_or(ValueError::NotAscii)?;
        match text.len() {
            length if length < MIN_LENGTH => Err(ValueError::TooShort(length)),
            length if length > MAX_LENGTH => Err(ValueError::TooLong),
            _ => Ok(Self(Zeroizing::new(text.to_owned()))),
        }
    }

    /// Every use of this is a place where the real value could get out.
    pub(in crate::credentials) fn expose(&self) -> &str {
        &self.0
    }

    /// Equal in a time that depends on the lengths only.
    pub fn is(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(other).fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
        own.len() == other.len() && differences == 0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_line_break_is_taken_off_and_the_rest_is_checked() {
        let value = |bytes: &[u8]| SecretValue::from_bytes(bytes).map(|value| value.expose().to_owned());
        assert_eq!(value(b"0123456789abcdef\n").unwrap(), "0123456789abcdef");
        assert_eq!(value(b"0123456789abcdef\r\n").unwrap(), "0123456789abcdef");
        for (bytes, error) in [
            (b"".as_slice(), ValueError::TooShort(0)),
            (b"0123456789abcde\n", ValueError::TooShort(15)),
            (b"0123456789abcdef\n\n", ValueError::Control),
            (b"0123456789\x00abcdef", ValueError::Control),
            (b"0123456789 abcdef", ValueError::Space),
            (b"0123456789abcdef\xc3\xa4", ValueError::NotAscii),
            (b"0123456789abcdef\xff", ValueError::NotAscii),
            (&[b'a'; MAX_LENGTH + 1], ValueError::TooLong),
        ] {
            assert_eq!(value(bytes), Err(error));
        }
    }

    #[test]
    fn values_compare_whole() {
        let value = SecretValue::from_bytes(b"0123456789abcdef").unwrap();
        assert!(value.is(b"0123456789abcdef"));
        for other in [b"0123456789abcdeF".as_slice(), b"0123456789abcde", b"0123456789abcdef0", b""] {
            assert!(!value.is(other));
        }
    }

    proptest! {
        #[test]
        fn a_value_never_prints(text in "[!-~]{16,64}") {
            let value = SecretValue::from_bytes(text.as_bytes()).unwrap();
            let shown = format!("{value:?} {value:#?}");
            prop_assert!(!shown.contains(&text));
        }
    }
}
