//! The same text over HTTP, for a scraper that cannot run a command: one path, and nothing that can be changed.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

pub type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// Connections at once; more of them wait.
const AT_ONCE: usize = 64;
/// Of those, as many are answered at once: it is work for the sidecar.
const ANSWERED_AT_ONCE: usize = 2;
/// From a connection to the end of the head of its request.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// From a connection to the end of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_HEAD: usize = 16 * 1024;
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens from now on, and serves on a task of this runtime.
///
/// # Errors
/// If the address cannot be bound.
pub fn start(address: SocketAddr, text: Text) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let bound = listener.local_addr()?;
    tokio::spawn(serve(listener, text));
    Ok(bound)
}

async fn serve(listener: TcpListener, text: Text) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let answering = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (text, answering) = (Arc::clone(&text), Arc::clone(&answering));
                tokio::spawn(async move {
                    // Who is slow or says what is no HTTP gets nothing, and nobody has to know.
                    let _ = tokio::time::timeout(PATIENCE, answer(stream, text, answering)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the metrics port");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, text: Text, answering: Arc<Semaphore>) -> hyper::Result<()> {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let (text, answering) = (Arc::clone(&text), Arc::clone(&answering));
        async move { Ok::<_, Infallible>(respond(&request, text, &answering).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    server.keep_alive(false).max_buf_size(LONGEST_HEAD).serve_connection(TokioIo::new(stream), service).await
}

async fn respond(
    request: &Request<hyper::body::Incoming>,
    text: Text,
    answering: &Semaphore,
) -> Response<Full<Bytes>> {
    let Ok(_place) = answering.acquire().await else { return empty(StatusCode::INTERNAL_SERVER_ERROR) };
    let status = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => StatusCode::OK,
        (_, "/metrics") => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    };
    let (kind, body) = match status {
        // It looks for files.
        StatusCode::OK => match tokio::task::spawn_blocking(move || text()).await {
            Ok(text) => (CONTENT_TYPE, Bytes::from(text)),
            Err(_) => return empty(StatusCode::INTERNAL_SERVER_ERROR),
        },
        _ => ("text/plain", Bytes::from_static(b"GET /metrics\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn said(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    fn begun() -> SocketAddr {
        start("127.0.0.1:0".parse().unwrap(), Arc::new(|| "understudy_x 1\n# EOF\n".to_owned())).unwrap()
    }

    #[tokio::test]
    async fn one_path_is_read_and_nothing_else_does_anything() {
        let at = begun();
        let text = said(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nunderstudy_x 1\n# EOF\n"),
            "{text}"
        );
        assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"), "{text}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "404"),
            (b"GET /metrics/../status HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", "405"),
            (b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
            (b"\x16\x03\x01\x00\x05hello\r\n\r\n", "400"),
        ] {
            let text = said(at, request).await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
            assert!(!text.contains("understudy_x"), "{text}");
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 64 * 1024], b"\r\n\r\n"].concat();
        assert!(!said(at, &long).await.contains("understudy_x"));
    }

    #[tokio::test]
    async fn silent_ones_keep_nobody_out_for_long() {
        let at = begun();
        let mut silent = Vec::new();
        for _ in 0..AT_ONCE / 2 {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        // Some of them keep out nobody, all of them not for long.
        let asked = said(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let text = tokio::time::timeout(HEAD_WITHIN / 2, asked).await.unwrap();
        assert!(text.contains("understudy_x"), "{text}");
        for _ in 0..AT_ONCE {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let asked = said(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let text = tokio::time::timeout(3 * HEAD_WITHIN, asked).await.unwrap();
        assert!(text.contains("understudy_x"), "{text}");
    }
}
