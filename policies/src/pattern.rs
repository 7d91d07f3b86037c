//! What a rule says about hosts: one name, or everything below one.

use std::fmt;
use std::str::FromStr;

use crate::{HostName, NameError, document};

/// `host` is that name alone. `*.host` is every name one or more labels below it, and never `host` itself. Every host at
/// once is nothing that a person writes in a rule: `open = true` says it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    Exact(HostName),
    Below(HostName),
    Everything,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a bare `*` would allow every host; name the hosts, or use `*.example.com`")]
    Everything,
    #[error(
        "`*.{0}` would match everything below a top-level domain; use at least two labels, as `*.example.com`"
    )]
    TopLevel(HostName),
    #[error(
        "`*.{0}` would match the domains of everybody below the public suffix `{0}`; name one, as `*.example.{0}`"
    )]
    PublicSuffix(HostName),
    #[error("`*` stands only at the start, as `*.example.com`")]
    Star,
    #[error("a scheme or path in a host; write the name alone, as `api.example.com`")]
    Url,
    #[error(
        "an address, which no rule is about; give it a name below `[names]` of sidecar.toml, and write that name here"
    )]
    Address,
    #[error("a port in a host; write it as `port = {0}`")]
    Port(u16),
    #[error("what follows the `:` in a host is no port")]
    NoPort,
    #[error("no name below `{0}` is short enough to be one")]
    NoneBelow(HostName),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl HostPattern {
    pub fn matches(&self, host: &HostName) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(parent) => host.is_below(parent),
            Self::Everything => true,
        }
    }

    /// Whether every name that `other` matches is matched by this one, too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Everything, _) => true,
            (_, Self::Everything) | (Self::Exact(_), Self::Below(_)) => false,
            (Self::Below(parent), Self::Below(below)) => below == parent || below.is_below(parent),
        }
    }

    /// What whoever allows it should know.
    pub fn caution(&self) -> Option<String> {
        let suffix = self.shared_suffix()?;
        Some(format!("anybody can have a name below `{suffix}`, where an agent could send what it likes"))
    }

    /// The name of a suffix below which anybody can have a name of their own, as with hosting services, if it matches all
    /// below it (the private section of the Public Suffix List).
    fn shared_suffix(&self) -> Option<&HostName> {
        match self {
            Self::Below(parent) if public_suffix(parent) == Some(psl::Type::Private) => Some(parent),
            _ => None,
        }
    }
}

/// Which section of the Public Suffix List has this name, or every name below it, if one has.
fn public_suffix(name: &HostName) -> Option<psl::Type> {
    let whole = |name: &str| {
        let suffix = psl::suffix(name.as_bytes())?;
        (suffix.as_bytes() == name.as_bytes()).then(|| suffix.typ())?
    };
    whole(name.as_str()).or_else(|| whole(&format!("any.{name}")))
}

/// A name has 253 characters at most (RFC 1035 section 2.3.4), of which two are a label's and its dot's.
const LONGEST_PARENT: usize = 251;

/// With a port or a star or not; in whatever notation.
fn is_address(text: &str) -> bool {
    let text = text.strip_prefix("*.").unwrap_or(text);
    let host = match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => return true,
        Some((host, _)) => host,
        None => text,
    };
    text.starts_with('[') || host.parse::<HostName>() == Err(NameError::Address)
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if matches!(text, "*" | "*.") {
            return Err(PatternError::Everything);
        }
        if text.contains('/') {
            return Err(PatternError::Url);
        }
        if is_address(text) {
            return Err(PatternError::Address);
        }
        if let Some((_, port)) = text.rsplit_once(':') {
            return Err(document::number(port).map_or(PatternError::NoPort, PatternError::Port));
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |parent| (true, parent));
        if name.contains('*') {
            return Err(PatternError::Star);
        }
        let name: HostName = name.parse()?;
        match below {
            true if name.as_str().len() > LONGEST_PARENT => Err(PatternError::NoneBelow(name)),
            true if !name.as_str().contains('.') => Err(PatternError::TopLevel(name)),
            true if public_suffix(&name) == Some(psl::Type::Icann) => Err(PatternError::PublicSuffix(name)),
            true => Ok(Self::Below(name)),
            false => Ok(Self::Exact(name)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
            Self::Everything => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is written: the form that is compared and shown is read as itself.
        #[test]
        fn normalising_a_host_twice_changes_nothing(
            text in "(\\*\\.)?([a-zA-Z0-9_-]|[\u{e0}-\u{ff}]|[\u{212a}\u{130}\u{ff0e}\u{3002}\u{ff21}]|\\.|\\PC){1,12}(\\.example)?\\.?",
        ) {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                let shown = pattern.to_string();
                prop_assert!(shown.is_ascii(), "{}", shown);
                prop_assert_eq!(shown.parse::<HostPattern>(), Ok(pattern));
            }
            if let Ok(name) = text.parse::<HostName>() {
                prop_assert_eq!(HostName::from_wire(name.as_str().as_bytes()), Ok(name));
            }
        }
    }

    #[test]
    fn a_pattern_matches_what_its_documentation_says() {
        for (pattern, host, expected) in [
            ("example.com", "example.com", true),
            ("Example.COM.", "example.com", true),
            ("example.com", "a.example.com", false),
            ("example.com", "notexample.com", false),
            ("example.com", "example.com.evil.net", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "notexample.com", false),
            ("*.example.com", "a.example.com.evil.net", false),
            ("*.Bücher.example", "a.xn--bcher-kva.example", true),
        ] {
            let found = pattern.parse::<HostPattern>().unwrap().matches(&host.parse().unwrap());
            assert_eq!(found, expected, "{pattern} {host}");
        }
    }

    #[test]
    fn a_pattern_that_says_too_much_or_nothing_is_an_error() {
        for (text, error) in [
            ("*", PatternError::Everything),
            ("*.", PatternError::Everything),
            ("*.com", PatternError::TopLevel("com".parse().unwrap())),
            ("*.com.", PatternError::TopLevel("com".parse().unwrap())),
            ("*.co.uk", PatternError::PublicSuffix("co.uk".parse().unwrap())),
            ("*.CO.UK.", PatternError::PublicSuffix("co.uk".parse().unwrap())),
            ("*.kawasaki.jp", PatternError::PublicSuffix("kawasaki.jp".parse().unwrap())),
            ("*.*.com", PatternError::Star),
            ("api*.example.com", PatternError::Star),
            ("*example.com", PatternError::Star),
            ("a.*", PatternError::Star),
            ("https://example.com", PatternError::Url),
            ("example.com/path", PatternError::Url),
            ("example.com:8443", PatternError::Port(8443)),
            ("", PatternError::Name(NameError::Empty)),
            ("10.0.0.1", PatternError::Address),
            ("10.0.0.1:443", PatternError::Address),
            ("0x7f.1:x", PatternError::Address),
            ("*.0.0.1", PatternError::Address),
            ("::1", PatternError::Address),
            ("fe80::1", PatternError::Address),
            ("fe80::1%eth0", PatternError::Address),
            ("[::1]", PatternError::Address),
            ("[::1]:443", PatternError::Address),
            ("::ffff:10.0.0.1", PatternError::Address),
            ("example.com:https", PatternError::NoPort),
            ("example.com:", PatternError::NoPort),
            ("example.com:70000", PatternError::NoPort),
            ("a b", PatternError::Name(NameError::Character)),
        ] {
            assert_eq!(text.parse::<HostPattern>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn what_is_below_a_name_must_have_room() {
        let name = |last: usize| format!("{}.", "a".repeat(49)).repeat(4) + &"b".repeat(last);
        let (room, none) = (name(51), name(52));
        assert_eq!((room.len(), none.len()), (251, 252));
        assert!(
            format!("*.{room}")
                .parse::<HostPattern>()
                .unwrap()
                .matches(&format!("b.{room}").parse().unwrap())
        );
        assert!(matches!(format!("*.{none}").parse::<HostPattern>(), Err(PatternError::NoneBelow(_))));
    }

    #[test]
    fn a_pattern_covers_what_is_not_more_than_itself() {
        for (pattern, other, expected) in [
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "*.a.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.a.example.com", true),
            ("*.a.example.com", "*.example.com", false),
            ("*.example.com", "*.notexample.com", false),
        ] {
            let (pattern, other): (HostPattern, HostPattern) =
                (pattern.parse().unwrap(), other.parse().unwrap());
            assert_eq!(pattern.covers(&other), expected, "{pattern} {other}");
        }
    }

    #[test]
    fn what_lies_below_a_suffix_may_be_anybodys() {
        let shared =
            |text: &str| text.parse::<HostPattern>().unwrap().shared_suffix().map(HostName::to_string);
        assert_eq!(shared("*.github.io").as_deref(), Some("github.io"));
        for text in ["*.example.co.uk", "*.example.corp", "*.me.github.io", "co.uk", "github.io"] {
            assert_eq!(shared(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_shown_as_it_is_written() {
        for text in ["example.com", "*.example.com"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }
}
