//! What comes in from outside, to a server inside: over real sockets, which here are of this namespace.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use understudy::connection::published::{Pool, serve};
use understudy::credentials::Rights;
use understudy::publish::Leases;
use understudy_control::{Family, Published};
use understudy_policies::{Policy, PolicySet};

use crate::world::World;

/// A world whose container publishes the port of `inside`, with that many sockets of each family.
struct Door {
    world: World,
    leases: Arc<Leases>,
    ports: Published,
}

impl Door {
    async fn to(inside: u16, sockets: usize) -> Self {
        let world = World::new().await;
        let leases = Leases::new([127, 0, 0, 1].into());
        let all = [(Family::V4, AddressFamily::INET), (Family::V6, AddressFamily::INET6)];
        let made = |(family, domain)| (0..sockets).map(move |_| (family, unconnected(domain)));
        let pool = Pool::new(all.into_iter().flat_map(made).collect());
        let leased = loop {
            // Of another test's, by now, perhaps.
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let wanted = [Published { outside: free, inside }];
            if let Ok(mut leased) = leases.take(&wanted, &world.container) {
                break leased.pop().unwrap();
            }
        };
        let ports = leased.ports;
        tokio::spawn(serve(leased, &pool, &world.container, &world.gateway).unwrap());
        Self { world, leases, ports }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.ports.outside)).await.unwrap()
    }
}

fn unconnected(domain: AddressFamily) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(domain, SocketType::STREAM, flags, None).unwrap()
}

async fn server(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Something goes through, both ways.
async fn works(door: &Door, server: &TcpListener) {
    let mut client = door.connect().await;
    client.write_all(b"ping").await.unwrap();
    let mut inside = server.accept().await.unwrap().0;
    assert!(inside.peer_addr().unwrap().ip().is_loopback());
    let mut heard = [0; 4];
    inside.read_exact(&mut heard).await.unwrap();
    inside.write_all(&heard).await.unwrap();
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"ping");
}

async fn is_cut(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0]).await, Ok(1..))
}

#[tokio::test]
async fn ends_are_passed_on_one_by_one_and_a_line_counts_the_bytes() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 1).await;
    let mut client = door.connect().await;
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut inside = server.accept().await.unwrap().0;
    let mut asked = Vec::new();
    inside.read_to_end(&mut asked).await.unwrap();
    // After the end of the other way.
    inside.write_all(b"late").await.unwrap();
    drop(inside);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!((asked.len(), answer.as_slice()), (18, &b"late"[..]));
    let line = door.world.only_line().await;
    for (key, value) in [
        ("protocol", "published".into()),
        ("decision", "allowed".into()),
        ("host", "localhost".into()),
        ("port", port.into()),
        ("rule", format!("understudy.publish {}", door.ports).into()),
        ("bytes-up", serde_json::Value::from(4)),
        ("bytes-down", 18.into()),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    let counters = &door.world.container.counters;
    assert_eq!((counters.allowed.load(Relaxed), door.world.container.meter.bytes()), (1, 22));
    while counters.open_connections.load(Relaxed) != 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_socket_serves_one_connection_after_the_other_whatever_becomes_of_them() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 1).await;
    works(&door, &server).await;
    // The client breaks off with something unread on both sides.
    let mut client = door.connect().await;
    client.write_all(b"x").await.unwrap();
    let mut inside = server.accept().await.unwrap().0;
    inside.write_all(b"unread").await.unwrap();
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(inside.read(&mut [0; 9]).await.is_ok_and(|length| length == 1));
    assert!(is_cut(&mut inside).await);
    works(&door, &server).await;
    // The server does.
    let mut client = door.connect().await;
    let inside = server.accept().await.unwrap().0;
    SockRef::from(&inside).set_linger(Some(Duration::ZERO)).unwrap();
    drop(inside);
    assert!(is_cut(&mut client).await);
    works(&door, &server).await;
    // The server ends first, and nobody says a word.
    let mut client = door.connect().await;
    drop(server.accept().await.unwrap());
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    drop(client);
    works(&door, &server).await;
}

#[tokio::test]
async fn a_server_on_ipv6_alone_is_reached_and_none_at_all_is_a_reset_with_a_line() {
    let (server, port) = server("[::1]:0").await;
    let door = Door::to(port, 1).await;
    works(&door, &server).await;
    drop(server);
    let mut client = door.connect().await;
    assert!(is_cut(&mut client).await);
    let line = door.world.audit(2).await.pop().unwrap();
    assert_eq!((&line["decision"], &line["reason"]), (&"denied".into(), &"upstream-failed".into()), "{line}");
    // Whoever is outside spends nothing of the container's where nothing inside has answered.
    assert_eq!(door.world.container.meter.requests(), 1);
    let server = TcpListener::bind(("::1", port)).await.unwrap();
    works(&door, &server).await;
}

#[tokio::test]
async fn while_all_sockets_are_in_use_the_next_connection_waits() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 2).await;
    let (one, two, mut three) = (door.connect().await, door.connect().await, door.connect().await);
    three.write_all(b"three").await.unwrap();
    let (first, second) = (server.accept().await.unwrap().0, server.accept().await.unwrap().0);
    drop((one, two, first, second));
    let mut third = server.accept().await.unwrap().0;
    let mut heard = [0; 5];
    third.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"three");
}

/// A closed socket would deliver it, and one that is disconnected throws it away.
#[tokio::test]
async fn what_a_slow_server_has_not_read_yet_arrives_though_it_says_no_more_itself() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 1).await;
    let client = door.connect().await;
    // The last of it stays on the way until the server reads.
    let mut inside = server.accept().await.unwrap().0;
    inside.shutdown().await.unwrap();
    let sent = vec![7; 1024 * 1024];
    let length = sent.len();
    let send = tokio::spawn(async move {
        let mut client = client;
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        is_cut(&mut client).await
    });
    let mut received = 0;
    let mut chunk = vec![0; 16 * 1024];
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match inside.read(&mut chunk).await.unwrap() {
            0 => break,
            more => received += more,
        }
    }
    assert_eq!(received, length);
    assert!(send.await.unwrap());
}

#[tokio::test]
async fn a_revocation_cuts_what_is_open_and_frees_the_port() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 1).await;
    let mut client = door.connect().await;
    let mut inside = server.accept().await.unwrap().0;
    assert!(door.leases.check(&[door.ports], &"b".repeat(64).parse().unwrap()).is_err());

    door.world.container.revoke();

    assert!(is_cut(&mut client).await && is_cut(&mut inside).await);
    let line = door.world.only_line().await;
    assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &"revoked".into()), "{line}");
    let (leases, ports, container) = (door.leases, door.ports, World::new().await.container);
    tokio::task::spawn_blocking(move || leases.take(&[ports], &container).unwrap()).await.unwrap();
}

#[tokio::test]
async fn one_that_may_do_nothing_any_more_is_not_reached_either() {
    let (server, port) = server("127.0.0.1:0").await;
    let door = Door::to(port, 1).await;
    let mut client = door.connect().await;
    let mut inside = server.accept().await.unwrap().0;
    let failed = PolicySet::combine(vec![Arc::new(Policy::failed("p", "annotation forbidden".to_owned()))]);
    door.world.container.set_rights(Rights { policy: Arc::new(failed), ..Rights::default() });
    assert!(is_cut(&mut client).await && is_cut(&mut inside).await);
    assert!(is_cut(&mut door.connect().await).await);
    let lines = door.world.audit(2).await;
    assert!(lines.iter().all(|line| line["reason"] == "policy-failed"), "{lines:#?}");
}

#[tokio::test]
async fn a_limit_that_is_passed_ends_it() {
    for limit in ["max-bytes = \"100K\"", "max-runtime = \"2s\""] {
        let (server, port) = server("127.0.0.1:0").await;
        let door = Door::to(port, 1).await;
        works(&door, &server).await;
        door.world.audit(1).await;
        let mut client = door.connect().await;
        client.write_all(b"x").await.unwrap();
        let mut inside = server.accept().await.unwrap().0;
        crate::limits::limit(&door.world, limit, "");
        if limit.contains("bytes") {
            let flood =
                async { while client.write_all(&[7; 10_000]).await.is_ok() && is_open(&mut inside).await {} };
            tokio::time::timeout(Duration::from_secs(20), flood).await.expect("it is not ended");
        }
        assert!(is_cut(&mut client).await);
        let line = door.world.audit(2).await.pop().unwrap();
        assert_eq!(
            (&line["decision"], &line["reason"]),
            (&"terminated".into(), &"limit-reached".into()),
            "{line}"
        );
    }
}

/// Takes what is there.
async fn is_open(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 20_000]).await, Ok(1..))
}
