//! The way to an upstream: straight to an address that was checked, or through the operator's proxy. Everything that
//! leaves the sidecar for a container leaves by one of these.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::upstream_proxy::{TunnelError, UpstreamProxy};

/// Only [`super::Resolver`] makes one, for a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    address: SocketAddr,
    tunnel: Option<Tunnel>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tunnel {
    proxy: Arc<UpstreamProxy>,
    /// What the proxy is asked to connect to: an address that was checked, or a name where that is declared.
    target: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect to {address}: {source}")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Proxy(#[from] TunnelError),
}

impl Hop {
    pub(super) fn straight(address: SocketAddr) -> Self {
        Self { address, tunnel: None }
    }

    pub(super) fn through(proxy: &Arc<UpstreamProxy>, at: SocketAddr, target: String) -> Self {
        Self { address: at, tunnel: Some(Tunnel { proxy: Arc::clone(proxy), target }) }
    }

    /// What is dialled: the upstream, or the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a proxy is asked for, if there is one.
    pub fn target(&self) -> Option<&str> {
        self.tunnel.as_ref().map(|tunnel| tunnel.target.as_str())
    }

    /// A connection to the upstream, on which nothing was said yet. Takes as long as the network does.
    pub async fn connect(&self) -> Result<TcpStream, DialError> {
        let connected = TcpStream::connect(self.address).await.inspect(keep_alive);
        match &self.tunnel {
            None => connected.map_err(|source| DialError::Unreachable { address: self.address, source }),
            Some(tunnel) => {
                let stream = connected.map_err(TunnelError::Unreachable)?;
                Ok(tunnel.proxy.open(stream, &tunnel.target).await?)
            }
        }
    }
}

/// Finds dead upstreams without ever cutting a stream that is merely silent. A system that refuses gets none.
fn keep_alive(stream: &TcpStream) {
    let (idle, interval) = (Duration::from_secs(30), Duration::from_secs(10));
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3);
    drop(SockRef::from(stream).set_tcp_keepalive(&keepalive));
}
