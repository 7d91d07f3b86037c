//! Credentials that a provider makes for a session, in the answer to a declared request, and that a client uses afterwards.

use http::Method;
use understudy_policies::{HostPattern, PathPattern, Readings, RequestPath};

use crate::credentials::placement::{Placement, Pointer};

/// Where one comes from, and where it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minted {
    /// `PROVIDER NAME`: what audit lines call it.
    pub label: String,
    /// Empty: the hosts of the provider, and those of secrets that are like one of its kinds.
    pub hosts: Vec<HostPattern>,
    pub method: Method,
    pub paths: Vec<PathPattern>,
    /// Of the answer, which is JSON. Of several that are for one field there, the first counts.
    pub field: Pointer,
    /// If the field is base64url of a JSON object that holds it.
    pub inside: Option<Inside>,
    /// Empty: the host that made it.
    pub used_at: Vec<HostPattern>,
    /// All of them in headers; never empty.
    pub placements: Vec<Placement>,
    /// Whether the container gets a stand-in for it.
    pub wrap: bool,
    /// Whether the provider's documentation says so.
    pub confirmed: bool,
}

/// An encoded object with a credential, and what may stand beside that. What else looks like a credential is none that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    pub at: Pointer,
    /// Members with long words that are no credentials: names of models, paths. Names and known shapes still tell.
    pub harmless: Vec<String>,
    /// Members that clients do not read: they are taken out.
    pub left_out: Vec<String>,
}

impl Minted {
    /// Whether a request to its host surely asks for one.
    pub fn is_made_by(&self, method: &Method, path: &RequestPath) -> bool {
        self.method == *method && self.paths.iter().any(|pattern| pattern.matches_surely(path))
    }

    /// Whether a server could take a request to its host for one that does.
    pub fn could_be_made_by(&self, methods: &[Method], readings: &Readings) -> bool {
        methods.contains(&self.method) && self.paths.iter().any(|path| path.matches_possibly(readings))
    }
}
