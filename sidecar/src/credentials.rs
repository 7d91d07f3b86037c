//! Secrets, the stand-ins that containers see, and the plan of swaps for one request. Stub: signatures only.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use understudy_policies::HostName;

use crate::reason::Reason;

/// Every secret of the installation. Real values live here and nowhere else.
#[derive(Debug, Default)]
pub struct Vault {
    secrets: Vec<StubSecret>,
}

#[derive(Debug, Clone)]
pub struct StubSecret {
    pub name: String,
    pub host: String,
    pub header: HeaderName,
    pub stand_in: String,
    pub real: String,
}

/// The secrets that one container was granted, by name.
#[derive(Debug, Default)]
pub struct Grants {
    names: Vec<String>,
}

impl Vault {
    pub fn holding(secrets: Vec<StubSecret>) -> Self {
        Self { secrets }
    }
}

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
        self.names.clone()
    }

    pub fn of(names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| (*name).to_owned()).collect() }
    }
}

/// What is to be swapped in this request, or why it must not leave. Pure.
pub fn examine(vault: &Vault, grants: &Grants, head: RequestHead<'_>) -> Result<Swaps, CredentialDenial> {
    let mut swaps = Swaps::default();
    for secret in &vault.secrets {
        for (index, value) in head.headers.get_all(&secret.header).iter().enumerate() {
            let text = value.to_str().unwrap_or_default();
            if !text.contains(&secret.stand_in) {
                continue;
            }
            let deny = |reason| CredentialDenial {
                reason,
                secret: Some(secret.name.clone()),
                place: format!("header {}", secret.header),
                remedy: String::new(),
            };
            if !grants.names.contains(&secret.name) {
                return Err(deny(Reason::CredentialNotGranted));
            }
            if head.host.as_str() != secret.host {
                return Err(deny(Reason::CredentialMisdirected));
            }
            if !head.verified_tls {
                return Err(deny(Reason::CredentialInClear));
            }
            if let Ok(value) = HeaderValue::from_str(&text.replace(&secret.stand_in, &secret.real)) {
                swaps.headers.push((secret.header.clone(), index, value));
                swaps.secrets.push(secret.name.clone());
            }
        }
    }
    Ok(swaps)
}
