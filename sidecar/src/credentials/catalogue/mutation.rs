//! Fields of GraphQL that create or store credentials: one address answers all of them, and a body says which is meant.

use std::fmt;

use understudy_policies::{HostPattern, PathPattern};

use super::endpoint::Creates;

/// Fields of one provider's root type for mutations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// Empty: the hosts of the provider, and those of secrets that are like one of its kinds.
    pub hosts: Vec<HostPattern>,
    /// Where requests are sent.
    pub paths: Vec<PathPattern>,
    pub fields: Vec<String>,
    pub creates: Creates,
    /// Whether the provider's documentation says so.
    pub confirmed: bool,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphQL {}", self.fields.join(", "))
    }
}

/// As GraphQL spells names (section 2.1.9 of its specification): there is no other way to write one.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
