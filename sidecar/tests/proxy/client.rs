//! A client that trusts the sidecar's authority alone.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::upstream::Protocols;
use crate::world::{HOST, TO_HOST, World};

pub(crate) type Sent = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

pub(crate) enum Client {
    Http1(hyper::client::conn::http1::SendRequest<Sent>),
    Http2(hyper::client::conn::http2::SendRequest<Sent>),
}

pub(crate) const H1: &[&[u8]] = &[b"http/1.1"];
pub(crate) const H2: &[&[u8]] = &[b"h2"];

/// What a container and its upstream may speak with each other: an origin of an HTTP/1.1 client is never asked for HTTP/2.
pub(crate) const WAYS: [(&[&[u8]], Protocols); 3] =
    [(H1, Protocols::Http1), (H2, Protocols::Http1), (H2, Protocols::Http2)];

impl Client {
    /// To the allowed host, over TLS.
    pub(crate) async fn new(world: &World, alpn: &[&[u8]]) -> Self {
        let stream = tls(world, world.connect(TO_HOST).await, HOST, alpn).await.unwrap();
        Self::over(stream).await
    }

    pub(crate) async fn at(world: &World, listener: SocketAddr, alpn: &[&[u8]]) -> Self {
        let destination = SocketAddr::new(TO_HOST.into(), world.upstream.port());
        let stream = world.connect_at(listener, destination).await;
        Self::over(tls(world, stream, HOST, alpn).await.unwrap()).await
    }

    pub(crate) async fn over(stream: TlsStream<TcpStream>) -> Self {
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let io = TokioIo::new(stream);
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            Self::over_http1(stream).await
        }
    }

    pub(crate) async fn plain(stream: TcpStream) -> Self {
        Self::over_http1(stream).await
    }

    /// HTTP/2 with prior knowledge.
    pub(crate) async fn plain_http2(stream: TcpStream) -> Self {
        let io = TokioIo::new(stream);
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self::Http2(sender)
    }

    async fn over_http1<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static>(
        stream: S,
    ) -> Self {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        Self::Http1(sender)
    }

    pub(crate) async fn send(&mut self, request: Request<Sent>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// A request to [`HOST`], in the form that this version has.
    pub(crate) fn request(&self, path: &str) -> http::request::Builder {
        self.request_for(HOST, path)
    }

    pub(crate) fn request_for(&self, host: &str, path: &str) -> http::request::Builder {
        match self {
            Self::Http1(_) => Request::builder().uri(path).header("host", host),
            Self::Http2(_) => Request::builder().uri(format!("https://{host}{path}")),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> (http::response::Parts, Bytes) {
        let request = self.request(path).body(nothing()).unwrap();
        whole(self.send(request).await.unwrap()).await
    }
}

pub(crate) async fn tls(
    world: &World,
    stream: TcpStream,
    name: &str,
    alpn: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    trusting(roots(world), stream, name, alpn).await
}

pub(crate) fn roots(world: &World) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(world.authority_pem.as_bytes()).unwrap()).unwrap();
    roots
}

pub(crate) async fn trusting(
    roots: rustls::RootCertStore,
    stream: TcpStream,
    name: &str,
    alpn: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    secured(config(roots, alpn), stream, name).await
}

pub(crate) async fn secured(
    config: Arc<rustls::ClientConfig>,
    stream: TcpStream,
    name: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(config).connect(name, stream).await
}

/// Sessions are kept in it and offered again.
pub(crate) fn config(roots: rustls::RootCertStore, alpn: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

pub(crate) async fn whole(response: Response<Incoming>) -> (http::response::Parts, Bytes) {
    let (parts, body) = response.into_parts();
    (parts, body.collect().await.unwrap().to_bytes())
}

/// Whether the body ends here, apart from empty frames.
pub(crate) async fn ends(body: &mut Incoming) -> bool {
    while let Some(frame) = body.frame().await {
        if !frame.is_ok_and(|frame| frame.data_ref().is_some_and(Bytes::is_empty)) {
            return false;
        }
    }
    true
}

pub(crate) fn nothing() -> Sent {
    full("")
}

pub(crate) fn full(body: impl Into<Bytes>) -> Sent {
    Box::pin(Full::new(body.into()))
}
