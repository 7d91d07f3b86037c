//! Opens upstream connections for pingora, by the ways that were found for a permit and by no others.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::connectors::L4Connect;
use pingora_core::protocols::GetProxyDigest;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;

use super::pool_key::PoolKey;
use crate::container::Container;
use crate::dns::{DialError, Hop, TunnelError, Upstream};

/// pingora's kind of error for an address that is the sidecar's own.
pub(super) const OWN_ADDRESS: &str = "an address of the sidecar itself";

#[derive(Debug)]
pub(super) struct Dialer {
    hop: Hop,
    key: PoolKey,
    container: Arc<Container>,
}

impl Dialer {
    /// A dialler for the `attempt`th hop of `upstream`, `None` if there is no such hop. This is the only way to one, so
    /// what no permit was resolved to cannot be dialled.
    pub(super) fn new(
        upstream: &Upstream,
        attempt: usize,
        container: &Arc<Container>,
        key: impl FnOnce(&Hop) -> PoolKey,
    ) -> Option<Self> {
        let hop = upstream.hops().get(attempt)?.clone();
        Some(Self { key: key(&hop), hop, container: Arc::clone(container) })
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
        let same = socket.as_fd().try_clone_to_owned();
        let same = same.map_err(|error| Error::explain(ErrorType::SocketError, error.to_string()))?;
        let connection = self.container.upstreams.add(self.key.clone(), same);
        let mut stream = Stream::from(socket);
        // Stays with the connection in the pool, to be compared before it is used again.
        let head = ResponseHeader::build(200, Some(0))?;
        stream.set_proxy_digest(ProxyDigest::new(Box::new(head), Some(Box::new(connection))));
        Ok(stream)
    }
}
