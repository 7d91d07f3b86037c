//! Sends a request to a token endpoint: over verified TLS, to the endpoint's own host, at an address that was checked as all
//! upstream addresses are. The endpoint is the operator's configuration, so no container's policy is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::record::Token;
use super::token;
use crate::credentials::catalogue::TokenEndpoint;
use crate::current::Current;
use crate::decide::Permit;
use crate::dns::{Hop, Resolver};

/// For all of it: an answer that is not waited for is a login that may be lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// For each address.
const CONNECT: Duration = Duration::from_secs(5);

pub struct Client {
    tls: TlsConnector,
    resolver: Current<Resolver>,
}

/// What is sent. It may hold tokens, so it does not print.
pub struct Call<'e> {
    endpoint: &'e TokenEndpoint,
    method: Method,
    content_type: Option<&'static str>,
    authorization: Option<Zeroizing<String>>,
    body: Zeroizing<Vec<u8>>,
}

/// A status and a body; it may hold tokens, so it does not print.
pub struct Response {
    pub status: u16,
    pub body: Zeroizing<Vec<u8>>,
}

/// No answer came. Whether the provider took the request is not known once it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint}: {what}")]
pub struct SendError {
    endpoint: String,
    what: String,
    /// Whether the provider may have done what it was asked.
    pub was_sent: bool,
}

impl Client {
    /// `roots` are all that the endpoint can be vouched for by.
    pub fn new(
        roots: &[CertificateDer<'static>],
        resolver: Current<Resolver>,
    ) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.clone())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), resolver })
    }

    pub async fn send(&self, call: Call<'_>) -> Result<Response, SendError> {
        let (endpoint, sent) = (call.endpoint, AtomicBool::new(false));
        let error = |what: String| {
            let was_sent = sent.load(Ordering::Relaxed);
            SendError { endpoint: endpoint.to_string(), what, was_sent }
        };
        let exchange = self.exchange(call, &sent);
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(answered) => answered.map_err(error),
            Err(_) => Err(error(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn exchange(&self, call: Call<'_>, sent: &AtomicBool) -> Result<Response, String> {
        let Call { endpoint, method, content_type, authorization, body } = call;
        let told = |error: &dyn std::error::Error| error.to_string();
        let upstream = self.resolver.current().resolve(Permit::of_token_endpoint(endpoint)).await;
        let upstream = upstream.map_err(|denial| format!("{} ({})", denial.detail, denial.remedy))?;
        let socket = connect(upstream.hops()).await?;
        let name = ServerName::try_from(endpoint.host.to_string()).map_err(|error| told(&error))?;
        let stream = self.tls.connect(name, socket).await.map_err(|error| told(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| told(&error))?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(endpoint.path.as_str());
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::from_str(&authorization).map_err(|error| told(&error))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request
            .header(header::HOST, endpoint.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("understudy/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from_owner(body)))
            .map_err(|error| told(&error))?;
        sent.store(true, Ordering::Relaxed);
        let response = sender.send_request(request).await.map_err(|error| told(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), token::MOST + 1).collect().await;
        connection.abort();
        let body = body.map_err(|_| "its answer broke off, or is too large".to_owned())?;
        Ok(Response { status, body: Zeroizing::new(body.to_bytes().to_vec()) })
    }
}

impl<'e> Call<'e> {
    pub fn post(endpoint: &'e TokenEndpoint, content_type: &'static str, body: Zeroizing<Vec<u8>>) -> Self {
        Self { endpoint, method: Method::POST, content_type: Some(content_type), authorization: None, body }
    }

    pub fn get(endpoint: &'e TokenEndpoint) -> Self {
        let (content_type, authorization, body) = Default::default();
        Self { endpoint, method: Method::GET, content_type, authorization, body }
    }

    #[must_use]
    pub fn with_bearer(self, token: &Token) -> Self {
        Self { authorization: Some(Zeroizing::new(format!("Bearer {}", token.expose()))), ..self }
    }
}

async fn connect(hops: &[Hop]) -> Result<TcpStream, String> {
    let mut last = "it has no address".to_owned();
    for hop in hops {
        match tokio::time::timeout(CONNECT, hop.connect()).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = format!("connecting to {} took too long", hop.address()),
        }
    }
    Err(last)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client(..)")
    }
}
