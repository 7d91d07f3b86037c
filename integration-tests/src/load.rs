//! A load generator for `make bench`: keep-alive requests over TLS, one at a time on each of some connections.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_rustls::TlsConnector;

/// What to ask, how often.
#[derive(Clone, Debug)]
pub struct Load {
    pub host: String,
    pub port: u16,
    pub path: String,
    pub http2: bool,
    pub connections: usize,
    /// Requests on each connection.
    pub requests: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Figures {
    pub requests_per_second: f64,
    pub p50_us: u128,
    pub p99_us: u128,
}

impl Load {
    /// Runs it, trusting the certificates of a PEM file.
    ///
    /// # Errors
    /// If a connection fails or an answer is not 200.
    pub async fn run(&self, bundle: &Path) -> Result<Figures> {
        let tls = client(bundle, if self.http2 { b"h2" } else { b"http/1.1" })?;
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.connections {
            tasks.spawn(self.clone().connection(tls.clone()));
        }
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done??);
        }
        let seconds = start.elapsed().as_secs_f64();
        times.sort_unstable();
        let at = |share: f64| {
            times.get(((times.len() - 1) as f64 * share) as usize).map_or(0, Duration::as_micros)
        };
        ensure!(!times.is_empty(), "no request was made");
        Ok(Figures { requests_per_second: times.len() as f64 / seconds, p50_us: at(0.5), p99_us: at(0.99) })
    }

    async fn connection(self, tls: TlsConnector) -> Result<Vec<Duration>> {
        let socket = tokio::net::TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        let stream = TokioIo::new(tls.connect(self.host.clone().try_into()?, socket).await?);
        let mut times = Vec::with_capacity(self.requests);
        if self.http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            for _ in 0..self.requests {
                let start = Instant::now();
                finish(sender.send_request(self.request()?).await?).await?;
                times.push(start.elapsed());
            }
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            for _ in 0..self.requests {
                let start = Instant::now();
                finish(sender.send_request(self.request()?).await?).await?;
                times.push(start.elapsed());
                sender.ready().await?;
            }
        }
        Ok(times)
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>> {
        let request = Request::get(if self.http2 {
            format!("https://{}:{}{}", self.host, self.port, self.path)
        } else {
            self.path.clone()
        });
        let request = if self.http2 { request } else { request.header("host", &self.host) };
        Ok(request.body(Empty::new())?)
    }
}

async fn finish(response: http::Response<hyper::body::Incoming>) -> Result<()> {
    ensure!(response.status() == 200, "answer {}", response.status());
    response.into_body().collect().await?;
    Ok(())
}

fn client(bundle: &Path, alpn: &[u8]) -> Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(bundle).with_context(|| bundle.display().to_string())? {
        roots.add_parsable_certificates([certificate?]);
    }
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
