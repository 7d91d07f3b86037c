//! Ending a connection that cannot be answered in its own protocol.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Fatal alert `unrecognized_name` (RFC 6066 section 3), in the clear as no keys exist yet.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Closes with a reset, so that the client fails at once and does not take the end for an answer.
pub(super) fn reset(stream: TcpStream) {
    // Should the option fail, the connection ends all the same, only less clearly.
    drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
}

pub(super) async fn unrecognized_name(mut stream: TcpStream) {
    if stream.write_all(&UNRECOGNIZED_NAME).await.is_ok() {
        drop(stream.shutdown().await);
    }
}
