//! Rules that allow raw bytes, or only so much and so often.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use understudy::credentials::Rights;
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, H1, H2, Sent, full, nothing, tls, whole};
use crate::world::{HOST, SPLICED, TO_HOST, TO_SINK, TO_SPLICED, World};

fn allow(world: &World, rest: &str) {
    let text = format!("[[allow]]\nhost = {HOST:?}\n{rest}\n");
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
    world.container.set_rights(Rights { policy, ..Rights::default() });
}

/// A server of another protocol, and the container's connection to it.
async fn raw(world: &World, to: [u8; 4]) -> (TcpListener, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    allow(world, &format!("port = {port}\ntcp = true"));
    let client = world.connect_at(world.listener, SocketAddr::new(to.into(), port)).await;
    (server, client)
}

#[tokio::test]
async fn raw_bytes_pass_both_ways_and_are_counted() {
    let world = World::new().await;
    let (server, mut client) = raw(&world, TO_HOST).await;
    client.write_all(b"\x00\x01hello").await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    let mut got = [0; 7];
    peer.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"\x00\x01hello");
    peer.write_all(b"back").await.unwrap();
    drop(peer);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    drop(client);
    assert_eq!(answer, b"back");
    let line = world.only_line().await;
    assert_eq!((&line["decision"], &line["host"]), (&"allowed".into(), &HOST.into()), "{line}");
    assert_eq!((&line["protocol"], &line["rule"]), (&"tcp".into(), &"t.toml:2".into()));
    assert_eq!((&line["bytes-up"], &line["bytes-down"]), (&7.into(), &4.into()));
    assert_eq!(world.container.counters.allowed.load(Relaxed), 1);
}

#[tokio::test]
async fn a_server_may_speak_first() {
    let world = World::new().await;
    let (server, mut client) = raw(&world, TO_HOST).await;
    let (mut peer, _) = server.accept().await.unwrap();
    peer.write_all(b"220 ready\r\n").await.unwrap();
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).await.unwrap();
    client.write_all(b"\x05query").await.unwrap();
    let mut got = [0; 6];
    peer.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"\x05query");
}

#[tokio::test]
async fn http_and_tls_do_not_hide_there() {
    for (silent, bytes) in [
        (false, &b"GET / HTTP/1.1\r\nhost: api.example.com\r\n\r\n"[..]),
        (true, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        (true, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let world = World::new().await;
        let (server, mut client) = raw(&world, TO_HOST).await;
        if silent {
            // Until the sidecar has gone to the server.
            let (mut peer, _) = server.accept().await.unwrap();
            client.write_all(bytes).await.unwrap();
            let mut seen = Vec::new();
            let _ = peer.read_to_end(&mut seen).await;
            assert!(seen.is_empty());
            assert_eq!(world.only_line().await["reason"], "protocol-not-allowed");
        } else {
            client.write_all(bytes).await.unwrap();
            let mut answer = [0; 12];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 403");
            assert!(tokio::time::timeout(Duration::from_millis(50), server.accept()).await.is_err());
        }
    }
    let world = World::new().await;
    let (server, client) = raw(&world, TO_HOST).await;
    let mut client = Client::over(tls(&world, client, HOST, H1).await.unwrap()).await;
    let request = client.request("/").body(nothing()).unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 403);
    assert!(tokio::time::timeout(Duration::from_millis(50), server.accept()).await.is_err());
}

/// What servers take for HTTP or TLS, or for something in front of it.
#[tokio::test]
async fn nothing_that_a_server_takes_for_them_hides_there() {
    for bytes in [
        &b" GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"\tGET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET\x0b/\x0bHTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET\r/\rHTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n\x16\x03\x01",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0\x16\x03\x01",
    ] {
        for silent in [false, true] {
            let world = World::new().await;
            let (server, mut client) = raw(&world, TO_HOST).await;
            let mut seen = Vec::new();
            if silent {
                let (mut peer, _) = server.accept().await.unwrap();
                client.write_all(bytes).await.unwrap();
                let _ = peer.read_to_end(&mut seen).await;
            } else {
                client.write_all(bytes).await.unwrap();
                assert!(tokio::time::timeout(Duration::from_millis(50), server.accept()).await.is_err());
            }
            assert!(seen.is_empty());
            assert_eq!(world.only_line().await["reason"], "malformed", "{}", bytes.escape_ascii());
        }
    }
}

/// In the line: bytes of another protocol are told nothing.
#[tokio::test]
async fn a_denial_has_its_rule_and_what_would_allow_it_before_and_while_bytes_pass() {
    let world = World::new().await;
    let (server, mut client) = raw(&world, TO_HOST).await;
    let port = server.local_addr().unwrap().port();
    client.write_all(b"\x00hello").await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    peer.read_exact(&mut [0; 6]).await.unwrap();
    let denied = format!("port = {port}\ntcp = true\n[[deny]]\nhost = {HOST:?}");
    allow(&world, &denied);
    assert!(!matches!(client.read(&mut [0]).await, Ok(1..)));
    let mut again = world.connect_at(world.listener, SocketAddr::new(TO_HOST.into(), port)).await;
    again.write_all(b"\x00hello").await.unwrap();
    assert!(!matches!(again.read(&mut [0]).await, Ok(1..)));
    allow(&world, "port = 443");
    let mut again = world.connect_at(world.listener, SocketAddr::new(TO_HOST.into(), port)).await;
    again.write_all(b"\x00hello").await.unwrap();
    assert!(!matches!(again.read(&mut [0]).await, Ok(1..)));
    let lines = world.audit(3).await;
    for (line, decision) in lines.iter().zip(["terminated", "denied"]) {
        assert_eq!(
            (&line["decision"], &line["reason"]),
            (&decision.into(), &"denied-by-rule".into()),
            "{line}"
        );
        assert_eq!(line["rule"], "t.toml:6", "{line}");
        assert!(
            line["detail"].as_str().unwrap().contains("change or remove the denial at t.toml:6"),
            "{line}"
        );
    }
    assert_eq!(
        (&lines[2]["reason"], &lines[2]["rule"]),
        (&"protocol-not-allowed".into(), &serde_json::Value::Null)
    );
    assert!(lines[2]["detail"].as_str().unwrap().contains("tcp = true"), "{}", lines[2]);
}

/// A server may be more lenient than we are: what only begins like TLS or HTTP is no other protocol.
#[tokio::test]
async fn what_is_nearly_http_or_tls_does_not_hide_there_either() {
    let hello = crate::raw::hello(Some(HOST));
    let in_records_of_one_byte = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    for bytes in [in_records_of_one_byte, b"\r\nGET  / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()] {
        for silent in [false, true] {
            let world = World::new().await;
            let (server, mut client) = raw(&world, TO_HOST).await;
            if silent {
                let (mut peer, _) = server.accept().await.unwrap();
                client.write_all(&bytes).await.unwrap();
                let mut seen = Vec::new();
                let _ = peer.read_to_end(&mut seen).await;
                assert!(seen.is_empty(), "{}", seen.escape_ascii());
            } else {
                client.write_all(&bytes).await.unwrap();
                assert!(!matches!(client.read(&mut [0]).await, Ok(1..)));
                assert!(tokio::time::timeout(Duration::from_millis(50), server.accept()).await.is_err());
            }
            assert_eq!(world.only_line().await["reason"], "malformed");
        }
    }
}

#[tokio::test]
async fn raw_bytes_need_a_name_that_was_looked_up() {
    let world = World::new().await;
    let (server, mut client) = raw(&world, TO_SINK).await;
    client.write_all(b"\x00\x01").await.unwrap();
    assert!(!matches!(client.read(&mut [0]).await, Ok(1..)));
    assert!(tokio::time::timeout(Duration::from_millis(50), server.accept()).await.is_err());
    assert_eq!(world.only_line().await["reason"], "protocol-not-allowed");
}

/// One whose length is not announced.
fn chunked(bytes: usize) -> Sent {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    for part in [bytes / 2, bytes - bytes / 2] {
        sender.try_send(vec![b'x'; part].into()).unwrap();
    }
    Box::pin(crate::streaming::Chunks(receiver))
}

#[tokio::test]
async fn a_body_is_as_large_as_the_rule_says() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        allow(&world, &format!("port = {}\nmax-body = \"1K\"", world.upstream.port()));
        for (sent, status) in [
            (full(vec![b'x'; 1024]), 200),
            (full(vec![b'x'; 1025]), 413),
            (chunked(1024), 200),
            (chunked(1025), 413),
        ] {
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/sink").method("POST").body(sent).unwrap();
            assert_eq!(whole(client.send(request).await.unwrap()).await.0.status.as_u16(), status);
        }
        let lines = world.audit(4).await;
        assert_eq!(
            (&lines[1]["reason"], &lines[3]["reason"]),
            (&"body-too-large".into(), &"body-too-large".into())
        );
    }
}

/// One that is read before anything is sent is no exception.
#[tokio::test]
async fn a_body_that_is_read_is_as_large_as_the_rule_says_too() {
    let world = World::new().await;
    let provider = "kind = \"api-key\"\nplacements = \"form /upload token\"";
    world.vault.replace(Arc::new(crate::world::vault(crate::world::REAL, &crate::world::declared(provider))));
    allow(&world, &format!("port = {}\nmax-body = \"1K\"", world.upstream.port()));
    for (bytes, status) in [(1024, 200), (1025, 413)] {
        let mut client = Client::new(&world, H1).await;
        let request = client.request("/upload").method("POST");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let (head, _) = whole(client.send(request.body(chunked(bytes)).unwrap()).await.unwrap()).await;
        assert_eq!(head.status.as_u16(), status, "{bytes}");
    }
    assert_eq!(world.upstream.requests(), 1);
}

#[tokio::test]
async fn requests_are_as_many_as_the_rule_says() {
    let world = World::new().await;
    allow(&world, &format!("port = {}\nrate = \"2/h\"", world.upstream.port()));
    let mut client = Client::new(&world, H1).await;
    for status in [200, 200, 429] {
        let request = client.request("/hello").body(nothing()).unwrap();
        assert_eq!(whole(client.send(request).await.unwrap()).await.0.status.as_u16(), status);
    }
    let line = &world.audit(3).await[2];
    assert_eq!((&line["reason"], &line["rule"]), (&"rate-limited".into(), &"t.toml:2".into()), "{line}");
    assert_eq!(world.upstream.requests(), 2);
}

#[tokio::test]
async fn a_raw_connection_that_policy_does_not_allow_any_more_is_ended() {
    let world = World::new().await;
    let (server, mut client) = raw(&world, TO_HOST).await;
    client.write_all(b"\x00\x01").await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    peer.read_exact(&mut [0; 2]).await.unwrap();
    // Another rule that says the same, then none.
    let port = server.local_addr().unwrap().port();
    allow(&world, &format!("port = [{port}, 1]\ntcp = true"));
    peer.write_all(b"x").await.unwrap();
    client.read_exact(&mut [0]).await.unwrap();
    allow(&world, "");
    assert!(!matches!(client.read(&mut [0]).await, Ok(1..)));
    let line = world.only_line().await;
    assert_eq!(line["decision"], "terminated", "{line}");
    assert_eq!(world.container.counters.terminated.load(Relaxed), 1);
}

#[tokio::test]
async fn a_container_does_no_more_than_its_policies_say() {
    for (limit, passing) in [("max-requests = 2", 2), ("max-bytes = 0", 0), ("max-runtime = \"1d\"", 3)] {
        let world = World::new().await;
        let port = world.upstream.port();
        let text = format!("{limit}\n[[allow]]\nhost = {HOST:?}\nport = {port}\n");
        let policy =
            Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
        world.container.set_rights(Rights { policy, ..Rights::default() });
        let mut client = Client::new(&world, H1).await;
        let mut passed = 0;
        for _ in 0..3 {
            let request = client.request("/hello").body(nothing()).unwrap();
            let (head, _) = whole(client.send(request).await.unwrap()).await;
            passed += usize::from(head.status == 200);
            if head.status != 200 {
                assert_eq!(head.headers["x-understudy-reason"], "limit-reached", "{limit}");
            }
        }
        assert_eq!(passed, passing, "{limit}");
    }
}

/// What is passed through counts as a request each, and meets the same end.
#[tokio::test]
async fn what_is_passed_through_is_within_the_same_limits() {
    for spliced in [true, false] {
        let world = World::new().await;
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let (host, to) = if spliced { (SPLICED, TO_SPLICED) } else { (HOST, TO_HOST) };
        let kind = if spliced { "splice" } else { "tcp" };
        let text = format!("max-requests = 1\n[[allow]]\nhost = {host:?}\nport = {port}\n{kind} = true\n");
        let policy =
            Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
        world.container.set_rights(Rights { policy, ..Rights::default() });
        let bytes = if spliced { crate::raw::hello(Some(host)) } else { b"\x00\x01hello".to_vec() };
        let mut first = world.connect_at(world.listener, SocketAddr::new(to.into(), port)).await;
        first.write_all(&bytes).await.unwrap();
        let (mut peer, _) = server.accept().await.unwrap();
        let mut got = vec![0; bytes.len()];
        peer.read_exact(&mut got).await.unwrap();
        assert_eq!(got, bytes);
        let mut second = world.connect_at(world.listener, SocketAddr::new(to.into(), port)).await;
        second.write_all(&bytes).await.unwrap();
        let mut byte = [0];
        let said = tokio::time::timeout(Duration::from_secs(20), second.read(&mut byte)).await;
        assert!(!matches!(said.expect("it is not ended"), Ok(1..)));
        let line = world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["reason"]),
            (&"denied".into(), &"limit-reached".into()),
            "{line}"
        );
        assert!(line["detail"].as_str().unwrap().contains("`max-requests`"), "{line}");
        // What runs goes on.
        peer.write_all(b"on").await.unwrap();
        first.read_exact(&mut [0; 2]).await.unwrap();
    }
}
