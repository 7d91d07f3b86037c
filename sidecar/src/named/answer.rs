//! The host that an answer names. Its text is whatever answered: read strictly, so that no two programs could take it for two hosts.

use std::sync::Arc;

use understudy_control::ContainerId;
use understudy_harnesses::NamedHost;
use understudy_policies::{HostName, unique};

use super::{Named, NamedHosts};
use crate::credentials::{Swaps, Vault};

/// Of the answer, decoded.
const MAX: usize = 256 << 10;

/// Why an answer widens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotNamed {
    #[error("it is no `https://` URL of a plain host name, without a user, a port, a query and upper case")]
    NotPlain,
    #[error("it is not within what the descriptor lets be named")]
    Beyond,
    #[error("no secret that the request carried is bound to it")]
    Unbound,
    #[error("too many were named already")]
    TooMany,
}

/// The host of a URL such as `https://api.example.com`.
///
/// # Errors
/// Whatever else it is: names of other scripts, addresses, trailing dots.
pub fn host(url: &str) -> Result<HostName, NotNamed> {
    let rest = url.strip_prefix("https://").ok_or(NotNamed::NotPlain)?;
    let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let in_path = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
    let labels = name.split('.').all(|label| !label.is_empty() && !label.starts_with("xn--"));
    if !(name.contains('.') && labels && name.bytes().all(plain) && path.bytes().all(in_path)) {
        return Err(NotNamed::NotPlain);
    }
    name.parse().map_err(|_| NotNamed::NotPlain)
}

/// An answer that can name one, while it passes.
pub(crate) struct Naming {
    declared: Vec<Arc<NamedHost>>,
    secrets: Vec<String>,
    vault: Arc<Vault>,
    container: ContainerId,
    hosts: Arc<NamedHosts>,
    /// None if it is too long.
    body: Option<Vec<u8>>,
}

impl Naming {
    /// None if nothing is declared for a request to there, or no stand-in of a secret was swapped in it.
    pub(crate) fn of(
        declared: &[Arc<NamedHost>],
        (host, port, path): (&HostName, u16, &str),
        swaps: &Swaps,
        vault: &Arc<Vault>,
        container: &ContainerId,
        hosts: &Arc<NamedHosts>,
    ) -> Option<Self> {
        let here = |named: &&Arc<NamedHost>| {
            let endpoint = &named.endpoint;
            endpoint.host == *host && endpoint.port == port && endpoint.path == path
        };
        let declared: Vec<_> = declared.iter().filter(here).cloned().collect();
        let secrets = swaps.secrets.iter().filter(|name| vault.secret(name).is_some());
        let secrets: Vec<String> = secrets.cloned().collect();
        let (vault, container, hosts) = (Arc::clone(vault), container.clone(), Arc::clone(hosts));
        let none = declared.is_empty() || secrets.is_empty();
        (!none).then(|| Self { declared, secrets, vault, container, hosts, body: Some(Vec::new()) })
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let fits = |body: &Vec<u8>| body.len() + chunk.len() <= MAX;
        self.body = self.body.take().filter(fits).map(|mut body| {
            body.extend_from_slice(chunk);
            body
        });
    }

    /// What it names is allowed before the program has read the end of it.
    pub(crate) fn finish(self) {
        let Some(Ok(body)) = self.body.as_deref().map(unique::parse) else { return };
        for declared in &self.declared {
            let Some(text) = body.pointer(&declared.field).and_then(|field| field.as_str()) else { continue };
            let added = self.one(declared, text).and_then(|named| self.hosts.add(&self.container, named));
            if let Err(error) = added {
                let id = self.container.short();
                tracing::warn!("{id}: the host that {} names is not allowed: {error}", declared.endpoint);
            }
        }
    }

    fn one(&self, declared: &Arc<NamedHost>, text: &str) -> Result<Named, NotNamed> {
        let host = host(text)?;
        if !declared.within.iter().any(|pattern| pattern.0.matches(&host)) {
            return Err(NotNamed::Beyond);
        }
        // Policy is widened, and no binding.
        if !self.vault.bound_to(&host).any(|bound| self.secrets.contains(&bound.name)) {
            return Err(NotNamed::Unbound);
        }
        Ok(Named { host, by: Arc::clone(declared), secrets: self.secrets.clone() })
    }
}

impl std::fmt::Debug for Naming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Naming(..)")
    }
}
