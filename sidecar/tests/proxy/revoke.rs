//! An operator cuts a container off.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Client, H1, H2, WAYS, nothing};
use crate::world::{Options, STAND_IN, TO_HOST, World};

#[tokio::test]
async fn a_running_stream_ends_on_both_sides() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").body(nothing()).unwrap();
        let mut response = client.send(request).await.unwrap();
        script.send(Frame::data(Bytes::from("first"))).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();

        world.container.revoke();

        assert!(!matches!(response.body_mut().frame().await, Some(Ok(_))), "{alpn:?}");
        let mut broken_off = world.upstream.seen.broken_off.subscribe();
        broken_off.wait_for(|count| *count == 1).await.unwrap();
        let line = world.only_line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &"revoked".into()), "{line}");
        assert_eq!(line["bytes-down"], 5);
        assert_eq!(world.container.counters.terminated.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn a_tunnel_and_an_idle_connection_end_and_no_new_one_begins() {
    let world = World::new().await;
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/ws").header("connection", "upgrade").header("upgrade", "websocket");
    let request =
        request.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let mut idle = world.connect(TO_HOST).await;
    while world.container.counters.open_connections.load(Relaxed) < 2 {
        tokio::task::yield_now().await;
    }

    world.container.revoke();

    let mut byte = [0];
    assert!(!matches!(tunnel.read(&mut byte).await, Ok(1..)));
    assert!(!matches!(idle.read(&mut byte).await, Ok(1..)));
    let lines = world.audit(2).await;
    assert!(lines.iter().all(|line| line["reason"] == "revoked"), "{lines:#?}");
    while TcpStream::connect(world.listener).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// HTTP/2 requests run on tasks of their own, which outlive their connection for a moment.
#[tokio::test]
async fn a_request_that_is_still_connecting_is_never_sent() {
    for alpn in [H1, H2] {
        let slow = [127, 0, 0, 2];
        let world = World::with(Options { addresses: vec![slow.into()], ..Options::default() }).await;
        let gate = TcpListener::bind((std::net::Ipv4Addr::from(slow), world.upstream.port())).await.unwrap();
        let mut client = Client::new(&world, alpn).await;
        let authorization = format!("Bearer {STAND_IN}");
        let request =
            client.request("/hello").header("authorization", authorization).body(nothing()).unwrap();
        let asking = tokio::spawn(async move { client.send(request).await });
        let (mut from_sidecar, _) = gate.accept().await.unwrap();

        world.container.revoke();
        assert!(asking.await.unwrap().is_err());
        let mut to_upstream = TcpStream::connect(world.upstream.address).await.unwrap();
        tokio::spawn(async move {
            tokio::io::copy_bidirectional(&mut from_sidecar, &mut to_upstream).await.map(drop)
        });

        assert_eq!(world.only_line().await["reason"], "revoked");
        assert_eq!(world.upstream.requests(), 0, "{alpn:?}");
    }
}
