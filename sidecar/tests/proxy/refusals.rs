//! What is refused, what the client gets to read, and that nothing of it reached an upstream.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, H1, H2, full, nothing, tls, whole};
use crate::upstream::Protocols;
use crate::world::*;

async fn to(world: &World, address: [u8; 4], name: &str, alpn: &[&[u8]]) -> Client {
    Client::over(tls(world, world.connect(address).await, name, alpn).await.unwrap()).await
}

#[tokio::test]
async fn a_refused_host_gets_a_page_and_the_upstream_nothing() {
    for alpn in [H1, H2] {
        for (address, name, reason, status) in [
            (TO_SINK, "evil.example", "host-not-allowed", 403),
            (TO_SINK, HOST, "name-mismatch", 421),
            (TO_FORMERLY, FORMERLY, "host-not-allowed", 403),
            (TO_LITERAL, HOST, "address-literal", 403),
            (TO_NEVER_LOOKED_UP, HOST, "address-literal", 403),
            (TO_OTHER, HOST, "name-mismatch", 421),
            (TO_NOWHERE, NOWHERE, "name-not-found", 502),
        ] {
            let world = World::new().await;
            let mut client = to(&world, address, name, alpn).await;
            let request = client.request_for(name, "/x?key=value").body(nothing()).unwrap();
            let (head, body) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(head.status, status, "{name} {reason}");
            let body = std::str::from_utf8(&body).unwrap();
            assert!(body.contains(&format!("reason: {reason}\n")), "{body}");
            assert!(body.contains("container: agent-a\n") && body.contains(name), "{body}");
            let line = world.only_line().await;
            assert_eq!(line["decision"], "denied");
            assert_eq!(line["reason"], reason);
            assert_eq!(line["host"], name);
            assert_eq!(line["status"], status);
            assert_eq!(world.upstream.connections(), 0);
        }
    }
}

#[tokio::test]
async fn rules_about_methods_and_paths_are_asked_of_every_request() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = to(&world, TO_OTHER, OTHER, alpn).await;
        for (at, (method, path, status, rule, reason)) in [
            ("PATCH", "/a", 403, "rules.toml:2", Some("denied-by-rule")),
            ("GET", "/Denied/%61?key=value", 403, "rules.toml:5", Some("denied-by-rule")),
            ("GET", "/a/../denied/b", 400, "rules.toml:5", Some("path-ambiguous")),
            // Policy lets it pass; the upstream has no certificate of this name.
            ("GET", "/b", 502, "annotation understudy.allow", Some("upstream-untrusted")),
        ]
        .into_iter()
        .enumerate()
        {
            let request = client.request_for(OTHER, path).method(method).body(nothing()).unwrap();
            let (head, _) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(head.status, status, "{method} {path}");
            let line = world.audit(at + 1).await[at].clone();
            assert_eq!((&line["rule"], line["reason"].as_str()), (&rule.into(), reason), "{line}");
        }
    }
}

#[tokio::test]
async fn programs_get_json() {
    let world = World::new().await;
    let mut client = to(&world, TO_SINK, "evil.example", H2).await;
    let request = client.request_for("evil.example", "/").header("accept", "application/json");
    let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    assert_eq!(head.headers["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["type"], "host-not-allowed");
    assert!(body["error"]["operator"].as_str().unwrap().contains("understudy.allow=evil.example"));
}

#[tokio::test]
async fn another_host_on_an_allowed_connection_is_misdirected() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        for host in [OTHER, "evil.example", "192.0.2.1"] {
            let request =
                client.request_for(host, "/hello").header("authorization", format!("Bearer {STAND_IN}"));
            let Ok(response) = client.send(request.body(nothing()).unwrap()).await else {
                // HTTP/1.1: the connection may have been closed after the refusal.
                panic!("no answer for {host}");
            };
            assert_eq!(response.status(), 421, "{host}");
            let (head, _) = whole(response).await;
            assert_eq!(head.headers["x-understudy-reason"], "name-mismatch");
        }
        let (head, _) = client.get("/hello").await;
        assert_eq!(head.status, 200, "the connection's own host still works");
        assert_eq!(world.upstream.requests(), 1);
    }
}

#[tokio::test]
async fn an_untrusted_upstream_is_told_and_gets_nothing() {
    let world = World::with(Options { trusted: false, ..Options::default() }).await;
    let mut client = Client::new(&world, H1).await;
    let request = client
        .request("/hello")
        .header("authorization", format!("Bearer {STAND_IN}"))
        .body(nothing())
        .unwrap();
    let (head, body) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(head.status, 502);
    assert_eq!(head.headers["x-understudy-reason"], "upstream-untrusted");
    assert!(String::from_utf8_lossy(&body).contains("UnknownIssuer"), "{body:?}");
    assert_eq!(world.only_line().await["reason"], "upstream-untrusted");
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn a_trusted_certificate_for_another_name_is_untrusted() {
    let world = World::new().await;
    let mut client = to(&world, TO_OTHER, OTHER, H1).await;
    let request = client.request_for(OTHER, "/hello").body(nothing()).unwrap();
    let (head, _) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(head.headers["x-understudy-reason"], "upstream-untrusted");
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told_from_a_refusal() {
    let limits = understudy::proxy::Limits::default();
    let world =
        World::with(Options { limits, addresses: vec![[127, 0, 0, 9].into()], ..Options::default() }).await;
    let mut client = Client::new(&world, H2).await;
    let (head, body) = client.get("/hello").await;
    assert_eq!(head.status, 502);
    assert!(String::from_utf8_lossy(&body).contains("policy allows this request"), "{body:?}");
}

#[tokio::test]
async fn the_next_address_is_tried_also_for_a_post() {
    let addresses = vec![[127, 0, 0, 9].into(), [127, 0, 0, 8].into(), [127, 0, 0, 1].into()];
    let world = World::with(Options { addresses, ..Options::default() }).await;
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/upload").method("POST").body(full("body")).unwrap();
    let (head, body) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(head.status, 200);
    assert_eq!(body, crate::upstream::digest(b"body"));
    assert_eq!(world.upstream.requests(), 1);
}

#[tokio::test]
async fn a_stand_in_in_the_clear_stays_here() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain(world.connect(TO_HOST).await).await;
    let request = client
        .request("/hello")
        .header("authorization", format!("Bearer {STAND_IN}"))
        .body(nothing())
        .unwrap();
    let (head, _) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(head.headers["x-understudy-reason"], "credential-in-clear");
    assert_eq!(world.only_line().await["secrets"], serde_json::json!(["provider"]));
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn upgrades_to_anything_but_websockets_are_refused_where_no_rule_names_them() {
    let world = World::new().await;
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/ws").header("connection", "upgrade").header("upgrade", "tcp");
    let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    assert_eq!(head.headers["x-understudy-reason"], "upgrade-not-allowed");
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn a_request_that_announces_trailers_is_refused() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/upload").method("POST").header("trailer", "x-checksum");
        let (head, _) = whole(client.send(request.body(full("body")).unwrap()).await.unwrap()).await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (501, &"request-trailers".parse().unwrap())
        );
        assert_eq!(world.upstream.connections(), 0);
    }
}

/// RFC 8441, which is not offered: a client that tries all the same is told at once, and can go on.
#[tokio::test]
async fn a_websocket_over_http2_is_refused_at_once() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    let mut request = client.request("/ws").method("CONNECT").body(nothing()).unwrap();
    request.extensions_mut().insert(hyper::ext::Protocol::from_static("websocket"));
    let answer = tokio::time::timeout(Duration::from_secs(5), client.send(request)).await.unwrap();
    // a client that heeds the settings does not even send it
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status().is_client_error()));
    assert_eq!(world.upstream.connections(), 0);
    assert_eq!(client.get("/echo").await.0.status, 200);
}

/// Whoever uploads to a refused host reads why, instead of seeing the connection reset.
#[tokio::test]
async fn a_refusal_is_readable_after_an_upload() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = to(&world, TO_SINK, "evil.example", alpn).await;
        let body = full(vec![b'x'; 500_000]);
        let request = client.request_for("evil.example", "/").method("POST").body(body).unwrap();
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.status, 403);
    }
}

/// The same for a client that goes on writing after it has read the refusal: it is not cut off in the middle.
#[tokio::test]
async fn an_upload_to_a_refused_host_can_be_finished() {
    let world = World::new().await;
    let mut stream = world.connect(TO_SINK).await;
    let head = "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 600000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 403");
    for _ in 0..600 {
        stream.write_all(&[b'x'; 1000]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("reason: host-not-allowed"));
}

#[tokio::test]
async fn a_client_that_offers_no_protocol_of_ours_is_told_so() {
    let world = World::new().await;
    assert!(tls(&world, world.connect(TO_HOST).await, HOST, &[b"spdy/3"]).await.is_err());
    let line = world.only_line().await;
    assert!(line["detail"].as_str().unwrap().contains("spdy/3"), "{line}");
}

#[tokio::test]
async fn a_client_that_does_not_trust_us_is_audited_with_the_remedy() {
    let world = World::new().await;
    let roots = rustls::RootCertStore::empty();
    let stream = world.connect(TO_HOST).await;
    assert!(crate::client::trusting(roots, stream, HOST, H1).await.is_err());
    let line = world.only_line().await;
    assert_eq!(line["host"], HOST);
    assert!(line["detail"].as_str().unwrap().contains("SSL_CERT_FILE"), "{line}");
}

#[tokio::test]
async fn too_many_connections_are_closed_at_once() {
    let mut options = Options::default();
    options.limits.connections = 2;
    options.limits.first_bytes = Duration::from_secs(60);
    let world = World::with(options).await;
    let _held = [world.connect(TO_HOST).await, world.connect(TO_HOST).await];
    let mut third = world.connect(TO_HOST).await;
    let mut byte = [0];
    let read = third.read(&mut byte).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert_eq!(world.only_line().await["reason"], "overloaded");
}

/// Each can take an upstream connection, and descriptors are there for all containers.
#[tokio::test]
async fn too_many_requests_are_refused_over_all_connections_of_a_container() {
    let silent = [127, 0, 0, 2];
    let mut options = Options { addresses: vec![silent.into()], ..Options::default() };
    options.limits.requests = 3;
    let world = World::with(options).await;
    let _gate =
        tokio::net::TcpListener::bind((std::net::Ipv4Addr::from(silent), world.upstream.port())).await;
    for alpn in [H2, H1, H2] {
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/hello").body(nothing()).unwrap();
        tokio::spawn(async move { client.send(request).await.map(drop) });
    }
    let counters = &world.container.counters;
    while counters.open_requests.load(std::sync::atomic::Ordering::Relaxed) < 3 {
        tokio::task::yield_now().await;
    }
    let (head, _) = Client::new(&world, H1).await.get("/hello").await;
    assert_eq!(
        (head.status.as_u16(), head.headers["x-understudy-reason"].to_str().unwrap()),
        (429, "overloaded")
    );
    while counters.open_requests.load(std::sync::atomic::Ordering::Relaxed) > 3 {
        tokio::task::yield_now().await;
    }
}

/// A name that the operator pinned to this machine, for something else that listens there.
#[tokio::test]
async fn no_name_leads_to_the_sidecars_own_port() {
    for alpn in [H1, H2] {
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        own.set_nonblocking(true).unwrap();
        let port = Some(own.local_addr().unwrap().port());
        let world = World::with(Options { dialled: port, own_port: port, ..Options::default() }).await;
        let (head, body) = Client::new(&world, alpn).await.get("/metrics").await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (403, &"private-address".parse().unwrap())
        );
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("\noperator: for an address of a private network"), "{text}");
        assert_eq!(world.only_line().await["reason"], "private-address");
        assert_eq!(own.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
