//! What is answered to which path. Every host name is served alike.
//!
//! | path | answer |
//! |---|---|
//! | `/echo` | the request's method, host, path and headers as JSON |
//! | `/status/N` | that status |
//! | `/sse?n=5&gap=100` | n events, gap milliseconds between them, each sent as it happens |
//! | `/bytes/N` | N bytes, the same every time |
//! | `/upload` | length and SHA-256 of the request's body |
//! | `/backwards` | the request's body, from its last byte to its first |
//! | `/reflect/KIND` | the request's `x-api-key`, in that form (see `reflect`) |
//! | `/ws` | WebSocket that sends back what it receives; with `?reflect` it begins with the request's `x-api-key` |
//! | `/git/…` | repositories, by `git http-backend` |
//! | any path, with gRPC's Content-Type | every message as it comes (see `grpc`) |
//! | `/private/…` | the same ones, to who logs in by the scheme `Basic` |
//! | Remote Control's | see `remote_control` |
//! | the providers' own APIs | see `provider` |
//! | their token endpoints | see `accounts` |

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use ring::digest;
use serde_json::json;

use super::log::{self, Entry};
use super::provider::{self, Asked};
use super::{Arrival, Shared, accounts, git, grpc, reflect, websocket};

pub(super) type Body = BoxBody<Bytes, Infallible>;

/// How much of a body is kept for the routes that look at it; more is only counted and hashed.
const KEPT: usize = 64 << 20;
const LOGGED: usize = 4096;
const CHUNK: usize = 64 << 10;

pub(super) async fn answer(
    mut request: Request<Incoming>,
    arrival: &Arrival,
    shared: &Shared,
) -> Result<Response<Body>> {
    let socket = websocket::wanted(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    if grpc::wanted(&parts.headers) {
        let request = describe(&parts, arrival, &Received::nothing());
        shared.log.write(&Entry::Request(Box::new(request)));
        return grpc::answer(parts.uri.path(), &parts.headers, body);
    }
    let received = Received::read(body).await.context("request body")?;
    shared.log.write(&Entry::Request(Box::new(describe(&parts, arrival, &received))));
    let path = parts.uri.path().to_owned();
    if let Some(socket) = socket {
        if let Some((status, answer)) = accounts(&parts, &received.kept, shared).await {
            return whole(StatusCode::from_u16(status)?, "application/json", answer);
        }
        let greeting = (parts.uri.query() == Some("reflect")).then(|| reflect::value(&parts.headers));
        return websocket::accept(&parts.headers, socket, greeting.transpose()?, move |message| {
            provider::messages(&path, message)
        });
    }
    if let (Some(root), Some(rest)) = (&shared.git_root, path.strip_prefix("/git/")) {
        return git::backend(root, rest, &parts, &received.kept).await;
    }
    if let (Some(root), Some(rest)) = (&shared.git_root, path.strip_prefix("/private/")) {
        let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !authorization.is_some_and(|value| value.starts_with("Basic ")) {
            return challenge();
        }
        return git::backend(root, rest, &parts, &received.kept).await;
    }
    if let Some((status, answer)) = accounts(&parts, &received.kept, shared).await {
        return whole(StatusCode::from_u16(status)?, "application/json", answer);
    }
    if let Some(answer) = shared.remote_control.answer(&parts).await {
        return answer;
    }
    let host = host(&parts);
    let asked = Asked {
        method: parts.method.as_str(),
        host: &host,
        path: &path,
        headers: &parts.headers,
        body: &received.kept,
    };
    if asked.is_unauthorized() {
        return json_answer(StatusCode::UNAUTHORIZED, &provider::unauthorized());
    }
    if let Some(answer) = provider::answer(&asked) {
        return whole(StatusCode::OK, answer.kind, answer.body);
    }
    let mut segments = path.trim_start_matches('/').split('/');
    match (segments.next().unwrap_or_default(), segments.next()) {
        ("echo", None) => json_answer(StatusCode::OK, &echo(&parts, arrival)),
        ("status", Some(code)) => json_answer(code.parse()?, &json!({ "status": code })),
        ("sse", None) => Ok(events(parts.uri.query().unwrap_or_default())),
        ("bytes", Some(length)) => Ok(bytes_of(length.parse().context("/bytes/N")?)),
        ("reflect", Some(kind)) => reflect::answer(kind, &parts.headers),
        ("backwards", None) => {
            let backwards: Vec<u8> = received.kept.iter().rev().copied().collect();
            whole(StatusCode::OK, "text/plain", backwards)
        }
        ("upload", None) => {
            json_answer(StatusCode::OK, &json!({ "length": received.length, "sha256": received.sha256 }))
        }
        _ => json_answer(
            StatusCode::NOT_FOUND,
            &json!({ "error": { "type": "not_found_error", "message": "mock: no route" } }),
        ),
    }
}

/// The token endpoint, and what the token of an account is asked for that is not good (any more).
async fn accounts(parts: &http::request::Parts, body: &[u8], shared: &Shared) -> Option<(u16, String)> {
    let path = parts.uri.path();
    let google = path == "/token" && host(parts) == "oauth2.googleapis.com";
    if google || matches!(path, "/oauth/token" | "/v1/oauth/token") {
        let (status, answer) = shared.accounts.token(body);
        let told: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        for value in
            ["access_token", "refresh_token", "id_token"].iter().filter_map(|field| told[field].as_str())
        {
            shared.log.write(&Entry::Minted { value: value.to_owned() });
        }
        return Some((status, answer));
    }
    let authorization = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let of_account = accounts::is_of_account(authorization);
    let mut refused = of_account && !shared.accounts.takes(authorization);
    if of_account && !refused && shared.accounts.refuses(body) {
        // By then the token is none that was made just now, which nobody would renew.
        tokio::time::sleep(shared.accounts.lifetime / 3).await;
        refused = true;
    }
    let error = json!({ "error": { "code": "token_expired", "type": "authentication_error",
        "message": "Your authentication token has expired." } });
    refused.then(|| (401, error.to_string()))
}

/// Byte `i` of every `/bytes/N` answer.
pub fn byte_at(index: usize) -> u8 {
    (index % 251) as u8
}

pub(super) fn whole(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Result<Response<Body>> {
    Ok(Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(body.into()).boxed())?)
}

/// RFC 7617.
fn challenge() -> Result<Response<Body>> {
    let mut response = whole(StatusCode::UNAUTHORIZED, "text/plain", "")?;
    let scheme = header::HeaderValue::from_static("Basic realm=\"mock\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    Ok(response)
}

fn json_answer(status: StatusCode, value: &serde_json::Value) -> Result<Response<Body>> {
    whole(status, "application/json", value.to_string())
}

struct Received {
    length: usize,
    sha256: String,
    kept: Vec<u8>,
}

impl Received {
    fn nothing() -> Self {
        Self { length: 0, sha256: hex(digest::digest(&digest::SHA256, b"").as_ref()), kept: Vec::new() }
    }

    async fn read(mut body: Incoming) -> Result<Self> {
        let mut context = digest::Context::new(&digest::SHA256);
        let (mut length, mut kept) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            context.update(&data);
            length += data.len();
            let room = KEPT - kept.len();
            kept.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        }
        Ok(Self { length, sha256: hex(context.finish().as_ref()), kept })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn headers(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

fn host(parts: &http::request::Parts) -> String {
    if let Some(authority) = parts.uri.authority() {
        return authority.to_string();
    }
    parts
        .headers
        .get(header::HOST)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

fn describe(parts: &http::request::Parts, arrival: &Arrival, body: &Received) -> log::Request {
    log::Request {
        port: arrival.port,
        tls: arrival.tls,
        sni: arrival.sni.clone(),
        alpn: arrival.alpn.clone(),
        version: format!("{:?}", parts.version),
        method: parts.method.to_string(),
        host: host(parts),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: headers(&parts.headers),
        body_length: body.length,
        body_sha256: body.sha256.clone(),
        body_start: String::from_utf8_lossy(body.kept.get(..LOGGED.min(body.kept.len())).unwrap_or_default())
            .into_owned(),
    }
}

fn echo(parts: &http::request::Parts, arrival: &Arrival) -> serde_json::Value {
    json!({
        "method": parts.method.as_str(), "host": host(parts), "path": parts.uri.path(), "query": parts.uri.query(),
        "version": format!("{:?}", parts.version), "sni": arrival.sni, "headers": headers(&parts.headers),
    })
}

fn parameter(query: &str, name: &str, default: u64) -> u64 {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(default)
}

fn events(query: &str) -> Response<Body> {
    let (count, gap) = (parameter(query, "n", 5), Duration::from_millis(parameter(query, "gap", 100)));
    let stream = futures_util::stream::unfold(0, move |index| async move {
        if index == count {
            return None;
        }
        if index > 0 {
            tokio::time::sleep(gap).await;
        }
        let event = Bytes::from(format!("event: tick\ndata: {index}\n\n"));
        Some((Ok::<_, Infallible>(Frame::data(event)), index + 1))
    });
    let mut response = Response::new(StreamBody::new(Box::pin(stream)).boxed());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response
}

fn bytes_of(length: usize) -> Response<Body> {
    let stream = futures_util::stream::unfold(0, move |sent| async move {
        if sent == length {
            return None;
        }
        let end = length.min(sent + CHUNK);
        let chunk: Vec<u8> = (sent..end).map(byte_at).collect();
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))), end))
    });
    let mut response = Response::new(StreamBody::new(Box::pin(stream)).boxed());
    response.headers_mut().insert(header::CONTENT_LENGTH, header::HeaderValue::from(length));
    response
}
