//! From a permit to addresses that may be dialled. Stub: signatures only.

use std::net::SocketAddr;

use crate::decide::Permit;
use crate::reason::Reason;

/// A permitted name with the addresses that were resolved and checked for it, once. Only [`Resolver`] makes one.
#[derive(Debug, Clone)]
pub struct Upstream {
    permit: Permit,
    addresses: Vec<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveDenial {
    /// `NameNotFound`, `PrivateAddress`, `UpstreamTimeout`.
    pub reason: Reason,
    pub detail: String,
    pub remedy: String,
}

#[derive(Debug, Default)]
pub struct Resolver {
    pins: std::collections::HashMap<String, Vec<std::net::IpAddr>>,
}

impl Upstream {
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// At least one, in the order in which they are to be tried.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Resolver {
    pub fn pinned(pins: impl IntoIterator<Item = (String, Vec<std::net::IpAddr>)>) -> Self {
        Self { pins: pins.into_iter().collect() }
    }

    pub async fn resolve(&self, permit: Permit) -> Result<Upstream, ResolveDenial> {
        let Some(pins) = self.pins.get(permit.host().as_str()) else {
            let (detail, remedy) = ("no such name".to_owned(), String::new());
            return Err(ResolveDenial { reason: Reason::NameNotFound, detail, remedy });
        };
        let addresses = pins.iter().map(|ip| SocketAddr::new(*ip, permit.port())).collect();
        Ok(Upstream { permit, addresses })
    }
}
