//! What a connection of HTTP/1.1 can be switched to (RFC 9110 section 7.8). Pure.

use std::fmt;
use std::str::FromStr;

/// A protocol as the `Upgrade` header names it: a token, and perhaps a slash and a version, as in `SPDY/3.1`. Letter case does
/// not matter, and is kept.
#[derive(Debug, Clone)]
pub struct Protocol(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("write it as the `Upgrade` header has it: `tcp`, `SPDY/3.1`")]
    Name,
    #[error("WebSockets need no word of a rule, and are looked into")]
    WebSocket,
    #[error("what is in it would be requests that no rule is asked about")]
    Http,
    #[error("nobody could look into it")]
    Tls,
}

impl FromStr for Protocol {
    type Err = ProtocolError;

    /// One that a rule may name: what carries requests, or is encrypted, is none.
    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let protocol = Self::from_wire(text).ok_or(ProtocolError::Name)?;
        match protocol.0.split('/').next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "websocket" => Err(ProtocolError::WebSocket),
            "h2c" | "h2" | "http" => Err(ProtocolError::Http),
            "tls" | "ssl" => Err(ProtocolError::Tls),
            _ => Ok(protocol),
        }
    }
}

impl Protocol {
    /// What a client asks for. None: it is no name of a protocol, or more than one.
    pub fn from_wire(text: &str) -> Option<Self> {
        let mut parts = text.splitn(2, '/');
        let well_formed = text.len() <= 64 && parts.all(is_token);
        well_formed.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Protocol {}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_neither_what_hides_requests_nor_what_nobody_can_read() {
        for (text, error) in [
            ("", ProtocolError::Name),
            ("tcp, h2c", ProtocolError::Name),
            ("tcp/", ProtocolError::Name),
            ("a/b/c", ProtocolError::Name),
            ("tcp\r\nx: y", ProtocolError::Name),
            ("WebSocket", ProtocolError::WebSocket),
            ("websocket/13", ProtocolError::WebSocket),
            ("H2C", ProtocolError::Http),
            ("HTTP/2.0", ProtocolError::Http),
            ("TLS/1.2", ProtocolError::Tls),
        ] {
            assert_eq!(text.parse::<Protocol>(), Err(error), "{text:?}");
        }
        for text in ["tcp", "SPDY/3.1"] {
            assert_eq!(text.parse::<Protocol>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn letter_case_does_not_matter() {
        assert_eq!(Protocol::from_wire("spdy/3.1"), "SPDY/3.1".parse().ok());
        assert_ne!(Protocol::from_wire("spdy/3"), "SPDY/3.1".parse().ok());
        assert!(Protocol::from_wire("h2c").is_some() && Protocol::from_wire("a, b").is_none());
    }
}
