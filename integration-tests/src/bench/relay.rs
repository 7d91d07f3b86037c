//! A plain TCP relay to the origin: what splicing is compared with.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};

use super::nginx::ORIGIN;

pub(super) const RELAY: u16 = 7446;
/// As much as the sidecar reads at once.
const CHUNK: usize = 64 * 1024;

/// Serves until the process ends.
///
/// # Errors
/// If the port cannot be used.
pub async fn serve() -> Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], RELAY));
    let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(connection(socket));
    }
}

/// What goes wrong shows at the client.
async fn connection(mut socket: TcpStream) {
    let Ok(mut origin) = TcpStream::connect(("127.0.0.1", ORIGIN)).await else { return };
    if socket.set_nodelay(true).is_ok() && origin.set_nodelay(true).is_ok() {
        let _ = copy_bidirectional_with_sizes(&mut socket, &mut origin, CHUNK, CHUNK).await;
    }
}
