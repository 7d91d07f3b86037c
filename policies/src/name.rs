//! One canonical form for host names, made in one place: policy, DNS, SNI and Host all compare equal or not at all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A fully qualified DNS host name: lower-case ASCII (IDNA A-labels), no trailing dot, at least one label, labels of
/// 1 to 63 letters, digits, `-` and `_`, 253 characters at most (RFC 1035 section 2.3.4, RFC 5891). Never an
/// address literal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("empty host name")]
    Empty,
    #[error("host name of more than 253 characters")]
    TooLong,
    #[error("host name with an empty label or one of more than 63 characters")]
    Label,
    #[error("host name with a character that no host name has")]
    Character,
    #[error("address literal where a host name is expected")]
    Address,
}

impl HostName {
    /// From ASCII as it stands on the wire (DNS, SNI, Host): case folded, one trailing dot taken off. Anything else
    /// that differs from a canonical name is an error: no IDNA mapping, no percent-decoding.
    pub fn from_wire(name: &[u8]) -> Result<Self, NameError> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > 253 {
            return Err(NameError::TooLong);
        }
        let mut canonical = String::with_capacity(name.len());
        for &byte in name {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => canonical.push(char::from(byte)),
                b'A'..=b'Z' => canonical.push(char::from(byte.to_ascii_lowercase())),
                b':' | b'[' | b']' => return Err(NameError::Address),
                _ => return Err(NameError::Character),
            }
        }
        if canonical.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(NameError::Label);
        }
        if is_numeric_host(&canonical) {
            return Err(NameError::Address);
        }
        Ok(Self(canonical))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is one or more labels below `parent`; no name is below itself.
    pub fn is_below(&self, parent: &HostName) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

/// From what a person wrote in a policy: as on the wire, but names with other letters are mapped by IDNA (UTS #46).
impl FromStr for HostName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_ascii() {
            return Self::from_wire(text.as_bytes());
        }
        let ascii = idna::domain_to_ascii(text).map_err(|_| NameError::Character)?;
        Self::from_wire(ascii.as_bytes())
    }
}

/// A last label that is a number makes the whole an IPv4 address in the eyes of many parsers (WHATWG URL, section
/// 3.5: "ends in a number"): `1.2.3.4`, `0x7f.1`, `2130706433`.
fn is_numeric_host(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl TryFrom<String> for HostName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> String {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_and_one_trailing_dot_do_not_matter() {
        let name = HostName::from_wire(b"api.example.com").unwrap();
        assert_eq!(HostName::from_wire(b"API.Example.COM.").unwrap(), name);
        assert!(HostName::from_wire(b"api.example.com..").is_err());
    }

    #[test]
    fn what_is_not_a_host_name_is_an_error() {
        for (bad, error) in [
            (b"".as_slice(), NameError::Empty),
            (b".", NameError::Empty),
            (b"a..b", NameError::Label),
            (b".a", NameError::Label),
            (b"good.com\0.evil.com", NameError::Character),
            (b"user@host.com", NameError::Character),
            (b"host.com%2eevil.com", NameError::Character),
            (b"host.com/path", NameError::Character),
            (b"b\xc3\xbccher.example", NameError::Character),
            (b"host.com:443", NameError::Address),
            (b"[::1]", NameError::Address),
            (b"127.0.0.1", NameError::Address),
            (b"0x7f.1", NameError::Address),
            (b"2130706433", NameError::Address),
            (b"127.0.0.0x1", NameError::Address),
            (&[b'a'; 64], NameError::Label),
            (&[b'a'; 254], NameError::TooLong),
        ] {
            assert_eq!(HostName::from_wire(bad), Err(error), "{:?}", String::from_utf8_lossy(bad));
        }
    }

    /// Kelvin sign, dotted capital I, full-width and ideographic dots, and what else looks like a name and is another. What a
    /// person writes is mapped as browsers do (UTS #46); on the wire none of it is a name.
    #[test]
    fn look_alikes_are_refused_or_become_what_browsers_make_of_them() {
        for (written, name) in [
            ("\u{212a}elvin.example", Some("kelvin.example")),
            ("\u{130}stanbul.example", Some("xn--istanbul-o0e.example")),
            ("api\u{ff0e}example\u{ff0e}com", Some("api.example.com")),
            ("api\u{3002}example\u{ff61}com", Some("api.example.com")),
            ("\u{ff41}pi.example", Some("api.example")),
            ("a\u{ad}pi.example", Some("api.example")),
            ("a\u{200b}pi.example", Some("api.example")),
            ("\u{430}pi.example", Some("xn--pi-6kc.example")),
            ("api.example\u{ff0f}x", None),
            ("api.example\u{ff20}evil", None),
            ("api.example\u{ff1a}443", None),
            ("\u{2488}example", None),
            ("a\u{202e}b.example", None),
            ("\u{ff11}.\u{ff12}.\u{ff13}.\u{ff14}", None),
            ("169\u{3002}254.169.254", None),
        ] {
            let found = written.parse::<HostName>();
            assert_eq!(found.as_ref().ok().map(HostName::as_str), name, "{written:?}: {found:?}");
            let wire = HostName::from_wire(written.as_bytes());
            assert!(matches!(wire, Err(NameError::Character | NameError::Address)), "{written:?}: {wire:?}");
        }
    }

    #[test]
    fn what_could_break_out_of_a_line_or_a_text_is_no_name() {
        for odd in [
            '\n', '\r', '\t', '\0', ' ', '"', '\'', '\\', '%', '#', '?', '/', '@', '*', '<', '`', '$', ';',
            ',', '\u{7f}',
        ] {
            for text in [format!("a{odd}b.example"), format!("{odd}a.example"), format!("a.example{odd}")] {
                assert!(text.parse::<HostName>().is_err(), "{text:?}");
                assert!(HostName::from_wire(text.as_bytes()).is_err(), "{text:?}");
            }
        }
        let long = "a".repeat(300);
        for text in [format!("{long}.example"), format!("b.{long}"), format!("\u{fc}{long}.example")] {
            let found = text.parse::<HostName>();
            assert!(found.is_err(), "{found:?}");
        }
    }

    #[test]
    fn addresses_in_every_notation_are_no_names() {
        for address in [
            "1.2.3.4",
            "1.2.3.4.",
            "1.2.3.4..",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "0X7F000001",
            "017700000001",
            "2130706433",
            "127.1",
            "127.0.0.0x1",
            "1.2.3.08",
            "a.b.1",
            "::1",
            "[::1]",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "[::ffff:169.254.169.254]",
            "::ffff:169.254.169.254",
            "[::ffff:a9fe:a9fe]",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(address.parse::<HostName>().is_err(), "{address}");
            assert!(HostName::from_wire(address.as_bytes()).is_err(), "{address}");
        }
    }

    #[test]
    fn people_may_write_other_letters() {
        assert_eq!("Bücher.example".parse::<HostName>().unwrap().as_str(), "xn--bcher-kva.example");
        assert!("１２７.0.0.1".parse::<HostName>().is_err());
        assert!("exa\u{3002}mple.com".parse::<HostName>().is_ok_and(|n| n.as_str() == "exa.mple.com"));
    }

    #[test]
    fn below_means_whole_labels() {
        let parent: HostName = "trusted.net".parse().unwrap();
        let below = |name: &str| name.parse::<HostName>().unwrap().is_below(&parent);
        assert!(below("a.trusted.net") && below("b.a.trusted.net"));
        assert!(!below("trusted.net") && !below("nottrusted.net") && !below("trusted.net.evil.com"));
    }

    proptest! {
        #[test]
        fn canonical_names_stay_as_they_are(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(name) = HostName::from_wire(&bytes) {
                let text = name.as_str();
                prop_assert_eq!(&HostName::from_wire(text.as_bytes()).unwrap(), &name);
                prop_assert_eq!(&text.parse::<HostName>().unwrap(), &name);
            }
        }
    }
}
