//! Where a credential may stand in a request: a header, alone or after a scheme.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};

/// `x-api-key`: the value is the credential. `authorization: Bearer`: a scheme, a space, the credential (RFC 9110
/// section 11.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    header: HeaderName,
    scheme: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    // What was written is not quoted: people paste credentials into the wrong line.
    #[error(
        "not the name of a header; write it alone or with a scheme, as `x-api-key` or `authorization: Bearer`"
    )]
    Header,
    #[error("`{0}` says something about the connection, so no credential can stand in it")]
    Connection(HeaderName),
    #[error("not a scheme after the colon; write one word and no credential, as `authorization: Bearer`")]
    Scheme,
}

/// Headers that proxies change or take off (RFC 9110 section 7.6.1), and those that frame the message.
const NOT_FOR_CREDENTIALS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Placement {
    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    pub fn bearer() -> Self {
        Self { header: http::header::AUTHORIZATION, scheme: Some("Bearer".to_owned()) }
    }

    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// The credential in a value of this placement's header, without the white space around it; None if the value has
    /// another form.
    pub fn credential<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        self.split(value).map(|(_, credential)| credential)
    }

    /// The same value with another credential in it; the scheme stays as the client spelled it.
    pub fn replace(&self, value: &[u8], credential: &str) -> Option<HeaderValue> {
        let (before, _) = self.split(value)?;
        let mut bytes = before.to_vec();
        bytes.extend_from_slice(credential.as_bytes());
        let mut replaced = HeaderValue::from_bytes(&bytes).ok()?;
        replaced.set_sensitive(true);
        Some(replaced)
    }

    /// What stands before the credential, and the credential.
    fn split<'v>(&self, value: &'v [u8]) -> Option<(&'v [u8], &'v [u8])> {
        let value = value.trim_ascii();
        let Some(scheme) = &self.scheme else { return Some((&[], value)) };
        let (found, rest) = value.split_at_checked(scheme.len())?;
        let credential = rest.trim_ascii_start();
        // Without white space between them it is another, longer word.
        if !found.eq_ignore_ascii_case(scheme.as_bytes()) || credential.len() == rest.len() {
            return None;
        }
        Some((value.get(..value.len() - credential.len())?, credential))
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let (name, scheme) = match text.split_once(':') {
            Some((name, scheme)) => (name.trim(), Some(scheme.trim())),
            None => (text.trim(), None),
        };
        let header: HeaderName = name.parse().map_err(|_| PlacementError::Header)?;
        if NOT_FOR_CREDENTIALS.contains(&header.as_str()) {
            return Err(PlacementError::Connection(header));
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        match scheme {
            Some(scheme) if scheme.is_empty() || scheme.len() > 32 || !scheme.bytes().all(token) => {
                Err(PlacementError::Scheme)
            }
            scheme => Ok(Self { header, scheme: scheme.map(str::to_owned) }),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scheme {
            Some(scheme) => write!(f, "{}: {scheme}", self.header),
            None => f.write_str(self.header.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_found_in_its_place_and_replaced_there() {
        for (placement, value, replaced) in [
            ("x-api-key", "abc", Some("REAL")),
            ("X-Api-Key", " abc ", Some("REAL")),
            ("authorization: Bearer", "Bearer abc", Some("Bearer REAL")),
            ("authorization: Bearer", "bearer  abc ", Some("bearer  REAL")),
            ("authorization: token", "TOKEN\tabc", Some("TOKEN\tREAL")),
            ("authorization: Bearer", "Bearerabc", None),
            ("authorization: Bearer", "Basic abc", None),
            ("authorization: Bearer", "abc", None),
            ("authorization: Bearer", "", None),
        ] {
            let placement: Placement = placement.parse().unwrap();
            let credential = placement.credential(value.as_bytes());
            assert_eq!(credential, replaced.map(|_| b"abc".as_slice()), "{placement} {value:?}");
            let value = placement.replace(value.as_bytes(), "REAL");
            assert_eq!(value.as_ref().map(|value| value.to_str().unwrap()), replaced);
            assert!(value.is_none_or(|value| value.is_sensitive()));
        }
    }

    #[test]
    fn what_is_no_place_for_a_credential_is_an_error() {
        for text in
            ["", "a b", "x-api-key:", "authorization: Bearer token", "authorization:\u{e9}", "h\u{e9}"]
        {
            assert!(text.parse::<Placement>().is_err(), "{text:?}");
        }
        for text in ["Host", "connection: x", "Transfer-Encoding"] {
            assert!(matches!(text.parse::<Placement>(), Err(PlacementError::Connection(_))), "{text:?}");
        }
    }
}
