//! Every placement in the head of a request, over both versions of HTTP on both sides, and attempts to get around one.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{self, Client, H1, H2, WAYS, full, nothing, whole};
use crate::upstream::Protocols;
use crate::world::{HOST, OTHER, Options, REAL, STAND_IN, TO_HOST, TO_OTHER, World};

async fn world(provider: &'static str, protocols: Protocols) -> World {
    World::with(Options { protocols, provider, ..Options::default() }).await
}

/// Sends bytes over TLS as HTTP/1.1, and gives all that comes back until the end, or for a few seconds.
async fn exchange(world: &World, bytes: &str) -> String {
    let mut stream = client::tls(world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    stream.write_all(bytes.replace("HOST", HOST).replace("STAND-IN", STAND_IN).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn basic(text: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(text))
}

#[tokio::test]
async fn every_placement_over_every_pair_of_versions() {
    for (provider, path, header, template) in [
        ("kind = \"api-key\"\nplacements = \"header x-api-key\"", "/hello", "x-api-key", "{}"),
        ("kind = \"bearer\"", "/hello?a=%20b", "authorization", "Bearer {}"),
        ("kind = \"basic\"", "/hello", "authorization", "basic x-access-token:{}"),
        (
            "kind = \"basic\"\nplacements = \"basic user\"",
            "/hello",
            "authorization",
            "basic {}:x-oauth-basic",
        ),
        ("kind = \"api-key\"\nplacements = \"cookie sid\"", "/hello", "cookie", "a=b; sid={}; c=\"d e\""),
        ("kind = \"api-key\"\nplacements = \"query key\"", "/hello?a=%20&key={}&key={}&b", "x-kept", "yes"),
        ("kind = \"api-key\"\nplacements = \"path /bot{}/**\"", "/bot{}/send%20it?a=b", "x-kept", "yes"),
        ("kind = \"api-key\"\nplacements = \"header x-key-bin\"", "/hello", "x-key-bin", "binary {}"),
    ] {
        for (alpn, protocols) in WAYS {
            let world = world(provider, protocols).await;
            let value = |credential: &str| {
                let text = template.replace("{}", credential);
                match text.split_once(' ') {
                    Some(("basic", text)) => basic(text),
                    Some(("binary", text)) => BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned(),
                    _ => text,
                }
            };
            let mut client = Client::new(&world, alpn).await;
            let request = client.request(&path.replace("{}", STAND_IN)).header(header, value(STAND_IN));
            let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
            assert_eq!(response.status(), 200, "{provider}");
            let seen = world.upstream.last();
            assert_eq!(seen.uri.path_and_query().unwrap().as_str(), path.replace("{}", REAL), "{provider}");
            assert_eq!(seen.headers[header], value(REAL), "{provider}");
            let line = world.only_line().await;
            assert_eq!(line["secrets"], serde_json::json!(["provider"]));
            for value in [REAL, STAND_IN] {
                assert!(!world.audit_text().contains(value), "{}", world.audit_text());
            }
            if path.starts_with("/bot") {
                assert_eq!(line["path"], "/bot{provider}/send%20it?a=");
            }
        }
    }
}

#[tokio::test]
async fn http2_cookies_become_one_header_for_an_http1_upstream() {
    for (protocols, expected) in [
        (Protocols::Http1, vec![format!("a=b; sid={REAL}")]),
        (Protocols::Http2, vec!["a=b".to_owned(), format!("sid={REAL}")]),
    ] {
        let world = world("kind = \"api-key\"\nplacements = \"cookie sid\"", protocols).await;
        let mut client = Client::new(&world, H2).await;
        let request =
            client.request("/hello").header("cookie", "a=b").header("cookie", format!("sid={STAND_IN}"));
        client.send(request.body(nothing()).unwrap()).await.unwrap();
        let seen = world.upstream.last();
        assert_eq!(seen.headers.get_all("cookie").iter().cloned().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_websocket_protocol_is_swapped_in_the_handshake() {
    let world =
        world("kind = \"api-key\"\nplacements = \"websocket-protocol api-key.\"", Protocols::Both).await;
    let answer = exchange(
        &world,
        "GET /ws HTTP/1.1\r\nHost: HOST\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: realtime, api-key.STAND-IN\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer:?}");
    assert_eq!(world.upstream.last().headers["sec-websocket-protocol"], format!("realtime, api-key.{REAL}"));
}

#[tokio::test]
async fn a_query_and_a_header_are_swapped_in_the_handshake_too() {
    for (provider, query, header) in [
        ("kind = \"api-key\"\nplacements = \"query key\"", "?a=b&key=STAND-IN", "X-Kept: yes"),
        ("kind = \"bearer\"", "", "Authorization: Bearer STAND-IN"),
        ("kind = \"api-key\"\nplacements = \"cookie sid\"", "", "Cookie: sid=STAND-IN"),
    ] {
        let world = world(provider, Protocols::Both).await;
        let head = format!(
            "GET /ws{query} HTTP/1.1\r\nHost: HOST\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{header}\r\n\r\n"
        );
        let answer = exchange(&world, &head).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer:?}");
        assert!(!answer.contains(REAL), "{answer}");
        let seen = world.upstream.last();
        let (name, value) = header.split_once(": ").unwrap();
        assert_eq!(seen.uri, format!("/ws{query}").replace("STAND-IN", REAL).as_str());
        assert_eq!(seen.headers[&name.to_lowercase()], value.replace("STAND-IN", REAL));
    }
}

#[tokio::test]
async fn a_foreign_credential_passes_where_its_secret_says_so() {
    for (more, status) in [("", 403), ("\nforeign = \"allow\"", 200)] {
        let world = World::new().await;
        let provider = format!("kind = \"api-key\"\nplacements = \"header x-api-key\"{more}");
        let declared = crate::world::declared(&provider);
        world.vault.replace(std::sync::Arc::new(crate::world::vault(REAL, &declared)));
        let mut client = Client::new(&world, H1).await;
        let request = client.request("/hello").header("x-api-key", "sk-somebody-elses-own-1");
        let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!(head.status.as_u16(), status, "{more}");
        if status == 200 {
            assert_eq!(world.upstream.last().headers["x-api-key"], "sk-somebody-elses-own-1");
        }
    }
}

#[tokio::test]
async fn methods_and_paths_are_kept_to() {
    let world = world("kind = \"bearer\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]", Protocols::Both).await;
    for (method, path, status) in [
        ("GET", "/v1/a", 200),
        ("POST", "/v1/a", 403),
        ("GET", "/v2", 403),
        ("GET", "/v1/../v2", 403),
        ("GET", "/v1/..%2fv2", 403),
        ("GET", "/v1;/a", 403),
    ] {
        for alpn in [H1, H2] {
            let mut client = Client::new(&world, alpn).await;
            let request =
                client.request(path).method(method).header("authorization", format!("Bearer {STAND_IN}"));
            let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
            assert_eq!(head.status.as_u16(), status, "{method} {path}");
            if status == 403 {
                assert_eq!(head.headers["x-understudy-reason"], "credential-restricted");
                let body = String::from_utf8_lossy(&body).into_owned();
                assert!(
                    body.contains("operator: secret `provider` (secrets.toml:1): it may be used"),
                    "{body}"
                );
            }
        }
    }
    assert_eq!(world.upstream.requests(), 2);
}

#[tokio::test]
async fn trace_is_refused_whatever_the_host() {
    for method in ["TRACE", "TRACK", "Trace"] {
        for alpn in [H1, H2] {
            let world = World::new().await;
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/hello").method(method).body(nothing()).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status(), 403);
            assert_eq!(response.headers()["x-understudy-reason"], "trace-method");
            assert_eq!(world.upstream.requests(), 0);
            assert_eq!(world.only_line().await["reason"], "trace-method");
        }
    }
}

/// Whoever follows it does so with a stand-in, which goes nowhere else.
#[tokio::test]
async fn a_redirect_is_the_clients_to_follow_and_takes_nothing_real_along() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let credential = format!("Bearer {STAND_IN}");
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/moved").header("authorization", &credential);
        let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!((head.status.as_u16(), world.upstream.requests()), (307, 1));
        assert_eq!(head.headers["location"], "https://other.example.com/hello");
        let stream = client::tls(&world, world.connect(TO_OTHER).await, OTHER, alpn).await.unwrap();
        let mut other = Client::over(stream).await;
        let request = other.request_for(OTHER, "/hello").header("authorization", &credential);
        let (head, _) = whole(other.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!(head.headers["x-understudy-reason"], "credential-misdirected");
        assert_eq!(world.upstream.requests(), 1);
    }
}

#[tokio::test]
async fn a_range_is_taken_out_beside_a_swap_only() {
    for (credential, expected) in [(Some(format!("Bearer {STAND_IN}")), 0), (None, 2)] {
        for alpn in [H1, H2] {
            let world = World::new().await;
            let mut client = Client::new(&world, alpn).await;
            let mut request =
                client.request("/hello").header("range", "bytes=0-0").header("if-range", "\"x\"");
            if let Some(credential) = &credential {
                request = request.header("authorization", credential);
            }
            client.send(request.body(nothing()).unwrap()).await.unwrap();
            let seen = world.upstream.last();
            let left = ["range", "if-range"].iter().filter(|name| seen.headers.contains_key(**name)).count();
            assert_eq!(left, expected);
        }
    }
}

#[tokio::test]
async fn hop_by_hop_headers_neither_strip_nor_shadow_what_is_swapped() {
    for (provider, header) in [
        ("kind = \"bearer\"", "Authorization: Bearer "),
        ("kind = \"api-key\"\nplacements = \"header x-api-key\"", "X-Api-Key: "),
        ("kind = \"api-key\"\nplacements = \"cookie sid\"", "Cookie: sid="),
    ] {
        let (name, before) = header.split_once(": ").unwrap();
        for more in [
            format!("Connection: {name}, close\r\n"),
            format!("Connection: close, keep-alive, TE, {name}\r\nTE: trailers\r\n"),
            format!("Connection: close\r\nTE: {name}\r\nKeep-Alive: {name}\r\n"),
            format!("Connection: close, upgrade, {name}\r\nUpgrade: h2c\r\n"),
            "Connection: close\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        ] {
            let world = world(provider, Protocols::Http1).await;
            let chunked = more.contains("chunked");
            let body = format!("1\r\nx\r\n0\r\n{name}: {before}theirs\r\n\r\n");
            let answer = exchange(
                &world,
                &format!(
                    "POST /upload HTTP/1.1\r\nHost: HOST\r\n{header}STAND-IN\r\n{more}{}\r\n{}",
                    if chunked { "" } else { "Content-Length: 0\r\n" },
                    if chunked { &body } else { "" },
                ),
            )
            .await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{more}: {answer}");
            let seen = world.upstream.last();
            let values: Vec<_> = seen.headers.get_all(name).iter().cloned().collect();
            assert_eq!(values, [format!("{before}{REAL}")], "{more}");
        }
    }
}

#[tokio::test]
async fn a_second_credential_header_is_refused() {
    for pair in [["STAND-IN", "theirs"], ["theirs", "STAND-IN"], ["STAND-IN", "STAND-IN"]] {
        for alpn in [H1, H2] {
            let world = World::new().await;
            let mut client = Client::new(&world, alpn).await;
            let mut request = client.request("/hello");
            for value in pair {
                request =
                    request.header("authorization", format!("Bearer {value}").replace("STAND-IN", STAND_IN));
            }
            let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
            assert_eq!(response.status(), 400, "{pair:?}");
            assert_eq!(world.upstream.requests(), 0);
        }
    }
}

#[tokio::test]
async fn a_head_that_can_be_read_in_two_ways_is_refused() {
    for head in [
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer\r\n STAND-IN\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer STAND-IN\r\n\ttheirs\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization : Bearer STAND-IN\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Basic ###\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer STAND-IN\r\nauthorization: Bearer theirs\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer STAND-IN\r\nHost: other.example.com\r\n",
        "GET https://other.example.com/ HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer STAND-IN\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\nUpgrade: authorization\r\nConnection: upgrade\r\nAuthorization: Bearer STAND-IN\r\n",
    ] {
        let world = World::new().await;
        let answer = exchange(&world, &format!("{head}Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{head}: {answer}");
        assert_eq!(world.upstream.requests(), 0, "{head}");
        assert!(!world.audit_text().contains(REAL));
    }
}

#[tokio::test]
async fn an_http2_authority_and_host_that_differ_are_refused() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    for (authority, host) in [(HOST, "other.example.com"), ("other.example.com", HOST)] {
        let request = http::Request::builder().uri(format!("https://{authority}/hello")).header("host", host);
        let request = request.header("authorization", format!("Bearer {STAND_IN}"));
        if let Ok(response) = client.send(request.body(full("")).unwrap()).await {
            assert!(response.status().is_client_error(), "{authority} {host}");
        }
    }
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn a_stand_in_that_cannot_be_resolved_never_goes_upstream() {
    for (provider, path, header, value) in [
        ("kind = \"api-key\"\nplacements = \"query key\"", "/?Key={}", "accept", "*/*"),
        ("kind = \"api-key\"\nplacements = \"query key\"", "/{}?key={}", "accept", "*/*"),
        ("kind = \"api-key\"\nplacements = \"query key\"", "/?key={}", "referer", "/?key={}"),
        ("kind = \"api-key\"\nplacements = \"path /bot{}/**\"", "/bot{}/../x", "accept", "*/*"),
        ("kind = \"api-key\"\nplacements = \"cookie sid\"", "/", "cookie", "sid={}; other={}"),
        ("kind = \"basic\"", "/", "authorization", "Basic {}"),
        ("kind = \"api-key\"\nplacements = \"form /** key\"", "/?key={}", "accept", "*/*"),
    ] {
        for alpn in [H1, H2] {
            let world = world(provider, Protocols::Both).await;
            let mut client = Client::new(&world, alpn).await;
            let fill = |text: &str| text.replace("{}", STAND_IN);
            let request = client.request(&fill(path)).header(header, fill(value)).body(nothing()).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(
                response.headers()["x-understudy-reason"],
                "credential-misplaced",
                "{provider} {path}"
            );
            assert_eq!(world.upstream.connections(), 0);
        }
    }
}
