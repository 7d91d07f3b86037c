//! Fields of bodies: what the upstream gets is what a direct client would have sent, whole and with its length, or nothing.

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use understudy::credentials::Rights;

use crate::client::{self, Client, H1, H2, Sent, WAYS, full, whole};
use crate::upstream::{Protocols, digest};
use crate::world::{HOST, Options, REAL, STAND_IN, TO_HOST, World};

const PROVIDER: &str =
    "kind = \"api-key\"\nplacements = [\"form /upload secret\", \"json /upload /auth/key\"]";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

async fn world(protocols: Protocols) -> World {
    World::with(Options { protocols, provider: PROVIDER, ..Options::default() }).await
}

/// A body that does not tell its length.
fn unsized_body(text: String) -> Sent {
    struct Unsized(Full<Bytes>);
    impl Body for Unsized {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }
    }
    Box::pin(Unsized(Full::new(text.into())))
}

async fn send(world: &World, alpn: &[&[u8]], kind: &str, body: Sent) -> (http::response::Parts, Bytes) {
    let mut client = Client::new(world, alpn).await;
    let request = client.request("/upload").method("POST").header("content-type", kind);
    let answer = client.send(request.body(body).unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer in time");
    whole(answer.unwrap()).await
}

#[tokio::test]
async fn a_field_is_swapped_over_every_pair_of_versions_with_and_without_a_length() {
    let escaped = STAND_IN.replace('I', "%49");
    let padding = "x".repeat(40_000);
    for (kind, sent, left) in [
        (FORM, format!("a=%20&secret={escaped}&b={padding}"), format!("a=%20&secret={REAL}&b={padding}")),
        (
            JSON,
            format!(
                "{{\"auth\": {{\"key\":\"{}\"}} , \"b\":\"{padding}\"}}",
                STAND_IN.replace('I', "\\u0049")
            ),
            format!("{{\"auth\": {{\"key\":\"{REAL}\"}} , \"b\":\"{padding}\"}}"),
        ),
    ] {
        for (alpn, protocols) in WAYS {
            for known in [true, false] {
                let world = world(protocols).await;
                let body = if known { full(sent.clone()) } else { unsized_body(sent.clone()) };
                let (head, answer) = send(&world, alpn, kind, body).await;
                assert_eq!(head.status, 200, "{answer:?}");
                assert_eq!(answer, digest(left.as_bytes()), "{kind} {alpn:?} {protocols:?} {known}");
                let seen = world.upstream.last();
                let length = seen.headers.get("content-length").map(|value| value.to_str().unwrap());
                assert_eq!(length, known.then_some(left.len().to_string().as_str()));
                let line = world.only_line().await;
                assert_eq!(line["secrets"], serde_json::json!(["provider"]));
                assert_eq!(line["bytes-up"], left.len());
            }
        }
    }
}

#[tokio::test]
async fn a_large_body_with_a_length_is_swapped_whole() {
    for length in [65_000, 65_536, 65_600, 700_000, 1 << 20] {
        for alpn in [H1, H2] {
            let world = world(Protocols::Both).await;
            let padding = "y".repeat(length - format!("secret={STAND_IN}&b=").len());
            let body = format!("secret={STAND_IN}&b={padding}");
            assert_eq!(body.len(), length);
            let (head, answer) = send(&world, alpn, FORM, full(body)).await;
            assert_eq!(head.status, 200, "{length} {answer:?}");
            assert_eq!(answer, digest(format!("secret={REAL}&b={padding}").as_bytes()), "{length} {alpn:?}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_anything_is_sent() {
    let body = |length: usize| format!("secret={STAND_IN}&b={}", "z".repeat(length));
    for (body, said) in [
        (full(body(1 << 20)), "it may have 1 MiB"),
        (unsized_body(body(1 << 16)), "it may have 64 KiB without a Content-Length"),
    ] {
        let world = world(Protocols::Both).await;
        let (head, answer) = send(&world, H1, FORM, body).await;
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(
            (head.status.as_u16(), head.headers["x-understudy-reason"].as_bytes()),
            (413, &b"body-too-large"[..])
        );
        assert!(answer.contains(said), "{answer}");
        assert_eq!(world.upstream.connections(), 0);
    }
    let world = world(Protocols::Both).await;
    let (head, _) = send(&world, H2, FORM, unsized_body(body(1 << 16))).await;
    assert_eq!(head.status, 413);
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn a_body_that_cannot_be_told_is_refused() {
    let deep = format!("{{\"auth\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for (kind, body, status, reason) in [
        (FORM, format!("secret={STAND_IN}&secret=theirs"), 400, "malformed"),
        (FORM, format!("secret={STAND_IN}&a=%"), 400, "malformed"),
        (FORM, "secret=theirs".to_owned(), 403, "foreign-credential"),
        (FORM, format!("a={REAL}"), 403, "real-credential"),
        (JSON, "{\"auth\":".to_owned(), 400, "malformed"),
        (JSON, deep, 400, "malformed"),
        (JSON, format!("{{\"auth\":{{\"key\":\"{STAND_IN}\",\"key\":\"x\"}}}}"), 400, "malformed"),
    ] {
        for alpn in [H1, H2] {
            let world = world(Protocols::Both).await;
            let (head, answer) = send(&world, alpn, kind, full(body.clone())).await;
            assert_eq!(head.status.as_u16(), status, "{answer:?}");
            assert_eq!(head.headers["x-understudy-reason"], reason);
            assert!(!String::from_utf8_lossy(&answer).contains("theirs"));
            assert_eq!(world.upstream.connections(), 0);
            assert!(!world.audit_text().contains(REAL));
        }
    }
}

/// It goes on decoded, with the field swapped.
#[tokio::test]
async fn a_compressed_body_is_undone_and_swapped() {
    let text = |credential: &str| {
        format!("{{\"auth\":{{\"key\":\"{credential}\"}},\"b\":\"{}\"}}", "x".repeat(20_000))
    };
    for (alpn, protocols) in WAYS {
        for coding in ["gzip", "x-gzip", "deflate", "zstd", "br"] {
            let world = world(protocols).await;
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/upload").method("POST").header("content-type", JSON);
            let request = request.header("content-encoding", coding);
            let sent = full(encoded(coding, text(STAND_IN).as_bytes()));
            let (head, body) = whole(client.send(request.body(sent).unwrap()).await.unwrap()).await;
            assert_eq!((head.status.as_u16(), body), (200, digest(text(REAL).as_bytes()).into()), "{coding}");
            assert!(!world.upstream.last().headers.contains_key("content-encoding"));
            assert_eq!(world.only_line().await["secrets"], serde_json::json!(["provider"]));
        }
    }
}

pub(crate) fn encoded(coding: &str, text: &[u8]) -> Vec<u8> {
    match coding {
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::stream::encode_all(text, 3).unwrap(),
        "br" => {
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &text[..], &mut out, &Default::default()).unwrap();
            out
        }
        _ => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
    }
}

#[tokio::test]
async fn a_compressed_body_is_no_way_around() {
    let of =
        |credential: &str| encoded("gzip", format!("{{\"auth\":{{\"key\":\"{credential}\"}}}}").as_bytes());
    let cut = of(STAND_IN);
    for (coding, body, status, reason) in [
        ("gzip", of("theirs"), 403, "foreign-credential"),
        ("gzip", of(REAL), 403, "real-credential"),
        ("gzip", encoded("gzip", b"no json"), 400, "malformed"),
        ("gzip", cut[..cut.len() - 9].to_vec(), 400, "malformed"),
        ("gzip", b"\x1f".to_vec(), 400, "malformed"),
        ("gzip", encoded("gzip", &vec![b' '; 3 << 20]), 413, "body-too-large"),
        ("compress", of(STAND_IN), 415, "body-encoded"),
        ("gzip, gzip", of(STAND_IN), 415, "body-encoded"),
    ] {
        for alpn in [H1, H2] {
            let world = world(Protocols::Both).await;
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/upload").method("POST").header("content-type", JSON);
            let request = request.header("content-encoding", coding).body(full(body.clone())).unwrap();
            let (head, page) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(
                (head.status.as_u16(), head.headers["x-understudy-reason"].as_bytes()),
                (status, reason.as_bytes()),
                "{page:?}"
            );
            assert_eq!(world.upstream.connections(), 0);
        }
    }
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    for alpn in [H1, H2] {
        let world = world(Protocols::Both).await;
        let (head, _) = send(&world, alpn, "text/plain", full("secret=theirs")).await;
        assert_eq!(
            (head.status.as_u16(), head.headers["x-understudy-reason"].as_bytes()),
            (415, &b"body-undeclared"[..])
        );
        // Nor one of which nothing says what it is.
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/upload").method("POST").body(full("secret=theirs")).unwrap();
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.headers["x-understudy-reason"], "body-undeclared");
        assert_eq!(world.upstream.connections(), 0);
        let (head, _) = send(&world, alpn, FORM, full("")).await;
        assert_eq!(head.status, 200);
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_go_on_is_told() {
    let world = world(Protocols::Both).await;
    let mut stream = client::tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    let body = format!("secret={STAND_IN}");
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Type: {FORM}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    let rest = String::from_utf8_lossy(&rest);
    assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{rest}");
    assert!(rest.contains(&digest(format!("secret={REAL}").as_bytes())), "{rest}");
    assert!(!world.upstream.last().headers.contains_key("expect"));
}

#[tokio::test]
async fn what_is_in_force_when_the_body_has_come_counts() {
    for body in [
        format!("4\r\na=bc\r\n7\r\n&secret\r\n1\r\n=\r\n{:x}\r\n{STAND_IN}\r\n", STAND_IN.len()),
        String::new(),
    ] {
        let world = world(Protocols::Both).await;
        let mut stream = client::tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
        let head = format!(
            "POST /upload HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Type: {FORM}\r\n\
             Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 25]).await.unwrap();
        world.container.set_rights(Rights::default());
        stream.write_all(format!("{body}0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(world.upstream.connections(), 0);
    }
}

#[tokio::test]
async fn chunks_that_are_none_end_the_request() {
    let world = world(Protocols::Both).await;
    let mut stream = client::tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {FORM}\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nsecre\r\nzz\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn a_field_of_a_multipart_form_is_swapped_and_files_beside_it_stay() {
    const MULTIPART: &str = "kind = \"api-key\"\nplacements = \"multipart /upload secret\"";
    let body = |value: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\nContent-Type: a/b\r\n\r\n{}\r\n\
             --b\r\nContent-Disposition: form-data; name=\"secret\"\r\n\r\n{value}\r\n--b--\r\n",
            "\0\r\n--c".repeat(8000)
        )
    };
    for (alpn, protocols) in WAYS {
        let world = World::with(Options { protocols, provider: MULTIPART, ..Options::default() }).await;
        let kind = "multipart/form-data; boundary=b";
        for sent in [full(body(STAND_IN)), unsized_body(body(STAND_IN))] {
            let (head, answer) = send(&world, alpn, kind, sent).await;
            assert_eq!((head.status.as_u16(), answer), (200, digest(body(REAL).as_bytes()).into()));
        }
        let (head, _) = send(&world, alpn, kind, full(body("theirs"))).await;
        assert_eq!(head.headers["x-understudy-reason"], "foreign-credential");
    }
}

#[tokio::test]
async fn a_form_that_names_another_method_is_refused_where_methods_matter() {
    const LIMITED: &str = "kind = \"bearer\"\nmethods = [\"GET\", \"POST\"]";
    for alpn in [H1, H2] {
        let world = World::with(Options { provider: LIMITED, ..Options::default() }).await;
        let mut client = Client::new(&world, alpn).await;
        for (body, reason) in [("a=1", ""), ("a=1&_method=DELETE", "credential-restricted")] {
            let request = client.request("/upload").method("POST").header("content-type", FORM);
            let request = request.header("authorization", format!("Bearer {STAND_IN}"));
            let (head, _) = whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await;
            let found = head.headers.get("x-understudy-reason").map_or("", |reason| reason.to_str().unwrap());
            assert_eq!(found, reason, "{body}");
        }
        assert_eq!(world.upstream.requests(), 1);
    }
}

#[tokio::test]
async fn a_declared_download_keeps_its_range() {
    const DOWNLOADS: &str = "kind = \"bearer\"\ndownloads = \"/files/**\"";
    for alpn in [H1, H2] {
        let world = World::with(Options { provider: DOWNLOADS, ..Options::default() }).await;
        let mut client = Client::new(&world, alpn).await;
        for (method, path, kept) in [
            ("GET", "/files/a", true),
            ("GET", "/other/a", false),
            ("GET", "/FILES/a", false),
            ("POST", "/files/a", false),
        ] {
            let request =
                client.request(path).method(method).header("authorization", format!("Bearer {STAND_IN}"));
            let request = request.header("range", "bytes=0-9").body(client::nothing()).unwrap();
            assert_eq!(whole(client.send(request).await.unwrap()).await.0.status, 200);
            assert_eq!(world.upstream.last().headers.contains_key("range"), kept, "{path}");
        }
    }
}
