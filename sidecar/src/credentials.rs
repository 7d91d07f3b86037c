//! Secrets, the stand-ins that containers see, and the plan of swaps for one request. Stub: signatures only.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use understudy_policies::HostName;

use crate::reason::Reason;

/// Every secret of the installation. Real values live here and nowhere else.
#[derive(Debug, Default)]
pub struct Vault {}

/// The secrets that one container was granted, by name.
#[derive(Debug, Default)]
pub struct Grants {}

/// The head of a request as far as credentials can be in it.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    pub host: &'a HostName,
    /// Whether the way to the upstream is verified TLS.
    pub verified_tls: bool,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

/// What to write into the request that goes upstream.
#[derive(Debug, Default)]
pub struct Swaps {
    /// Header, which of its values (0 for the first), the new value (marked sensitive).
    pub headers: Vec<(HeaderName, usize, HeaderValue)>,
    /// Names of the secrets that are swapped in, for the audit and the pool key.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialDenial {
    pub reason: Reason,
    /// The secret that it is about, if it is known.
    pub secret: Option<String>,
    /// Where: `header x-api-key`, `URL`.
    pub place: String,
    pub remedy: String,
}

impl Grants {
    /// Names of the granted secrets, sorted.
    pub fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What is to be swapped in this request, or why it must not leave. Pure.
pub fn examine(vault: &Vault, grants: &Grants, head: RequestHead<'_>) -> Result<Swaps, CredentialDenial> {
    let _ = (vault, grants, head);
    Ok(Swaps::default())
}

pub mod terms {
    use std::sync::Arc;
    use understudy_control::{EnvironmentVariable, Placement};
    use understudy_policies::PolicySet;
    #[derive(Debug)]
    pub struct Terms {
        pub harness: String,
        pub policy: Arc<PolicySet>,
        pub grants: Arc<super::Grants>,
        pub env: Vec<EnvironmentVariable>,
        pub placement: Placement,
        pub notes: Vec<String>,
    }
}
