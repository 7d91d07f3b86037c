//! An origin that reads uploads to their end and then answers, which nginx alone does not do.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::nginx::SINK;

/// Serves until the process ends.
///
/// # Errors
/// If the certificate or the port cannot be used.
pub async fn serve(directory: &Path) -> Result<()> {
    let chain = CertificateDer::pem_file_iter(directory.join("leaf.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(directory.join("leaf.key"))?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let address = SocketAddr::from(([127, 0, 0, 1], SINK));
    let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(connection(socket, acceptor.clone()));
    }
}

/// What goes wrong shows at the client.
async fn connection(socket: TcpStream, acceptor: TlsAcceptor) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().initial_stream_window_size(4 << 20).initial_connection_window_size(8 << 20);
    let _ = server.serve_connection(TokioIo::new(stream), service_fn(swallow)).await;
}

async fn swallow(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            break;
        }
    }
    Ok(Response::new(Empty::new()))
}
