//! Opens upstream connections for pingora, by the ways that were found for a permit and by no others.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora_core::connectors::L4Connect;
use pingora_core::protocols::GetProxyDigest;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;

use super::pool_key::PoolKey;
use crate::dns::{DialError, Hop, TunnelError, Upstream};

/// pingora's kind of error for an address that is the sidecar's own.
pub(super) const OWN_ADDRESS: &str = "an address of the sidecar itself";

#[derive(Debug)]
pub(super) struct Dialer {
    hop: Hop,
    key: PoolKey,
}

impl Dialer {
    /// A dialler for the `attempt`th hop of `upstream`, `None` if there is no such hop. This is the only way to one, so
    /// what no permit was resolved to cannot be dialled.
    pub(super) fn new(
        upstream: &Upstream,
        attempt: usize,
        key: impl FnOnce(&Hop) -> PoolKey,
    ) -> Option<Self> {
        let hop = upstream.hops().get(attempt)?.clone();
        Some(Self { key: key(&hop), hop })
    }

    /// Of the upstream, or of the proxy on the way to it.
    pub(super) fn address(&self) -> SocketAddr {
        self.hop.address()
    }

    pub(super) fn key(&self) -> &PoolKey {
        &self.key
    }
}

#[async_trait]
impl L4Connect for Dialer {
    async fn connect(&self, peer: &PeerAddress) -> Result<Stream> {
        if peer.as_inet() != Some(&self.address()) {
            return Error::e_explain(
                ErrorType::InternalError,
                "peer differs from the address that was checked",
            );
        }
        let socket = self.hop.connect().await.map_err(|error| {
            let kind = match &error {
                DialError::Unreachable { .. } => ErrorType::ConnectError,
                DialError::Own { .. } => ErrorType::Custom(OWN_ADDRESS),
                DialError::Proxy(TunnelError::Refused(status)) => {
                    ErrorType::CustomCode("the upstream proxy refused the tunnel", *status)
                }
                DialError::Proxy(TunnelError::Unreachable(_)) => {
                    ErrorType::Custom("the upstream proxy cannot be reached")
                }
                DialError::Proxy(TunnelError::Broken(_)) => ErrorType::Custom("the upstream proxy broke off"),
                DialError::Proxy(TunnelError::Garbled) => {
                    ErrorType::Custom("what the upstream proxy answered is not HTTP")
                }
            };
            Error::explain(kind, error.to_string())
        })?;
        let mut stream = Stream::from(socket);
        // Stays with the connection in the pool, to be compared before it is used again.
        let head = ResponseHeader::build(200, Some(0))?;
        stream.set_proxy_digest(ProxyDigest::new(Box::new(head), Some(Box::new(self.key.clone()))));
        Ok(stream)
    }
}
