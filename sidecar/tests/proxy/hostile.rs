//! Requests made to confuse: each is refused, or reaches the upstream in one reading only.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, H2, full, nothing, whole};
use crate::upstream::Protocols;
use crate::world::{HOST, TO_HOST, World};

/// Sends bytes on a plain connection and gives all that comes back until the other side ends it, which an error
/// or `Connection: close` makes it do.
async fn exchange(world: &World, bytes: &str) -> String {
    let mut stream = world.connect(TO_HOST).await;
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    for head in [
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        // Digits and nothing else (RFC 9110 section 8.6): the upstream may not take it for the number that it is to Rust.
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: +2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0x2\r\n\r\nab",
        // pingora takes them for one; who comes next may not.
        "POST / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: 2, 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length:\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: nonsense\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        // CVE-2026-2835: HTTP/1.0 has no transfer encodings.
        "POST / HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\n Folded: x\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
    ] {
        let world = World::speaking(Protocols::Plain).await;
        let answer = exchange(&world, &head.replace("HOST", HOST)).await;
        assert!(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4"), "{head:?}: {answer:?}");
        assert_eq!(world.upstream.requests(), 0, "{head:?}");
        assert_eq!(world.only_line().await["decision"], "denied");
    }
}

#[tokio::test]
async fn length_and_encoding_together_are_read_one_way() {
    let world = World::speaking(Protocols::Plain).await;
    let smuggled = "GET /next HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n";
    let request = format!(
        "POST /upload HTTP/1.1\r\nHost: HOST\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
        5 + smuggled.len()
    );
    exchange(&world, &request.replace("HOST", HOST)).await;
    for request in world.upstream.seen.requests.lock().unwrap().iter() {
        let headers = &request.headers;
        assert!(!(headers.contains_key("content-length") && headers.contains_key("transfer-encoding")));
    }
    // What follows the chunked body is a request of its own, judged and audited as such, or nothing.
    let requests = world.upstream.requests();
    assert!(requests >= 1);
    assert_eq!(world.audit(requests).await.len(), requests);
}

/// CVE-2026-2833: bytes after an Upgrade reached the upstream before it had agreed to switch.
#[tokio::test]
async fn bytes_after_an_upgrade_that_the_upstream_declines_are_no_request() {
    let world = World::speaking(Protocols::Plain).await;
    let request = "GET /hello HTTP/1.1\r\nHost: HOST\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
                   GET /smuggled HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    exchange(&world, &request.replace("HOST", HOST)).await;
    let seen = world.upstream.seen.requests.lock().unwrap();
    assert!(seen.iter().all(|request| request.uri.path() == "/hello"), "{seen:?}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_turn() {
    let world = World::speaking(Protocols::Plain).await;
    let one = format!("GET /hello HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let other = "GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let last = format!("GET /hello HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&world, &format!("{one}{other}{last}")).await;
    let statuses: Vec<&str> = answer.matches("HTTP/1.1 200").chain(answer.matches("HTTP/1.1 421")).collect();
    assert_eq!(statuses.len(), 3, "{answer}");
    assert_eq!(world.upstream.requests(), 2);
    assert_eq!(world.audit(3).await.len(), 3);
}

#[tokio::test]
async fn a_connect_without_a_port_is_refused_with_a_page() {
    let world = World::speaking(Protocols::Plain).await;
    let answer = exchange(&world, &format!("CONNECT {HOST} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("reason: proxy-request"), "{answer}");
    assert_eq!(world.upstream.connections(), 0);
    assert_eq!(world.only_line().await["reason"], "proxy-request");
}

#[tokio::test]
async fn an_absolute_request_for_a_host_that_is_not_allowed_is_refused() {
    let world = World::speaking(Protocols::Plain).await;
    let answer = exchange(
        &world,
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("reason: host-not-allowed"), "{answer}");
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn expect_continue_is_answered() {
    let world = World::new().await;
    let stream = world.connect(TO_HOST).await;
    let mut stream = crate::client::tls(&world, stream, HOST, &[b"http/1.1"]).await.unwrap();
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\
             Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream.write_all(b"body").await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
    assert!(rest.contains(&crate::upstream::digest(b"body")), "{rest}");
}

/// CVE-2026-105297: options of our own must not leave the decoded header list without a bound.
#[tokio::test]
async fn a_header_list_beyond_the_limit_is_refused() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    let mut request = client.request("/hello");
    for number in 0..100 {
        request = request.header(format!("x-{number}"), "y".repeat(1000));
    }
    let refused = match client.send(request.body(nothing()).unwrap()).await {
        Ok(response) => response.status() == 431,
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(world.upstream.requests(), 0);
}

/// The HTTP/2 parser looks at the first of two lengths; an HTTP/1.1 upstream may look at the other, and take the rest of
/// the body for a request that nobody judged.
#[tokio::test]
async fn a_doubtful_length_does_not_come_out_of_http2() {
    for lengths in [&["4", "0"][..], &["+4"], &["4, 4"]] {
        refused_in_http2(lengths).await;
    }
}

async fn refused_in_http2(lengths: &[&str]) {
    let world = World::speaking(Protocols::Plain).await;
    let mut stream = world.connect(TO_HOST).await;
    let literal = |name: &str, value: &str| {
        let mut field = vec![0, u8::try_from(name.len()).unwrap()];
        field.extend(name.as_bytes());
        field.push(u8::try_from(value.len()).unwrap());
        field.extend(value.as_bytes());
        field
    };
    // :method POST, :scheme http, :path /, :authority HOST (RFC 7541 section 6).
    let mut block = vec![0x83, 0x86, 0x84, 0x41, u8::try_from(HOST.len()).unwrap()];
    block.extend(HOST.as_bytes());
    block.extend(lengths.iter().flat_map(|length| literal("content-length", length)));
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    frames.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
    frames.extend(block);
    frames.extend([0, 0, 4, 0, 1, 0, 0, 0, 1]);
    frames.extend(b"body");
    stream.write_all(&frames).await.unwrap();
    let mut answer = Vec::new();
    // RST_STREAM of stream 1 with PROTOCOL_ERROR (RFC 9113 section 6.4).
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    while !answer.windows(reset.len()).any(|window| window == reset) {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{lengths:?}: {answer:?}");
    }
    assert_eq!(world.upstream.connections(), 0);
}

/// pingora would buffer 1 MiB of head for each of a container's connections.
#[tokio::test]
async fn an_http1_head_beyond_the_limit_ends_the_connection() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain(world.connect(TO_HOST).await).await;
    for _ in 0..3 {
        let request = client.request("/upload").method("POST").header("x", "y".repeat(40_000));
        let response = client.send(request.body(full(vec![b'z'; 100_000])).unwrap()).await.unwrap();
        assert_eq!(whole(response).await.0.status, 200);
    }
    let request = client.request("/hello").header("x", "y".repeat(100_000)).body(nothing()).unwrap();
    assert!(client.send(request).await.is_err());
    assert_eq!(world.upstream.requests(), 3);
}

/// CVE-2023-44487: opening streams and resetting them at once ends the connection.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let world = World::new().await;
    let stream = world.connect(TO_HOST).await;
    let mut stream = crate::client::tls(&world, stream, HOST, &[b"h2"]).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // :method GET, :scheme https, :path /, :authority HOST (RFC 7541 section 6).
    let mut block = vec![0x82, 0x87, 0x84, 0x41, u8::try_from(HOST.len()).unwrap()];
    block.extend(HOST.as_bytes());
    let mut burst = Vec::new();
    for stream_id in (1_u32..40_000).step_by(2) {
        burst.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 5]);
        burst.extend(stream_id.to_be_bytes());
        burst.extend(&block);
        burst.extend([0, 0, 4, 3, 0]);
        burst.extend(stream_id.to_be_bytes());
        burst.extend(8_u32.to_be_bytes());
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = tokio::spawn(async move { writer.write_all(&burst).await });
    let mut answer = Vec::new();
    let _ = reader.read_to_end(&mut answer).await;
    let _ = writing.await;
    assert!(go_away(&Bytes::from(answer)), "no GOAWAY with ENHANCE_YOUR_CALM");
    assert!(world.upstream.requests() < 20_000 / 2, "{}", world.upstream.requests());
}

fn go_away(mut frames: &[u8]) -> bool {
    while let Some((head, rest)) = frames.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some(payload) = rest.get(..length) else { return false };
        if head[3] == 7 && payload[4..8] == [0, 0, 0, 11] {
            return true;
        }
        frames = &rest[length..];
    }
    false
}
