//! One process that plays the whole internet: any host name over TLS (its own authority) or plain HTTP, and a DNS
//! resolver. All that arrives is written to a log, so that a test can say what left a container and what did not.

pub mod accounts;
mod authority;
mod dns;
mod git;
mod grpc;
mod log;
mod provider;
mod reflect;
pub mod remote_control;
mod routes;
mod websocket;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub use authority::Authority;
pub use log::{Entry, Log, Request};
pub use provider::{GITHUB_TOKEN, GOOGLE_ACCESS};
pub use routes::byte_at;

/// What the provider listens on and where it writes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of all listeners.
    pub address: std::net::IpAddr,
    /// TLS ports; the ALPN offered is `h2`, `http/1.1`.
    pub tls: Vec<u16>,
    /// TLS ports that offer `http/1.1` alone.
    pub tls_http1: Vec<u16>,
    /// Plain HTTP ports (HTTP/1.1, or HTTP/2 with prior knowledge).
    pub plain: Vec<u16>,
    /// Port of the resolver, UDP and TCP; every A query is answered with `answer`.
    pub dns: Option<u16>,
    /// What the resolver answers.
    pub answer: Ipv4Addr,
    /// Log file, JSON lines (see [`Entry`]).
    pub log: PathBuf,
    /// Where the authority's certificate is written (PEM); it exists once everything listens.
    pub ca_out: PathBuf,
    /// How long access tokens of accounts are good.
    pub token_lifetime: std::time::Duration,
    /// Bare repositories served below `/git/`.
    pub git_root: Option<PathBuf>,
    /// A name whose TLS connections are ended here and passed on to another server, and that server.
    pub relay: Option<(String, SocketAddr)>,
}

/// What each connection's handler knows.
#[derive(Clone)]
struct Shared {
    log: Log,
    accounts: Arc<accounts::Accounts>,
    git_root: Option<PathBuf>,
    relay: Option<(String, SocketAddr)>,
    remote_control: Arc<remote_control::RemoteControl>,
}

/// How a connection came.
#[derive(Clone, Debug, Default)]
struct Arrival {
    port: u16,
    sni: Option<String>,
    alpn: Option<String>,
    tls: bool,
}

/// Serves until the process ends.
///
/// # Errors
/// If a port cannot be bound or a file cannot be written.
pub async fn run(options: Options) -> Result<()> {
    let authority = Authority::new()?;
    let shared = Shared {
        log: Log::create(&options.log)?,
        accounts: Arc::new(accounts::Accounts::new(options.token_lifetime)),
        git_root: options.git_root.clone(),
        relay: options.relay.clone(),
        remote_control: Arc::default(),
    };
    for value in
        [GITHUB_TOKEN, GOOGLE_ACCESS, remote_control::ENVIRONMENT_SECRET, &remote_control::session_token()]
    {
        shared.log.write(&Entry::Minted { value: value.to_owned() });
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (ports, alpn) in [(&options.tls, &["h2", "http/1.1"][..]), (&options.tls_http1, &["http/1.1"][..])] {
        for &port in ports {
            let acceptor = TlsAcceptor::from(authority.server(alpn)?);
            let listener = bind(SocketAddr::new(options.address, port)).await?;
            tasks.spawn(accept(listener, Some(acceptor), shared.clone()));
        }
    }
    for &port in &options.plain {
        let listener = bind(SocketAddr::new(options.address, port)).await?;
        tasks.spawn(accept(listener, None, shared.clone()));
    }
    if let Some(port) = options.dns {
        let resolver = dns::Resolver::bind(SocketAddr::new(options.address, port), options.answer).await?;
        tasks.spawn(resolver.serve(shared.log.clone()));
    }
    let temporary = options.ca_out.with_extension("new");
    std::fs::write(&temporary, authority.certificate_pem())
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, &options.ca_out)
        .with_context(|| format!("cannot write {}", options.ca_out.display()))?;
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Shared) {
    let port = listener.local_addr().map_or(0, |address| address.port());
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            shared.log.write(&Entry::Connection { port });
            if let Err(error) = serve(stream, port, tls, &shared).await {
                shared.log.write(&Entry::Failed { port, error: format!("{error:#}") });
            }
        });
    }
}

async fn serve(stream: TcpStream, port: u16, tls: Option<TlsAcceptor>, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        return speak(stream, Arrival { port, ..Arrival::default() }, shared).await;
    };
    let mut stream = tls.accept(stream).await.context("TLS handshake")?;
    let session = stream.get_ref().1;
    if let Some((_, server)) = shared.relay.as_ref().filter(|(name, _)| session.server_name() == Some(name)) {
        let mut server = TcpStream::connect(server).await.context("the server behind the relay")?;
        tokio::io::copy_bidirectional(&mut stream, &mut server).await.context("relayed")?;
        return Ok(());
    }
    let arrival = Arrival {
        port,
        sni: session.server_name().map(str::to_owned),
        alpn: session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
        tls: true,
    };
    speak(stream, arrival, shared).await
}

async fn speak<S>(stream: S, arrival: Arrival, shared: &Shared) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let arrival = Arc::new(arrival);
    let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
        let (arrival, shared) = (arrival.clone(), shared.clone());
        async move { routes::answer(request, &arrival, &shared).await }
    });
    hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await
        .map_err(|error| anyhow::anyhow!("connection: {error}"))
}
