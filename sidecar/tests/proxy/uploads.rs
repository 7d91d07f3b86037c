//! What a container sends: a real value goes nowhere, wherever it is in a body; a stand-in is only counted.

use std::io::Write;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, H1, H2, WAYS, full, nothing, tls, whole};
use crate::upstream::Protocols;
use crate::world::{BEARER, HOST, OTHER, Options, REAL, STAND_IN, TO_HOST, World, declared, vault};

#[tokio::test]
async fn a_real_value_is_stopped_before_its_end_goes_upstream() {
    let percent: String = REAL.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for (alpn, protocols) in WAYS {
        for value in [REAL.to_owned(), BASE64_STANDARD.encode(format!("x:{REAL}")), percent.clone()] {
            let world = World::speaking(protocols).await;
            let mut client = Client::new(&world, alpn).await;
            let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
            let body: crate::client::Sent = Box::pin(crate::streaming::Chunks(receiver)) as _;
            let request = client.request("/sink").method("POST").body(body).unwrap();
            let (first, rest) = value.split_at(10);
            let rest = rest.to_owned();
            sender.send(Bytes::from(format!("before {first}"))).await.unwrap();
            let sending = tokio::spawn(async move {
                drop(sender.send(Bytes::from(rest + " after")).await);
            });
            let (head, body) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(head.status, 403, "{protocols:?}");
            assert_eq!(head.headers["x-understudy-reason"], "real-credential");
            assert!(String::from_utf8_lossy(&body).contains("in the body"), "{body:?}");
            let line = world.only_line().await;
            assert_eq!(
                (&line["reason"], &line["secrets"][0]),
                (&"real-credential".into(), &"provider".into())
            );
            assert_eq!(world.gateway.audit().ledger().of("provider").leaks, 1);
            let received = world.upstream.seen.received.lock().unwrap().clone();
            assert!(format!("before {first}").as_bytes().starts_with(&received), "{received:?}");
            sending.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_real_value_in_a_small_or_an_encoded_body_never_leaves() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(format!("{{\"prompt\": \"{REAL}\"}}").as_bytes()).unwrap();
    let encoded = encoder.finish().unwrap();
    for (alpn, protocols) in WAYS {
        for (coding, body) in [("identity", REAL.as_bytes().to_vec()), ("gzip", encoded.clone())] {
            let world = World::speaking(protocols).await;
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/sink").method("POST").header("content-encoding", coding);
            let (head, _) = whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await;
            assert_eq!(head.headers["x-understudy-reason"], "real-credential");
            assert!(world.upstream.seen.received.lock().unwrap().is_empty());
            assert_eq!(world.only_line().await["reason"], "real-credential");
        }
    }
}

/// What has a real value gets no second try on the same connection.
#[tokio::test]
async fn a_real_value_in_a_head_ends_the_connection() {
    for (header, reason) in [
        (format!("Authorization: Bearer {REAL}"), "real-credential"),
        ("X-Api-Key: theirs".to_owned(), "foreign-credential"),
    ] {
        let world = World::new().await;
        let mut stream = tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
        let head = format!("GET /hello HTTP/1.1\r\nHost: {HOST}\r\n");
        let last = format!("{head}Connection: close\r\n\r\n");
        stream.write_all(format!("{head}{header}\r\n\r\n{last}").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(reason), "{answer}");
        let goes_on = reason != "real-credential";
        assert_eq!(answer.contains("HTTP/1.1 200"), goes_on, "{answer}");
        assert_eq!(world.upstream.requests(), usize::from(goes_on));
    }
}

/// The client is told so (GOAWAY), and what it has under way comes to its end.
#[tokio::test]
async fn a_real_value_ends_an_http2_connection_when_its_other_streams_have_ended() {
    for (path, sent, goes_on) in [("/hello", REAL, false), ("/sink", REAL, false), ("/hello", "theirs", true)]
    {
        let world = World::speaking(Protocols::Http2).await;
        let mut client = Client::new(&world, H2).await;
        let script = world.upstream.script();
        let request = client.request("/script").body(nothing()).unwrap();
        let mut running = client.send(request).await.unwrap();
        let request = match path {
            "/sink" => client.request(path).method("POST").body(full(sent)).unwrap(),
            _ => client
                .request(path)
                .header("authorization", format!("Bearer {sent}"))
                .body(nothing())
                .unwrap(),
        };
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.status, 403);
        script.send(hyper::body::Frame::data(Bytes::from("still here"))).await.unwrap();
        assert_eq!(running.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "still here");
        drop(script);
        assert!(running.into_body().collect().await.unwrap().to_bytes().is_empty());
        let deadline = std::time::Duration::from_secs(if goes_on { 1 } else { 20 });
        let ended = tokio::time::timeout(deadline, async {
            loop {
                let request = client.request("/hello").body(nothing()).unwrap();
                if client.send(request).await.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        assert_eq!(ended.await.is_err(), goes_on, "{path} {sent}");
    }
}

/// What does not end by itself is cut.
#[tokio::test]
async fn nobody_holds_such_a_connection_open() {
    let limits =
        understudy::proxy::Limits { ending: std::time::Duration::from_millis(300), ..Default::default() };
    let world = World::with(Options { limits, protocols: Protocols::Http2, ..Options::default() }).await;
    let mut client = Client::new(&world, H2).await;
    let _script = world.upstream.script();
    let request = client.request("/script").body(nothing()).unwrap();
    let running = client.send(request).await.unwrap();
    let request =
        client.request("/hello").header("authorization", format!("Bearer {REAL}")).body(nothing()).unwrap();
    assert_eq!(whole(client.send(request).await.unwrap()).await.0.status, 403);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), running.into_body().collect());
    assert!(ended.await.unwrap().is_err());
}

#[tokio::test]
async fn a_bomb_is_refused_as_it_could_hide_anything() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b'x'; 64 << 20]).unwrap();
    encoder.write_all(REAL.as_bytes()).unwrap();
    let bomb = encoder.finish().unwrap();
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/sink").method("POST").header("content-encoding", "gzip");
        let (head, page) = whole(client.send(request.body(full(bomb.clone())).unwrap()).await.unwrap()).await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (413, &"body-too-large".parse().unwrap())
        );
        assert!(String::from_utf8_lossy(&page).contains("grows too much"), "{page:?}");
        assert!(world.upstream.seen.received.lock().unwrap().len() < bomb.len());
    }
}

/// At a host of their secret as at another one: what a program prints must not stop an agent.
#[tokio::test]
async fn stand_ins_in_a_body_go_on_and_are_counted() {
    for ((alpn, protocols), of) in WAYS.into_iter().flat_map(|way| [(way, HOST), (way, OTHER)]) {
        let world = World::speaking(protocols).await;
        let declared = declared(BEARER).replace(HOST, of);
        world.vault.replace(Arc::new(vault(REAL, &declared)));
        let mut client = Client::new(&world, alpn).await;
        let body = format!("{STAND_IN} and {STAND_IN}");
        let request = client.request("/sink").method("POST").body(full(body.clone())).unwrap();
        assert_eq!(whole(client.send(request).await.unwrap()).await.1, "sunk");
        assert_eq!(*world.upstream.seen.received.lock().unwrap(), body.as_bytes());
        let line = world.only_line().await;
        assert_eq!((&line["stand-ins-in-body"], &line["decision"]), (&2.into(), &"allowed".into()));
    }
}

#[tokio::test]
async fn a_body_waits_for_nothing() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let body: crate::client::Sent = Box::pin(crate::streaming::Chunks(receiver)) as _;
        let request = client.request("/sink").method("POST").body(body).unwrap();
        let answer = tokio::spawn(async move { client.send(request).await.map(|answer| answer.status()) });
        let mut sent = 0;
        for chunk in ["ends like one: sk-test", "-", "x"] {
            sender.send(Bytes::from(chunk)).await.unwrap();
            sent += chunk.len();
            while world.upstream.seen.received.lock().unwrap().len() < sent {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        drop(sender);
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
}

/// Where a body ends is in doubt, so it must not end for the upstream.
#[tokio::test]
async fn a_chunk_that_is_none_ends_the_connection_on_both_sides() {
    let world = World::new().await;
    let mut stream = tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    let head = format!("POST /sink HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"4\r\ngood\r\nzz\r\nbad\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!(!String::from_utf8_lossy(&answer).contains("sunk"));
    assert_ne!(world.only_line().await["decision"], "allowed");
    assert!(!world.upstream.seen.received.lock().unwrap().ends_with(b"bad"));
}

/// It is asked before the body is read, and nothing of the search changes that.
#[tokio::test]
async fn a_body_can_wait_for_100_continue() {
    let world = World::new().await;
    let mut stream = tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    let head = format!(
        "POST /sink HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!(String::from_utf8_lossy(&answer).contains("sunk"));
    assert_eq!(*world.upstream.seen.received.lock().unwrap(), b"body");
}
