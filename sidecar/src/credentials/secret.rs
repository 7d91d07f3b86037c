//! A real credential. It does not print, and it is wiped when it is dropped.

use std::fmt;

use zeroize::Zeroizing;

/// The fewest characters of a value: a shorter one would be found by accident in harmless requests.
pub const MIN_LENGTH: usize = 16;

/// The most, so that a wrong file (a log, an image) is noticed.
pub const MAX_LENGTH: usize = 8192;

/// The most bytes that are read of a source: enough to tell that it holds too much.
pub(in crate::credentials) const READ_LIMIT: usize = MAX_LENGTH + 64;

/// Schemes that people copy along with a token (RFC 6750; `token` is GitHub's).
const SCHEMES: [&str; 2] = ["Bearer", "token"];

/// ASCII letters, digits and punctuation, [`MIN_LENGTH`] to [`MAX_LENGTH`] of them: what a header value can hold
/// (RFC 9110 section 5.5) and a shell variable too.
pub struct SecretValue(Zeroizing<String>);

/// Why some bytes are not a usable value. Says nothing of the value but its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("it is empty")]
    Empty,
    #[error("the value has a NUL in it; is the file UTF-16 or binary?")]
    Nul,
    #[error("the value has several lines; only the one with the credential must be there")]
    Lines,
    #[error("the value has {0} characters; at least {MIN_LENGTH} are needed")]
    TooShort(usize),
    #[error("the value has more than {MAX_LENGTH} characters")]
    TooLong,
    #[error("the value has a control character in it")]
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
        for (found, error) in [
            (bytes.is_empty(), ValueError::Empty),
            (bytes.contains(&0), ValueError::Nul),
            (bytes.iter().any(|b| matches!(b, b'\n' | b'\r')), ValueError::Lines),
        ] {
            if found {
                return Err(error);
            }
        }
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

    /// The same, without a scheme that was copied along with it; a second answer says which one was left out.
    pub fn from_pasted(bytes: &[u8]) -> Result<(Self, Option<&'static str>), ValueError> {
        let found = SCHEMES.into_iter().find_map(|scheme| Some((scheme, after_scheme(bytes, scheme)?)));
        match found {
            Some((scheme, rest)) => Ok((Self::from_bytes(rest)?, Some(scheme))),
            None => Ok((Self::from_bytes(bytes)?, None)),
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

fn after_scheme<'b>(bytes: &'b [u8], scheme: &str) -> Option<&'b [u8]> {
    let (found, rest) = bytes.split_at_checked(scheme.len())?;
    let value = rest.trim_ascii_start();
    (found.eq_ignore_ascii_case(scheme.as_bytes()) && rest.starts_with(b" ")).then_some(value)
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
            (b"".as_slice(), ValueError::Empty),
            (b"\r\n", ValueError::Empty),
            (b"0123456789abcde\n", ValueError::TooShort(15)),
            (b"0123456789abcdef\n\n", ValueError::Lines),
            (b"01234567\n89abcdef", ValueError::Lines),
            (b"0123456789\x00abcdef", ValueError::Nul),
            (b"0123456789\x1babcdef", ValueError::Control),
            (b"0123456789 abcdef", ValueError::Space),
            (b"0123456789abcdef\xc3\xa4", ValueError::NotAscii),
            (b"0123456789abcdef\xff", ValueError::NotAscii),
            (&[b'a'; MAX_LENGTH + 1], ValueError::TooLong),
        ] {
            assert_eq!(value(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn a_scheme_that_was_copied_along_is_left_out_and_told() {
        let value = |bytes: &[u8]| {
            SecretValue::from_pasted(bytes).map(|(value, scheme)| (value.expose().to_owned(), scheme))
        };
        let plain = "0123456789abcdef".to_owned();
        assert_eq!(value(b"0123456789abcdef\n").unwrap(), (plain.clone(), None));
        assert_eq!(value(b"Bearer 0123456789abcdef\n").unwrap(), (plain.clone(), Some("Bearer")));
        assert_eq!(value(b"TOKEN  0123456789abcdef").unwrap(), (plain, Some("token")));
        assert_eq!(value(b"token0123456789abcdef").unwrap(), ("token0123456789abcdef".to_owned(), None));
        assert_eq!(value(b"Bearer ").unwrap_err(), ValueError::Empty);
        assert_eq!(value(b"Bearer token 0123456789abcdef").unwrap_err(), ValueError::Space);
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
