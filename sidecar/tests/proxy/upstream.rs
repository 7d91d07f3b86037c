//! A provider that tells what it saw.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::frames;
use crate::key_login::{ANTHROPIC, GITHUB, MISTRAL};
use crate::provider::Accounts;
use crate::world::{FORMERLY, HOST, SPLICED, WELL_KNOWN};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocols {
    Http1,
    Http2,
    Both,
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 with TLS, and another server behind it.
    Relay(SocketAddr),
}

pub(crate) type AnyBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) authority_pem: String,
    /// Certificate and key of [`HOST`], for servers that are not this one.
    pub(crate) leaf_pem: (String, String),
    pub(crate) seen: Arc<Seen>,
}

pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    open: AtomicUsize,
    pub(crate) requests: Mutex<Vec<http::request::Parts>>,
    /// What `/sse` and `/script` send, when the test says so.
    pub(crate) script: Mutex<Option<mpsc::Receiver<Frame<Bytes>>>>,
    /// What `/sink` was sent.
    pub(crate) received: Mutex<Vec<u8>>,
    /// How many requests end before their answer was sent whole.
    pub(crate) broken_off: watch::Sender<usize>,
    pub(crate) accounts: Accounts,
    /// Tokens that are not taken though they are good: login and number.
    expired: Mutex<Vec<(String, u64)>>,
}

impl Seen {
    /// From now on, that access token is not taken.
    pub(crate) fn expire(&self, login: &str, number: u64) {
        self.expired.lock().unwrap().push((login.to_owned(), number));
    }

    fn takes(&self, authorization: &str) -> bool {
        let expired = self.expired.lock().unwrap();
        let over = |(login, number): &(String, u64)| authorization.contains(&format!("F{login}-N{number}-"));
        self.accounts.takes(authorization) && !expired.iter().any(over)
    }
}

impl Upstream {
    /// Access tokens of its accounts are good for `lifetime`.
    pub(crate) async fn start(protocols: Protocols, lifetime: std::time::Duration) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(authority, key);
        let leaf_key = KeyPair::generate().unwrap();
        let names = [HOST, SPLICED, FORMERLY].into_iter().chain(WELL_KNOWN.map(|(name, _)| name));
        let leaf = CertificateParams::new(names.map(str::to_owned).collect::<Vec<_>>())
            .unwrap()
            .signed_by(&leaf_key, &issuer)
            .unwrap();
        let leaf_pem = (leaf.pem(), leaf_key.serialize_pem());
        let leaf_key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], leaf_key)
            .unwrap();
        config.alpn_protocols = match protocols {
            Protocols::Http1 | Protocols::Plain | Protocols::Relay(_) => vec![b"http/1.1".to_vec()],
            Protocols::Http2 => vec![b"h2".to_vec()],
            Protocols::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            connections: AtomicUsize::default(),
            open: AtomicUsize::default(),
            requests: Mutex::default(),
            script: Mutex::default(),
            received: Mutex::default(),
            broken_off: watch::Sender::default(),
            accounts: Accounts::new(lifetime),
            expired: Mutex::default(),
        });
        let acceptor = (protocols != Protocols::Plain).then(|| TlsAcceptor::from(Arc::new(config)));
        let behind = match protocols {
            Protocols::Relay(behind) => Some(behind),
            _ => None,
        };
        tokio::spawn(accept(listener, acceptor, behind, Arc::clone(&seen)));
        Self { address, authority_pem, leaf_pem, seen }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(SeqCst)
    }

    /// Connections that neither side has ended.
    pub(crate) fn open(&self) -> usize {
        self.seen.open.load(SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }

    pub(crate) fn requests_for(&self, path: &str) -> usize {
        self.seen.requests.lock().unwrap().iter().filter(|head| head.uri.path() == path).count()
    }

    pub(crate) fn last(&self) -> http::request::Parts {
        self.seen.requests.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn script(&self) -> mpsc::Sender<Frame<Bytes>> {
        let (sender, receiver) = mpsc::channel(1);
        *self.seen.script.lock().unwrap() = Some(receiver);
        sender
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    behind: Option<SocketAddr>,
    seen: Arc<Seen>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        seen.connections.fetch_add(1, SeqCst);
        seen.open.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            let _ = match behind {
                Some(behind) => relay(stream, acceptor, behind).await,
                None => serve(stream, acceptor, Arc::clone(&seen)).await,
            };
            seen.open.fetch_sub(1, SeqCst);
        });
    }
}

async fn relay(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    behind: SocketAddr,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Some(acceptor) = acceptor else { return Ok(()) };
    let (mut stream, mut behind) = (acceptor.accept(stream).await?, TcpStream::connect(behind).await?);
    tokio::io::copy_bidirectional(&mut stream, &mut behind).await?;
    Ok(())
}

async fn serve(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    seen: Arc<Seen>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
    let Some(acceptor) = acceptor else {
        let http = hyper::server::conn::http1::Builder::new();
        http.serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
        return Ok(());
    };
    let stream = acceptor.accept(stream).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        http.serve_connection(TokioIo::new(stream), service).await?;
    } else {
        let http = hyper::server::conn::http1::Builder::new();
        http.serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    }
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Seen>,
) -> Result<Response<AnyBody>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    seen.requests.lock().unwrap().push(parts.clone());
    let response = match path.as_str() {
        "/oauth/token" => {
            let (status, body) = seen.accounts.token(&body.collect().await?.to_bytes());
            if seen.accounts.is_lost() {
                return Err("the answer is lost".into());
            }
            // As long as another request would need to come in between.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            with_status(status, body)
        }
        "/v1/oauth/token" => {
            let (status, body) = seen.accounts.token(&body.collect().await?.to_bytes());
            with_status(status, body)
        }
        "/login/oauth/access_token" => {
            let body = body.collect().await?.to_bytes();
            let body = String::from_utf8_lossy(&body);
            let asked = ["pending", "denied", "rotating", "of-another-shape", "html"];
            match asked.into_iter().find(|word| body.contains(word)).unwrap_or_default() {
                "pending" => whole(r#"{"error":"authorization_pending","error_description":"x"}"#),
                "denied" => whole(r#"{"error":"access_denied"}"#),
                "html" => whole("<html>"),
                "of-another-shape" => whole(r#"{"access_token":"0123456789abcdefghij"}"#),
                "rotating" => {
                    whole(format!(r#"{{"access_token":"{GITHUB}","refresh_token":"ghr_0123456789abcdef"}}"#))
                }
                _ => whole(format!(
                    r#"{{"access_token":"{GITHUB}","token_type":"bearer","scope":"repo,gist"}}"#
                )),
            }
        }
        "/api/vibe/sign-in/p-1/exchange" => whole(format!(r#"{{"api_key":"{MISTRAL}"}}"#)),
        "/api/oauth/claude_cli/create_api_key" => whole(format!(r#"{{"raw_key":"{ANTHROPIC}"}}"#)),
        "/user" if parts.headers["authorization"] == format!("Bearer {GITHUB}") => {
            whole(r#"{"login":"mock-user","id":7}"#)
        }
        "/never" => with_status(401, "never"),
        "/account/x" => {
            let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            let authorization = authorization.unwrap_or_default().to_owned();
            let length = body.collect().await?.to_bytes().len();
            match seen.takes(&authorization) {
                true => whole(format!("{{\"length\":{length},\"authorization\":\"{authorization}\"}}")),
                false => with_status(401, "{\"error\":\"the token is not taken\"}"),
            }
        }
        "/moved" => {
            let mut response = with_status(307, "moved");
            response.headers_mut().insert("location", "https://other.example.com/hello".parse().unwrap());
            response
        }
        "/big" => whole(pattern(SIZE)),
        "/upload" | "/graphql" => whole(digest(&body.collect().await?.to_bytes())),
        "/sink" => {
            sink(body, &seen).await?;
            whole("sunk")
        }
        "/reversed" => {
            let body = body.collect().await?.to_bytes();
            whole(body.iter().rev().copied().collect::<Vec<u8>>())
        }
        "/echo" => Response::new(Box::pin(Echo(body)) as AnyBody),
        "/script" => {
            let script = seen.script.lock().unwrap().take().unwrap();
            let mut response = Response::new(Box::pin(Script { script, seen, done: false }) as AnyBody);
            let events = "text/event-stream".parse().unwrap();
            let kind = parts.headers.get("content-type").cloned().unwrap_or(events);
            response.headers_mut().insert("content-type", kind);
            response
        }
        "/leading-around" => {
            let mut response = whole("x");
            for name in ["alt-svc", "proxy-status", "proxy-authenticate"] {
                response.headers_mut().insert(name, "h3=\":443\"".parse().unwrap());
            }
            response
        }
        "/switch" => switched(Request::from_parts(parts, body), seen).await?,
        "/ws" => websocket(Request::from_parts(parts, body), seen),
        path if path.starts_with("/mint/") => {
            let status = parts.headers.get("x-status").map_or("200", |status| status.to_str().unwrap());
            let mut response = whole(body.collect().await?.to_bytes());
            *response.status_mut() = status.parse().unwrap();
            response
        }
        path if path == "/token" || path.ends_with("/access_tokens") => {
            let body = body.collect().await?.to_bytes();
            seen.received.lock().unwrap().extend_from_slice(&body);
            let text = String::from_utf8_lossy(&body);
            // Of an account, and not of a key that signs.
            if text.contains("code-of-google") || text.contains("grant_type=refresh_token") {
                let (status, body) = seen.accounts.token(text.replace("%5F", "_").as_bytes());
                return Ok(with_status(status, body));
            }
            crate::assertions::answer(&parts, &body)
        }
        path if path.starts_with("/reflect/") => crate::reflect::answer(&parts),
        "/repeat" => {
            let credential = parts.headers["authorization"].clone();
            let mut response = whole(credential.as_bytes().to_vec());
            response.headers_mut().insert("x-echo", credential);
            response
        }
        "/version" => whole(format!("{:?}", parts.version)),
        _ => whole("hello"),
    };
    Ok(response)
}

pub(crate) const SIZE: usize = 20 << 20;

/// Bytes that do not repeat at any buffer's size.
pub(crate) fn pattern(size: usize) -> Bytes {
    (0..size).map(|n| (n * n / 251 + n) as u8).collect()
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

async fn sink(mut body: Incoming, seen: &Seen) -> Result<(), hyper::Error> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            seen.received.lock().unwrap().extend_from_slice(&data);
        }
    }
    Ok(())
}

fn with_status(status: u16, body: impl Into<Bytes>) -> Response<AnyBody> {
    let mut response = whole(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn whole(body: impl Into<Bytes>) -> Response<AnyBody> {
    Response::new(Box::pin(Full::new(body.into())))
}

/// Echoes each frame, unmasked. A text of `raw ...` is answered with the bytes behind it, as
/// hexadecimal digits from the last one to the first, in which no value is recognised.
fn websocket(mut request: Request<Incoming>, seen: Arc<Seen>) -> Response<AnyBody> {
    if request.headers().get("upgrade").is_none() {
        let mut response = whole("not an upgrade");
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        while let Some((first, payload)) = frames::read(&mut stream).await {
            seen.received.lock().unwrap().extend_from_slice(&payload);
            let answer = match payload.strip_prefix(b"raw ") {
                Some(digits) => frames::from_hex(digits),
                None => frames::frame(first, &payload, None),
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    });
    let mut response =
        Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
    if let Some(credential) = request.headers().get("authorization") {
        response = response.header("x-echo", credential);
    }
    response.body(Box::pin(Full::new(Bytes::new())) as AnyBody).unwrap()
}

/// Becomes what `x-becomes` says, or what was asked for; then gives each line back, from its last byte to the first. The body
/// comes first in what was received.
async fn switched(
    mut request: Request<Incoming>,
    seen: Arc<Seen>,
) -> Result<Response<AnyBody>, hyper::Error> {
    let body = request.body_mut().collect().await?.to_bytes();
    seen.received.lock().unwrap().extend_from_slice(&body);
    let becomes = request.headers().get("x-becomes").or_else(|| request.headers().get("upgrade")).cloned();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = tokio::io::BufReader::new(TokioIo::new(upgraded.await.unwrap()));
        let mut line = Vec::new();
        while matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
            seen.received.lock().unwrap().extend_from_slice(&line);
            line.pop();
            line.reverse();
            line.push(b'\n');
            if stream.write_all(&line).await.is_err() {
                return;
            }
            line.clear();
        }
    });
    let response = Response::builder().status(101).header("connection", "upgrade");
    let response = response.header("upgrade", becomes.unwrap());
    Ok(response.body(Box::pin(Full::new(Bytes::new())) as AnyBody).unwrap())
}

struct Echo(Incoming);

impl Body for Echo {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(context).map(|frame| frame.and_then(Result::ok).map(Ok))
    }
}

struct Script {
    script: mpsc::Receiver<Frame<Bytes>>,
    seen: Arc<Seen>,
    done: bool,
}

impl Body for Script {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.script.poll_recv(context);
        self.done |= matches!(frame, Poll::Ready(None));
        frame.map(|frame| frame.map(Ok))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !self.done {
            self.seen.broken_off.send_modify(|count| *count += 1);
        }
    }
}
