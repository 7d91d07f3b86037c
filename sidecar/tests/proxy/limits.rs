//! Limits of a container's policies that are passed while something runs: all of it ends, whatever its protocol.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use understudy::credentials::Rights;
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, H1, H2, Sent, WAYS, nothing, whole};
use crate::frames;
use crate::upstream::{Protocols, SIZE};
use crate::world::{HOST, Options, SPLICED, TO_HOST, TO_SPLICED, World};

/// Enough for every head of a test, and less than what it moves.
const MOST: usize = 100 << 10;
const BYTES: &str = "max-bytes = \"100K\"";
const RUNTIME: &str = "max-runtime = \"2s\"";

pub(crate) fn limit(world: &World, limit: &str, rest: &str) {
    let port = world.upstream.port();
    let text = format!("{limit}\n[[allow]]\nhost = {HOST:?}\nport = {port}\n{rest}");
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
    world.container.set_rights(Rights { policy, ..(*world.container.rights()).clone() });
}

/// The one line of what was ended by `limit`.
pub(crate) async fn ended_by(world: &World, limit: &str) -> serde_json::Value {
    let line = world.only_line().await;
    assert_eq!(
        (&line["decision"], &line["reason"]),
        (&"terminated".into(), &"limit-reached".into()),
        "{line}"
    );
    let detail = line["detail"].as_str().unwrap();
    let name = limit.split(' ').next().unwrap();
    assert!(detail.contains(&format!("`{name}` allows no more; raise it in policy `")), "{line}");
    assert_eq!(world.container.counters.terminated.load(Relaxed), 1, "{line}");
    line
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it is not ended")
}

/// What arrives before it breaks off, and whether it did.
async fn broken_off(mut body: Incoming) -> (usize, bool) {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => length += frame.data_ref().map_or(0, Bytes::len),
            Err(_) => return (length, true),
        }
    }
    (length, false)
}

async fn status(client: &mut Client) -> u16 {
    let request = client.request("/hello").body(nothing()).unwrap();
    let (head, _) = whole(client.send(request).await.unwrap()).await;
    if head.status == 403 {
        assert_eq!(head.headers["x-understudy-reason"], "limit-reached");
    }
    head.status.as_u16()
}

#[tokio::test]
async fn a_silent_answer_ends_when_the_time_is_over_and_a_raised_limit_lets_new_requests_through() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let begun = Instant::now();
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let response = client.send(client.request("/script").body(nothing()).unwrap()).await.unwrap();
        script.send(Frame::data(Bytes::from("first"))).await.unwrap();
        limit(&world, RUNTIME, "");
        assert_eq!(soon(broken_off(response.into_body())).await, (5, true), "{protocols:?}");
        assert!(begun.elapsed() > Duration::from_millis(1500) && begun.elapsed() < Duration::from_secs(6));
        ended_by(&world, RUNTIME).await;
        let mut client = Client::new(&world, alpn).await;
        assert_eq!(status(&mut client).await, 403);
        // As after a reload of the policy's file.
        limit(&world, "max-runtime = \"4s\"", "");
        assert_eq!(status(&mut client).await, 200, "{protocols:?}");
        let script = world.upstream.script();
        let response = client.send(client.request("/script").body(nothing()).unwrap()).await.unwrap();
        script.send(Frame::data(Bytes::from("again"))).await.unwrap();
        assert_eq!(soon(broken_off(response.into_body())).await, (5, true));
    }
}

#[tokio::test]
async fn a_download_ends_at_the_limit_and_with_it_what_is_silent_beside_it() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        limit(&world, BYTES, "");
        let _script = world.upstream.script();
        let mut silent = Client::new(&world, alpn).await;
        let waiting = silent.send(silent.request("/script").body(nothing()).unwrap()).await.unwrap();
        let mut client = Client::new(&world, alpn).await;
        let response = client.send(client.request("/big").body(nothing()).unwrap()).await.unwrap();
        // Where that happens before the head is passed on, there is a page.
        let refused = response.status() == 403;
        let (length, broken) = soon(broken_off(response.into_body())).await;
        assert!(broken != refused && length <= MOST, "{protocols:?}: {length} {refused} {broken}");
        assert!(world.container.meter.bytes() > MOST as u64);
        assert_eq!(soon(broken_off(waiting.into_body())).await, (0, true), "{protocols:?}");
        let lines = world.audit(2).await;
        assert!(
            lines.iter().all(|line| line["decision"] == "terminated" && line["reason"] == "limit-reached"),
            "{lines:#?}"
        );
        assert_eq!((lines.len(), world.container.counters.terminated.load(Relaxed)), (2, 2));
        let total: u64 = lines.iter().map(|line| line["bytes-down"].as_u64().unwrap()).sum();
        assert!(total <= MOST as u64 && (refused || total >= length as u64), "{total} {length}");
        assert_eq!(status(&mut Client::new(&world, alpn).await).await, 403);
        limit(&world, "max-bytes = \"1G\"", "");
        assert_eq!(status(&mut Client::new(&world, alpn).await).await, 200);
    }
}

#[tokio::test]
async fn an_upload_ends_at_the_limit_and_no_more_reaches_the_upstream() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        limit(&world, BYTES, "");
        let mut client = Client::new(&world, alpn).await;
        let body: Sent = crate::client::full(vec![b'x'; SIZE]);
        let request = client.request("/sink").method("POST").body(body).unwrap();
        // Whether the page still comes is the client's matter: it is in the middle of sending.
        if let Ok(response) = soon(client.send(request)).await {
            assert_eq!(response.headers()["x-understudy-reason"], "limit-reached");
        }
        let line = ended_by(&world, BYTES).await;
        let received = world.upstream.seen.received.lock().unwrap().len();
        assert!(received <= MOST && line["bytes-up"].as_u64().unwrap() <= MOST as u64, "{received}: {line}");
    }
}

/// Neither bodies nor connections, and yet as many bytes as anybody likes.
#[tokio::test]
async fn heads_count_too() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        limit(&world, BYTES, "");
        let mut client = Client::new(&world, alpn).await;
        let mut passed = 0;
        for _ in 0..30 {
            let request = client.request("/hello").header("x-much", "x".repeat(10 << 10));
            let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
            if head.status != 200 {
                assert_eq!(head.headers["x-understudy-reason"], "limit-reached");
                break;
            }
            passed += 1;
        }
        assert!((5..=10).contains(&passed), "{passed}");
        assert_eq!(world.upstream.requests(), passed);
    }
}

#[tokio::test]
async fn a_websocket_and_another_upgrade_end_by_either_limit() {
    for by in [BYTES, RUNTIME] {
        let world = World::new().await;
        let mut tunnel = frames::open(&mut Client::new(&world, H1).await).await;
        limit(&world, by, "");
        let talk = async {
            let payload = vec![b'x'; 1000];
            loop {
                if by == BYTES && tunnel.write_all(&frames::masked(frames::TEXT, &payload)).await.is_err() {
                    return;
                }
                if frames::read(&mut tunnel).await.is_none() {
                    return;
                }
            }
        };
        soon(talk).await;
        ended_by(&world, by).await;

        let world = World::new().await;
        let rule = "paths = \"/switch\"\nupgrade = \"SPDY/3.1\"\n";
        limit(&world, "", rule);
        let mut client = Client::new(&world, H1).await;
        let request = client.request("/switch").method("POST").header("connection", "Upgrade");
        let request = request.header("upgrade", "spdy/3.1").header("x-becomes", "spdy/3.1");
        let response = client.send(request.body(crate::client::full("{}")).unwrap()).await.unwrap();
        let mut tunnel = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        limit(&world, by, rule);
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let talk = async {
            loop {
                if by == BYTES && tunnel.write_all(&line).await.is_err() {
                    return;
                }
                if !matches!(tunnel.read(&mut [0; 1000]).await, Ok(1..)) {
                    return;
                }
            }
        };
        soon(talk).await;
        ended_by(&world, by).await;
    }
}

/// A server of another protocol, or of TLS that is passed through, and the container's connection to it.
async fn relayed(world: &World, spliced: bool, by: &str) -> (TcpStream, TcpStream, usize) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let (host, to, kind) = match spliced {
        true => (SPLICED, TO_SPLICED, "splice"),
        false => (HOST, TO_HOST, "tcp"),
    };
    limit(world, by, &format!("[[allow]]\nhost = {host:?}\nport = {port}\n{kind} = true\n"));
    let first = if spliced { crate::raw::hello(Some(host)) } else { b"\x00\x01hello".to_vec() };
    let mut client = world.connect_at(world.listener, SocketAddr::new(to.into(), port)).await;
    client.write_all(&first).await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    peer.read_exact(&mut vec![0; first.len()]).await.unwrap();
    (client, peer, first.len())
}

/// Writes until that fails.
async fn flood(to: &mut TcpStream) {
    while to.write_all(&[7; 10_000]).await.is_ok() {}
}

/// How many bytes come until the end.
async fn count(from: &mut TcpStream) -> usize {
    let (mut all, mut chunk) = (0, vec![0; 10_000]);
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        all += length;
    }
    all
}

#[tokio::test]
async fn what_is_passed_through_ends_in_the_middle_of_either_direction() {
    for spliced in [true, false] {
        for up in [true, false] {
            let world = World::new().await;
            let (mut client, mut peer, first) = relayed(&world, spliced, BYTES).await;
            let (from, to) = if up { (&mut client, &mut peer) } else { (&mut peer, &mut client) };
            let (_, arrived) = soon(async { tokio::join!(flood(from), count(to)) }).await;
            assert!(arrived + first <= MOST, "{arrived}");
            let line = ended_by(&world, BYTES).await;
            let (up, down) = (line["bytes-up"].as_u64().unwrap(), line["bytes-down"].as_u64().unwrap());
            assert!(up + down <= MOST as u64 && up + down >= (arrived + first) as u64, "{line}");
        }
    }
}

#[tokio::test]
async fn what_is_passed_through_and_silent_ends_when_the_time_is_over() {
    for spliced in [true, false] {
        let world = World::new().await;
        let begun = Instant::now();
        let (mut client, mut peer, _) = relayed(&world, spliced, RUNTIME).await;
        let ends = async { tokio::join!(count(&mut client), count(&mut peer)) };
        assert_eq!(soon(ends).await, (0, 0));
        assert!(begun.elapsed() > Duration::from_millis(1500));
        ended_by(&world, RUNTIME).await;
    }
}

/// The limit comes down on what runs already.
#[tokio::test]
async fn a_limit_that_is_lowered_ends_what_runs() {
    let world = World::new().await;
    let script = world.upstream.script();
    let mut client = Client::new(&world, H2).await;
    let response = client.send(client.request("/script").body(nothing()).unwrap()).await.unwrap();
    for _ in 0..10 {
        script.send(Frame::data(Bytes::from(vec![b'x'; 20_000]))).await.unwrap();
    }
    while world.container.meter.bytes() < MOST as u64 + 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    limit(&world, BYTES, "");
    assert!(soon(broken_off(response.into_body())).await.1);
    ended_by(&world, BYTES).await;
}

/// A body that is read whole before it is judged: its request is judged again, and must not slip through meanwhile.
#[tokio::test]
async fn a_request_whose_body_is_still_awaited_goes_nowhere_when_the_time_is_over() {
    let provider = "kind = \"bearer\"\nplacements = [\"json /upload /key\"]";
    let world = World::with(Options { provider, ..Options::default() }).await;
    limit(&world, RUNTIME, "");
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let mut client = Client::new(&world, H1).await;
    let body: Sent = Box::pin(crate::streaming::Chunks(receiver));
    let request = client.request("/upload").method("POST").header("content-type", "application/json");
    let asking = tokio::spawn(async move { client.send(request.body(body).unwrap()).await });
    sender.send(Bytes::from("{\"key\":")).await.unwrap();
    while world.container.meter.requests() == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    drop(sender.send(Bytes::from("1}")).await);
    drop(sender);
    let response = soon(asking).await.unwrap().unwrap();
    assert_eq!(response.headers()["x-understudy-reason"], "limit-reached");
    assert_eq!(world.upstream.requests(), 0);
    assert_eq!(world.only_line().await["reason"], "limit-reached");
}

#[tokio::test]
async fn as_many_requests_at_once_as_anybody_likes_are_no_more_than_the_limit() {
    for (alpn, protocols) in [(H2, Protocols::Http2), (H1, Protocols::Http1)] {
        let world = Arc::new(World::speaking(protocols).await);
        limit(&world, "max-requests = 7", "");
        let all: Vec<_> = (0..40)
            .map(|_| {
                let world = Arc::clone(&world);
                tokio::spawn(async move { status(&mut Client::new(&world, alpn).await).await })
            })
            .collect();
        let mut passed = 0;
        for one in all {
            passed += usize::from(one.await.unwrap() == 200);
        }
        assert_eq!((passed, world.upstream.requests()), (7, 7));
    }
}
