//! The stream that pingora is handed.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID, UniqueIDType,
};
use pingora_http::ResponseHeader;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::{Downstream, h2_limits};

/// Of an HTTP/1.1 request's head, with what may follow it in the same reads. As much as HTTP/2 allows; pingora would
/// keep 1 MiB for each connection.
const LONGEST_HEAD: usize = h2_limits::HEADER_LIST as usize;
/// One TLS record of the largest size.
const WRITE_BUFFER: usize = 16 * 1024 + 512;

/// A socket whose first bytes were read already and come again. Writes are buffered here, below TLS, so that a response
/// head and the first of its body leave in one packet; an idle connection keeps no buffer.
#[derive(Debug)]
pub struct Replay {
    first: Bytes,
    socket: TcpStream,
    /// What is yet to be sent, from `sent` on.
    buffer: Vec<u8>,
    sent: usize,
}

impl Replay {
    pub fn new(first: Bytes, socket: TcpStream) -> Self {
        Self { first, socket, buffer: Vec::new(), sent: 0 }
    }

    fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Sends what is buffered, and gives the buffer's memory back.
    fn poll_empty(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(left) = self.buffer.get(self.sent..).filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut self.socket).poll_write(context, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => self.sent += length,
            }
        }
        self.buffer = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl AsFd for Replay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(self.first.get(..length).unwrap_or_default());
        self.first.advance(length);
        if self.first.is_empty() {
            // Gives the memory back, which would otherwise stay for the connection's life.
            self.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Passes writing on to one field.
macro_rules! write_through {
    ($field:ident) => {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.$field).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.$field).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.$field).poll_shutdown(context)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.$field).poll_write_vectored(context, bytes)
        }

        fn is_write_vectored(&self) -> bool {
            self.$field.is_write_vectored()
        }
    };
}

impl AsyncWrite for Replay {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bytes.iter().map(|slice| slice.len()).sum();
        if self.buffer.len() + length > WRITE_BUFFER {
            ready!(self.poll_empty(context))?;
        }
        if length >= WRITE_BUFFER {
            return Pin::new(&mut self.socket).poll_write_vectored(context, bytes);
        }
        self.buffer.reserve(length);
        for slice in bytes {
            self.buffer.extend_from_slice(slice);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(context))?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// A decrypted (or plain) stream with what pingora asks about it. The connection travels as the user data of the
/// proxy digest: the one place that requests of HTTP/1.1 and HTTP/2 both see.
#[derive(Debug)]
pub struct Conn<T> {
    io: T,
    fd: i32,
    http2: bool,
    ssl: Option<Arc<SslDigest>>,
    socket: Arc<SocketDigest>,
    proxy: Option<Arc<ProxyDigest>>,
    downstream: Arc<Downstream>,
    /// Bytes since the last request ended.
    head: usize,
}

impl Conn<Replay> {
    pub fn new(io: Replay, downstream: Arc<Downstream>, http2: bool) -> Self {
        let fd = io.fd();
        Self::with(io, fd, None, downstream, http2)
    }
}

impl Conn<TlsStream<Replay>> {
    pub fn secure(io: TlsStream<Replay>, downstream: Arc<Downstream>, http2: bool) -> Self {
        let (replay, session) = io.get_ref();
        let fd = replay.fd();
        let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        let version = session.protocol_version().and_then(|version| version.as_str());
        let ssl = SslDigest::new(cipher.unwrap_or("?"), version.unwrap_or("?"), None, None, Vec::new());
        Self::with(io, fd, Some(Arc::new(ssl)), downstream, http2)
    }
}

impl<T> Conn<T> {
    fn with(io: T, fd: i32, ssl: Option<Arc<SslDigest>>, downstream: Arc<Downstream>, http2: bool) -> Self {
        let data: Box<dyn std::any::Any + Send + Sync> = Box::new(Arc::clone(&downstream));
        let proxy = ResponseHeader::build(200, Some(0)).ok();
        let proxy = proxy.map(|head| Arc::new(ProxyDigest::new(Box::new(head), Some(data))));
        let socket = Arc::new(SocketDigest::from_raw_fd(fd));
        Self { io, fd, http2, ssl, socket, proxy, downstream, head: 0 }
    }

    pub fn is_http2(&self) -> bool {
        self.http2
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Conn<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.downstream.mark_received();
        }
        if self.http2 || !self.downstream.is_between_requests() {
            self.head = 0;
            return result;
        }
        self.head += read;
        if self.head > LONGEST_HEAD {
            return Poll::Ready(Err(io::Error::other("request head of more than 64 KiB")));
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Conn<T> {
    write_through!(io);
}

#[async_trait]
impl<T: AsyncWrite + Unpin + Send> Shutdown for Conn<T> {
    async fn shutdown(&mut self) {
        drop(self.io.shutdown().await);
    }
}

impl<T> UniqueID for Conn<T> {
    fn id(&self) -> UniqueIDType {
        self.fd
    }
}

impl<T> Ssl for Conn<T> {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.ssl.clone()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.http2.then_some(ALPN::H2)
    }
}

impl<T> GetTimingDigest for Conn<T> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl<T> GetProxyDigest for Conn<T> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.proxy.clone()
    }
}

impl<T> GetSocketDigest for Conn<T> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.socket))
    }
}

impl<T> Peek for Conn<T> {}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn writes_arrive_in_order_and_no_buffer_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        let mut replay = Replay::new(Bytes::new(), ours);
        let lengths =
            [1, 700, WRITE_BUFFER - 701, 1, WRITE_BUFFER - 1, WRITE_BUFFER, 3, 5 * WRITE_BUFFER, 40];
        let pieces: Vec<Vec<u8>> = (b'a'..).zip(lengths).map(|(byte, length)| vec![byte; length]).collect();
        let sent = pieces.concat();
        let mut received = vec![0; sent.len()];
        let writing = async {
            for piece in &pieces {
                replay.write_all(piece).await.unwrap();
                assert!(replay.buffer.len() <= WRITE_BUFFER);
            }
            replay.flush().await.unwrap();
        };
        tokio::join!(writing, async { theirs.read_exact(&mut received).await.map(drop).unwrap() });
        assert!(received == sent);
        assert_eq!(replay.buffer.capacity(), 0);
        replay.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
    }
}
