//! Opens upstream connections, to addresses that were resolved and checked for a permit and to no others.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora_core::connectors::L4Connect;
use pingora_core::protocols::GetProxyDigest;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_error::{Error, ErrorType, OrErr, Result};
use pingora_http::ResponseHeader;
use tokio::net::TcpStream;

use super::pool_key::PoolKey;
use crate::dns::Upstream;

#[derive(Debug)]
pub(super) struct Dialer {
    address: SocketAddr,
    key: PoolKey,
}

impl Dialer {
    /// A dialler for the `attempt`th address of `upstream`, `None` if there is no such address. This is the only way
    /// to one, so an address that no permit was resolved to cannot be dialled.
    pub(super) fn new(
        upstream: &Upstream,
        attempt: usize,
        key: impl FnOnce(SocketAddr) -> PoolKey,
    ) -> Option<Self> {
        let address = *upstream.addresses().get(attempt)?;
        Some(Self { address, key: key(address) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn key(&self) -> &PoolKey {
        &self.key
    }
}

#[async_trait]
impl L4Connect for Dialer {
    async fn connect(&self, peer: &PeerAddress) -> Result<Stream> {
        if peer.as_inet() != Some(&self.address) {
            return Error::e_explain(
                ErrorType::InternalError,
                "peer differs from the address that was checked",
            );
        }
        let socket = TcpStream::connect(self.address)
            .await
            .or_err_with(ErrorType::ConnectError, || format!("cannot connect to {}", self.address))?;
        let mut stream = Stream::from(socket);
        // Stays with the connection in the pool, to be compared before it is used again.
        let head = ResponseHeader::build(200, Some(0))?;
        stream.set_proxy_digest(ProxyDigest::new(Box::new(head), Some(Box::new(self.key.clone()))));
        Ok(stream)
    }
}
