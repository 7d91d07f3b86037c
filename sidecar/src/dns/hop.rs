//! The way to an upstream: straight to an address that was checked, or through the operator's proxy. Everything that
//! leaves the sidecar for a container leaves by one of these.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::own::Closed;
use super::upstream_proxy::{TunnelError, UpstreamProxy};

/// Only [`super::Resolver`] makes one, for a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    address: SocketAddr,
    tunnel: Option<Tunnel>,
    closed: Closed,
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
    #[error("{address} is an address of the sidecar itself")]
    Own { address: SocketAddr },
    #[error(transparent)]
    Proxy(#[from] TunnelError),
}

impl Hop {
    pub(super) fn straight(address: SocketAddr, closed: Closed) -> Self {
        Self { address, tunnel: None, closed }
    }

    pub(super) fn through(
        proxy: &Arc<UpstreamProxy>,
        at: SocketAddr,
        target: String,
        closed: Closed,
    ) -> Self {
        Self { address: at, tunnel: Some(Tunnel { proxy: Arc::clone(proxy), target }), closed }
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
        // A proxy that is asked for a name looks it up by itself.
        let meant = match &self.tunnel {
            None => Some(self.address),
            Some(tunnel) => tunnel.target.parse().ok(),
        };
        if let Some(address) = meant.filter(|address| self.closed.refuses(*address)) {
            return Err(DialError::Own { address });
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::Ports;

    #[tokio::test]
    async fn what_listens_on_this_machine_is_dialled_only_where_the_operator_says() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = |port| Closed::Ports(Arc::new(Ports::default().with(Some(port))));
        let dial = |closed| async move { Hop::straight(address, closed).connect().await };
        assert!(matches!(dial(Closed::Whole).await, Err(DialError::Own { .. })));
        assert!(matches!(dial(closing(address.port())).await, Err(DialError::Own { .. })));
        assert!(dial(closing(1)).await.is_ok());
        assert!(dial(Closed::Ports(Arc::default())).await.is_ok());
    }
}
