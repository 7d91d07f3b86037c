//! Bytes that keep flowing: events, big bodies, trailers, tunnels.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::{HeaderMap, Request};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, H1, H2, WAYS, ends, full, nothing, whole};
use crate::frames;
use crate::upstream::{Protocols, SIZE, digest, pattern};
use crate::world::World;

#[tokio::test]
async fn each_event_arrives_before_the_next_one_is_sent() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").body(nothing()).unwrap();
        let mut response = client.send(request).await.unwrap();
        for number in 0..5 {
            let event = format!("data: {number}\n\n");
            script.send(Frame::data(Bytes::from(event.clone()))).await.unwrap();
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), event);
        }
        drop(script);
        assert!(ends(response.body_mut()).await);
    }
}

#[tokio::test]
async fn big_downloads_are_identical() {
    let wanted = digest(&pattern(SIZE));
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let (_, body) = client.get("/big").await;
        assert_eq!(digest(&body), wanted);
        assert_eq!(world.only_line().await["bytes-down"], SIZE);
    }
}

#[tokio::test]
async fn big_uploads_are_identical() {
    let body = pattern(SIZE);
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/upload").method("POST").body(full(body.clone())).unwrap();
        let (head, answer) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.status, 200);
        assert_eq!(answer, digest(&body));
        assert_eq!(world.only_line().await["bytes-up"], SIZE);
    }
}

#[tokio::test]
async fn little_is_held_for_a_container_that_does_not_read() {
    const CHUNK: usize = 64 << 10;
    let world = World::speaking(Protocols::Http2).await;
    let script = world.upstream.script();
    let mut client = Client::new(&world, H2).await;
    let request = client.request("/script").body(nothing()).unwrap();
    let response = client.send(request).await.unwrap();
    let chunk = Bytes::from(vec![b'x'; CHUNK]);
    let mut sent = 0;
    while sent < 32 << 20 {
        let sending = script.send(Frame::data(chunk.clone()));
        if tokio::time::timeout(Duration::from_secs(1), sending).await.is_err() {
            break;
        }
        sent += CHUNK;
    }
    // 2 MiB are the client's own window.
    assert!(sent < 6 << 20, "{sent}");
    drop(response);
}

#[tokio::test]
async fn trailers_arrive_over_http2() {
    let world = World::speaking(Protocols::Http2).await;
    let script = world.upstream.script();
    let mut client = Client::new(&world, H2).await;
    let request = client.request("/script").method("POST").header("te", "trailers");
    let request = request.header("content-type", "application/grpc").body(full("ask")).unwrap();
    let response = client.send(request).await.unwrap();
    script.send(Frame::data(Bytes::from("\0\0\0\0\x06answer"))).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    script.send(Frame::trailers(trailers)).await.unwrap();
    drop(script);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(world.upstream.last().headers["te"], "trailers");
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_also_if_the_upstream_offers_http2() {
    for protocols in [Protocols::Both, Protocols::Http1] {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, H1).await;
        // The pool holds an HTTP/2 connection by now, which must not be used.
        Client::new(&world, H2).await.get("/hello").await;
        let mut tunnel = frames::open(&mut client).await;
        for message in ["first", "second, longer than the first"] {
            tunnel.write_all(&frames::masked(frames::TEXT, message.as_bytes())).await.unwrap();
            let echo = frames::read(&mut tunnel).await.unwrap();
            assert_eq!(echo, (frames::TEXT, message.as_bytes().to_vec()));
        }
        tunnel.shutdown().await.unwrap();
        drop(tunnel);
        let lines = world.audit(2).await;
        assert_eq!(lines[1]["status"], 101);
        assert_eq!(lines[1]["bytes-up"], 6 + 5 + 6 + 29);
        assert_eq!(lines[1]["bytes-down"], 2 + 5 + 2 + 29);
    }
}

#[tokio::test]
async fn a_body_can_be_sent_while_the_answer_comes() {
    for (alpn, protocols) in [(H1, Protocols::Http1), (H2, Protocols::Http2)] {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let request: Request<crate::client::Sent> =
            client.request("/echo").method("POST").body(Box::pin(Chunks(receiver)) as _).unwrap();
        let mut response = client.send(request).await.unwrap();
        for chunk in ["one", "two", "three"] {
            sender.send(Bytes::from(chunk)).await.unwrap();
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), chunk);
        }
        drop(sender);
        assert!(ends(response.body_mut()).await);
    }
}

pub(crate) struct Chunks(pub(crate) tokio::sync::mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// The upstream has answered, and the client still sends: it must get to read the answer, and may go on.
#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_read() {
    for alpn in [H1, H2] {
        let world = World::speaking(Protocols::Http1).await;
        let mut client = Client::new(&world, alpn).await;
        for _ in 0..2 {
            let body = full(vec![b'x'; 300_000]);
            let request = client.request("/hello").method("POST").body(body).unwrap();
            assert_eq!(whole(client.send(request).await.unwrap()).await.0.status, 200);
        }
    }
}
