//! Packets from and to a stream, none larger than its reader allows.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Plain or over TLS.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(super) type Stream = Box<dyn Duplex>;

#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a packet of {0} bytes")]
    Length(u32),
}

/// Of a client, before there is a session: without its length, which is not its first four bytes' value if they are none.
pub(super) async fn opening(stream: &mut Stream, most: usize) -> Result<Vec<u8>, WireError> {
    let length = stream.read_u32().await?;
    body(stream, length, 8, most).await
}

/// Type and body.
pub(super) async fn message(stream: &mut Stream, most: usize) -> Result<(u8, Vec<u8>), WireError> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await?;
    Ok((kind, body(stream, length, 4, most).await?))
}

async fn body(stream: &mut Stream, length: u32, least: usize, most: usize) -> Result<Vec<u8>, WireError> {
    let whole = usize::try_from(length).ok().filter(|whole| (least..=most).contains(whole));
    let left = whole.and_then(|whole| whole.checked_sub(4)).ok_or(WireError::Length(length))?;
    let mut body = vec![0; left];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

pub(super) async fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
