//! Credentials that a provider makes for a session, in the answer to a declared request, and that a client uses afterwards.

use http::Method;
use understudy_policies::{HostName, HostPattern, PathPattern, Readings, RequestPath};

use super::endpoint::is_among;
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
    /// Of the answer, which is JSON.
    pub field: Pointer,
    /// Empty: the host that made it.
    pub used_at: Vec<HostPattern>,
    /// All of them in headers; never empty.
    pub placements: Vec<Placement>,
    /// Whether the container gets a stand-in for it.
    pub wrap: bool,
    /// Whether the provider's documentation says so.
    pub confirmed: bool,
}

impl Minted {
    /// Whether a request surely asks for one. `own` are the hosts that it is made at without any of its own.
    pub fn is_made_by<'h>(
        &'h self,
        host: &HostName,
        method: &Method,
        path: &RequestPath,
        own: impl IntoIterator<Item = &'h HostPattern>,
    ) -> bool {
        self.method == *method
            && is_among(&self.hosts, host, own)
            && self.paths.iter().any(|pattern| pattern.matches_surely(path))
    }

    /// Whether a server could take a request for one that does.
    pub fn could_be_made_by<'h>(
        &'h self,
        host: &HostName,
        methods: &[Method],
        readings: &Readings,
        own: impl IntoIterator<Item = &'h HostPattern>,
    ) -> bool {
        methods.contains(&self.method)
            && is_among(&self.hosts, host, own)
            && self.paths.iter().any(|path| path.matches_possibly(readings))
    }
}
