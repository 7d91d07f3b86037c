//! HTTP/1.1 and HTTP/2 on both sides, and what becomes of heads on the way.

use std::sync::Arc;

use http::Version;
use rustls::HandshakeKind;

use crate::client::{self, Client, H1, H2, nothing, whole};
use crate::upstream::Protocols;
use crate::world::{HOST, REAL, STAND_IN, TO_HOST, World};

#[tokio::test]
async fn the_origin_is_spoken_to_as_the_container_speaks() {
    use Protocols::{Both, Http1, Http2};
    let cases = [
        (H1, Version::HTTP_11, Http1, "HTTP/1.1"),
        (H1, Version::HTTP_11, Both, "HTTP/1.1"),
        (H2, Version::HTTP_2, Http2, "HTTP/2.0"),
        (H2, Version::HTTP_2, Both, "HTTP/2.0"),
        (H2, Version::HTTP_2, Http1, "HTTP/1.1"),
    ];
    for (downstream, version, protocols, upstream) in cases {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, downstream).await;
        let (head, body) = client.get("/version").await;
        assert_eq!((head.status.as_u16(), head.version), (200, version));
        assert_eq!(body, upstream);
        let line = world.only_line().await;
        assert_eq!(line["decision"], "allowed");
        assert_eq!(line["host"], HOST);
        assert_eq!(line["status"], 200);
        assert_eq!(line["protocol"], "https");
    }
}

#[tokio::test]
async fn a_connection_made_for_http1_carries_no_http2_request() {
    let world = World::new().await;
    let mut first = Client::new(&world, H1).await;
    assert_eq!(first.get("/version").await.1, "HTTP/1.1");
    let mut second = Client::new(&world, H2).await;
    assert_eq!(second.get("/version").await.1, "HTTP/2.0");
    assert_eq!(first.get("/version").await.1, "HTTP/1.1");
}

/// As it would be without us: the client's own handshake would fail.
#[tokio::test]
async fn an_origin_without_the_containers_version_is_the_upstreams_fault() {
    let world = World::speaking(Protocols::Http2).await;
    let mut client = Client::new(&world, H1).await;
    assert_eq!(client.get("/version").await.0.status, 502);
    assert_eq!(world.only_line().await["decision"], "terminated");
}

#[tokio::test]
async fn http2_is_preferred_if_both_sides_offer_it() {
    let world = World::new().await;
    let mut client = Client::new(&world, &[b"h2", b"http/1.1"]).await;
    assert!(matches!(client, Client::Http2(_)));
    assert_eq!(client.get("/version").await.1, "HTTP/2.0");
}

#[tokio::test]
async fn a_client_without_alpn_speaks_http1() {
    let world = World::new().await;
    let mut client = Client::new(&world, &[]).await;
    assert!(matches!(client, Client::Http1(_)));
    assert_eq!(client.get("/hello").await.1, "hello");
}

#[tokio::test]
async fn plain_http_stays_plain() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain(world.connect(TO_HOST).await).await;
    assert_eq!(client.get("/hello?key=value").await.1, "hello");
    let line = world.only_line().await;
    assert_eq!(line["protocol"], "http");
    assert_eq!(line["path"], "/hello?key=");
}

#[tokio::test]
async fn a_plain_connection_is_never_made_tls_nor_the_other_way() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::new(&world, H1).await;
    assert_eq!(client.get("/hello").await.0.status, 502);
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn a_stand_in_is_swapped_upstream_and_nowhere_else() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let request = client
            .request("/v1/messages?beta=only-the-upstream-sees-this")
            .header("authorization", format!("Bearer {STAND_IN}"))
            .header("x-plain", "kept");
        let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let seen = world.upstream.last();
        assert_eq!(seen.headers["authorization"], format!("Bearer {REAL}"));
        assert_eq!(seen.headers["x-plain"], "kept");
        let line = world.only_line().await;
        assert_eq!(line["secrets"], serde_json::json!(["provider"]));
        let audit = world.audit_text();
        for value in [REAL, STAND_IN, "only-the-upstream-sees-this"] {
            assert!(!audit.contains(value), "{audit}");
        }
    }
}

/// CVE-2026-105299: a hop-by-hop nomination took a header out that the proxy had added.
#[tokio::test]
async fn a_client_cannot_nominate_the_swapped_header_away() {
    let world = World::speaking(Protocols::Http1).await;
    let mut client = Client::new(&world, H1).await;
    let request = client
        .request("/hello")
        .header("authorization", format!("Bearer {STAND_IN}"))
        .header("connection", "authorization");
    client.send(request.body(nothing()).unwrap()).await.unwrap();
    assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {REAL}"));
}

#[tokio::test]
async fn responses_do_not_lead_around_the_sidecar() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    let (head, _) = client.get("/leading-around").await;
    assert_eq!(head.status, 200);
    for name in ["alt-svc", "proxy-status", "proxy-authenticate"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn an_absolute_form_request_to_its_own_host_goes_on_in_origin_form() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain(world.connect(TO_HOST).await).await;
    let authority = format!("{HOST}:{}", world.upstream.port());
    let request = http::Request::builder()
        .uri(format!("http://{authority}/hello?a"))
        .header("host", &authority)
        .header("proxy-connection", "keep-alive");
    let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    assert_eq!((head.status.as_u16(), &body[..]), (200, &b"hello"[..]));
    let seen = world.upstream.last();
    assert_eq!(seen.uri, "/hello?a");
    assert!(!seen.headers.contains_key("proxy-connection"));
}

#[tokio::test]
async fn http2_with_prior_knowledge_works_in_the_clear() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain_http2(world.connect(TO_HOST).await).await;
    let request = http::Request::builder().uri(format!("http://{HOST}/hello")).body(nothing()).unwrap();
    let (head, body) = whole(client.send(request).await.unwrap()).await;
    assert_eq!((head.status.as_u16(), &body[..]), (200, &b"hello"[..]));
    assert_eq!(world.upstream.last().headers["host"], HOST);
}

#[tokio::test]
async fn tls_sessions_resume_for_their_own_name() {
    let world = World::new().await;
    let config = client::config(client::roots(&world), H1);
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let stream = client::secured(Arc::clone(&config), world.connect(TO_HOST).await, HOST).await.unwrap();
        kinds.push(stream.get_ref().1.handshake_kind().unwrap());
        // Tickets arrive with the answer.
        assert_eq!(Client::over(stream).await.get("/hello").await.1, "hello");
    }
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
}
