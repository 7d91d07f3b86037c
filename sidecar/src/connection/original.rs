//! Where a connection was going before nftables redirected it.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::TcpStream;

/// A seam: tests state a destination, as redirecting takes a network namespace and its administrator.
pub trait OriginalDestination: Send + Sync + 'static {
    /// An error means that nothing redirected the connection.
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddr>;
}

/// Asks the kernel: `SO_ORIGINAL_DST` and `IP6T_SO_ORIGINAL_DST`, answered from the connection tracking of the
/// network namespace that the listening socket was made in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Redirected;

impl OriginalDestination for Redirected {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        let socket = SockRef::from(stream);
        let address =
            if stream.local_addr()?.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
        address?.as_socket().ok_or_else(|| io::Error::other("original destination is not an IP address"))
    }
}
