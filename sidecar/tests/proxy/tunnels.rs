//! Clients that were told of a proxy: CONNECT and absolute-form requests from inside, policed by their target.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, H1, H2, nothing, tls, whole};
use crate::upstream::Protocols;
use crate::world::{
    HOST, OTHER, REAL, SPLICED, STAND_IN, TO_HOST, TO_LITERAL, TO_NEVER_LOOKED_UP, TO_SINK, World,
};

/// Asks for a tunnel on a new connection, on its way to `address`, and reads the answer's head.
async fn connect(world: &World, address: [u8; 4], target: &str) -> (TcpStream, String) {
    let mut stream = world.connect(address).await;
    let head =
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic eDp5\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = head_of(&mut stream).await;
    (stream, answer)
}

async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn established(answer: &str) -> bool {
    answer == "HTTP/1.1 200 Connection established\r\n\r\n"
}

#[tokio::test]
async fn a_tunnel_is_policed_as_a_connection_to_its_target() {
    for alpn in [H1, H2] {
        // Whatever address the client took for the proxy's.
        for address in [TO_LITERAL, TO_SINK, TO_NEVER_LOOKED_UP, TO_HOST] {
            let world = World::new().await;
            let (stream, answer) =
                connect(&world, address, &format!("{HOST}:{}", world.upstream.port())).await;
            assert!(established(&answer), "{answer}");
            let mut client = Client::over(tls(&world, stream, HOST, alpn).await.unwrap()).await;
            let request = client.request("/v1").header("authorization", format!("Bearer {STAND_IN}"));
            let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
            assert_eq!(head.status, 200);
            let seen = world.upstream.last();
            assert_eq!(seen.headers["authorization"], format!("Bearer {REAL}"));
            assert!(!seen.headers.contains_key("proxy-authorization"));
            let line = world.only_line().await;
            assert_eq!((&line["host"], &line["decision"]), (&HOST.into(), &"allowed".into()));
            assert_eq!(line["port"], world.upstream.port());
        }
    }
}

#[tokio::test]
async fn what_the_target_may_not_be_is_told_inside() {
    let world = World::new().await;
    let port = world.upstream.port();
    let address = format!("192.0.2.9:{port}");
    for (target, sni, status, reason) in [
        (format!("evil.example:{port}"), "evil.example", 403, "host-not-allowed"),
        (format!("{HOST}:1"), HOST, 403, "port-not-allowed"),
        (format!("{HOST}:{port}"), OTHER, 421, "name-mismatch"),
        (address, HOST, 403, "address-literal"),
    ] {
        let (stream, answer) = connect(&world, TO_LITERAL, &target).await;
        assert!(established(&answer), "{answer}");
        let mut client = Client::over(tls(&world, stream, sni, H1).await.unwrap()).await;
        let request = client.request_for(sni, "/").body(nothing()).unwrap();
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(
            (head.status.as_u16(), head.headers["x-understudy-reason"].to_str().unwrap()),
            (status, reason),
            "{target}"
        );
    }
    let (mut stream, _) = connect(&world, TO_LITERAL, &format!("{HOST}:{port}")).await;
    stream.write_all(b"EHLO x\r\n").await.unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
    let line = world.audit(5).await.pop().unwrap();
    assert_eq!((&line["reason"], &line["host"]), (&"protocol-not-allowed".into(), &HOST.into()));
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn the_target_may_be_the_address_that_a_name_was_answered_with() {
    let world = World::new().await;
    let (stream, _) = connect(&world, TO_LITERAL, &format!("28.0.1.0:{}", world.upstream.port())).await;
    let mut client = Client::over(tls(&world, stream, HOST, H1).await.unwrap()).await;
    assert_eq!(client.get("/").await.0.status, 200);
}

#[tokio::test]
async fn a_tunnel_is_spliced_where_a_rule_says_so() {
    let world = World::new().await;
    let (stream, _) = connect(&world, TO_LITERAL, &format!("{SPLICED}:{}", world.upstream.port())).await;
    // Our leaf would be trusted, and the upstream's own is not.
    assert!(tls(&world, stream, SPLICED, H1).await.is_err());
    assert_eq!(world.upstream.connections(), 1);
}

#[tokio::test]
async fn one_tunnel_only_and_none_in_tls() {
    let world = World::new().await;
    let target = format!("{HOST}:{}", world.upstream.port());
    let again = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    let (mut nested, _) = connect(&world, TO_LITERAL, &target).await;
    nested.write_all(again.as_bytes()).await.unwrap();
    let mut secure = tls(&world, world.connect(TO_HOST).await, HOST, H1).await.unwrap();
    secure.write_all(again.as_bytes()).await.unwrap();
    let mut second = [0; 12];
    secure.read_exact(&mut second).await.unwrap();
    assert_eq!(&second, b"HTTP/1.1 403");
    assert!(head_of(&mut nested).await.contains("x-understudy-reason: proxy-request"));
    for (bad, host) in [(HOST.to_owned(), HOST.to_owned()), (target.clone(), "evil.example:443".to_owned())] {
        let mut stream = world.connect(TO_LITERAL).await;
        stream.write_all(format!("CONNECT {bad} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        assert!(!established(&head_of(&mut stream).await), "{bad} {host}");
    }
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn a_hello_right_behind_the_connect_is_the_tunnels() {
    let world = World::new().await;
    let mut stream = world.connect(TO_LITERAL).await;
    let mut bytes = format!("CONNECT {HOST}:{} HTTP/1.1\r\n\r\n", world.upstream.port()).into_bytes();
    bytes.extend(crate::raw::hello(Some(HOST)));
    stream.write_all(&bytes).await.unwrap();
    assert!(established(&head_of(&mut stream).await));
    assert_eq!(stream.read_u8().await.unwrap(), 22, "a handshake record");
}

#[tokio::test]
async fn an_absolute_request_is_policed_by_the_host_that_it_names() {
    let world = World::speaking(Protocols::Plain).await;
    let port = world.upstream.port();
    let mut client = Client::plain(world.connect(TO_LITERAL).await).await;
    let ask = |url: String, host: String| {
        http::Request::builder()
            .uri(url)
            .header("host", host)
            .header("proxy-authorization", "Basic eDp5")
            .header("proxy-connection", "keep-alive")
            .body(nothing())
            .unwrap()
    };
    let mut reasons = Vec::new();
    for (url, host) in [
        (format!("http://{OTHER}:{port}/a?b"), format!("{OTHER}:{port}")),
        (format!("http://evil.example:{port}/"), format!("evil.example:{port}")),
        (format!("http://{OTHER}:{port}/denied/x"), format!("{OTHER}:{port}")),
        (format!("http://{OTHER}/"), OTHER.to_owned()),
        (format!("https://{OTHER}:{port}/"), format!("{OTHER}:{port}")),
        (format!("http://{OTHER}:{port}/again"), format!("{OTHER}:{port}")),
    ] {
        let (head, _) = whole(client.send(ask(url, host)).await.unwrap()).await;
        let reason = head.headers.get("x-understudy-reason").map_or("", |reason| reason.to_str().unwrap());
        reasons.push((head.status.as_u16(), reason.to_owned()));
    }
    let expected = [
        (200, ""),
        (403, "host-not-allowed"),
        (403, "denied-by-rule"),
        (403, "port-not-allowed"),
        (403, "proxy-request"),
        (200, ""),
    ];
    assert_eq!(reasons, expected.map(|(status, reason)| (status, reason.to_owned())));
    let seen = world.upstream.seen.requests.lock().unwrap().clone();
    assert_eq!(seen.iter().map(|request| request.uri.to_string()).collect::<Vec<_>>(), ["/a?b", "/again"]);
    for request in seen {
        assert_eq!(request.headers["host"], format!("{OTHER}:{port}"));
        assert!(!request.headers.keys().any(|name| name.as_str().starts_with("proxy-")), "{request:?}");
    }
    let line = &world.audit(6).await[0];
    assert_eq!((&line["host"], &line["port"]), (&OTHER.into(), &port.into()));
    let mut mismatched = Client::plain(world.connect(TO_LITERAL).await).await;
    let answer = mismatched.send(ask(format!("http://{OTHER}:{port}/"), format!("{HOST}:{port}"))).await;
    assert!(answer.is_ok_and(|answer| [400, 421].contains(&answer.status().as_u16())));
    assert_eq!(world.upstream.requests(), 2);
}

#[tokio::test]
async fn in_a_tunnel_an_absolute_request_is_for_the_tunnels_target() {
    let world = World::speaking(Protocols::Plain).await;
    let port = world.upstream.port();
    let (stream, _) = connect(&world, TO_LITERAL, &format!("{OTHER}:{port}")).await;
    let mut client = Client::plain(stream).await;
    for (host, status) in [(OTHER, 200), (HOST, 403)] {
        let request = http::Request::builder()
            .uri(format!("http://{host}:{port}/"))
            .header("host", format!("{host}:{port}"));
        let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!(head.status, status, "{host}");
    }
    assert_eq!(world.upstream.requests(), 1);
}
