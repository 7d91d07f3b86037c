//! Connections that become something else than HTTP (RFC 9110 section 7.8), by a rule that names what.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use understudy::credentials::Rights;
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, H1, full, nothing, whole};
use crate::frames::Tunnel;
use crate::world::{HOST, REAL, STAND_IN, World};

fn rights(world: &World, rule: &str) {
    let port = world.upstream.port();
    let text = format!("[[allow]]\nhost = {HOST:?}\nport = {port}\npaths = \"/switch\"\n{rule}\n");
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
    world.container.set_rights(Rights { policy, ..(*world.container.rights()).clone() });
}

async fn world() -> World {
    let world = World::new().await;
    rights(&world, "upgrade = \"SPDY/3.1\"");
    world
}

async fn ask(world: &World, protocol: &str, becomes: &str) -> hyper::Response<hyper::body::Incoming> {
    let mut client = Client::new(world, H1).await;
    let request = client.request("/switch").method("POST").header("connection", "Upgrade");
    let request = request.header("upgrade", protocol).header("x-becomes", becomes);
    let request = request.header("authorization", format!("Bearer {STAND_IN}"));
    client.send(request.body(full("{}")).unwrap()).await.unwrap()
}

async fn open(world: &World) -> BufReader<Tunnel> {
    let response = ask(world, "spdy/3.1", "spdy/3.1").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["upgrade"]),
        (101, &"spdy/3.1".parse().unwrap())
    );
    BufReader::new(TokioIo::new(hyper::upgrade::on(response).await.unwrap()))
}

/// The answer to a line; empty at the end.
async fn say(tunnel: &mut BufReader<Tunnel>, line: &str) -> String {
    let mut answer = String::new();
    if tunnel.write_all(format!("{line}\n").as_bytes()).await.is_ok() {
        drop(tokio::time::timeout(Duration::from_secs(10), tunnel.read_line(&mut answer)).await.unwrap());
    }
    answer
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

#[tokio::test]
async fn what_a_rule_names_is_carried_both_ways_with_the_head_swapped_and_answers_scrubbed() {
    let world = world().await;
    let mut tunnel = open(&world).await;
    let head = world.upstream.last();
    assert_eq!(head.headers["authorization"], format!("Bearer {REAL}"));
    assert_eq!(
        (&head.headers["connection"], &head.headers["upgrade"]),
        (&"Upgrade".parse().unwrap(), &"spdy/3.1".parse().unwrap())
    );
    assert_eq!(say(&mut tunnel, "abc").await, "cba\n");
    assert_eq!(say(&mut tunnel, &reversed(REAL)).await, format!("{STAND_IN}\n"));
    // It is not a place that a secret is read from.
    assert_eq!(say(&mut tunnel, STAND_IN).await, format!("{}\n", reversed(STAND_IN)));
    tunnel.shutdown().await.unwrap();
    assert_eq!(tunnel.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    let line = world.only_line().await;
    assert_eq!(
        (&line["decision"], &line["status"], &line["scrubbed"]),
        (&"allowed".into(), &101.into(), &1.into())
    );
    assert_eq!(line["stand-ins-in-body"], 1, "{line}");
    assert!(world.upstream.seen.received.lock().unwrap().starts_with(b"{}abc\n"));
}

#[tokio::test]
async fn a_real_value_in_it_ends_the_connection() {
    let world = world().await;
    let mut tunnel = open(&world).await;
    assert_eq!(say(&mut tunnel, "before").await, "erofeb\n");
    let (first, rest) = REAL.split_at(7);
    tunnel.write_all(first.as_bytes()).await.unwrap();
    assert_eq!(say(&mut tunnel, rest).await, "");
    let line = world.only_line().await;
    assert_eq!(
        (&line["decision"], &line["reason"]),
        (&"terminated".into(), &"real-credential".into()),
        "{line}"
    );
    let received = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
    assert!(!received.contains(REAL) && received.contains("before"), "{received}");
}

/// pingora would make a WebSocket of the first, which then nobody would look into.
#[tokio::test]
async fn what_is_not_asked_for_rightly_is_not_asked_for_at_all() {
    let world = World::new().await;
    for (method, connection, protocol) in
        [("GET", "close", "websocket"), ("POST", "close", "websocket"), ("GET", "upgrade", "h2c")]
    {
        let mut client = Client::new(&world, H1).await;
        let request = client.request("/switch").method(method).header("connection", connection);
        let request = request.header("upgrade", protocol).header("x-becomes", "websocket");
        let body = if method == "POST" { full("{}") } else { nothing() };
        let (head, _) = whole(client.send(request.body(body).unwrap()).await.unwrap()).await;
        let seen = world.upstream.last();
        assert!(!seen.headers.contains_key("upgrade"), "{protocol}: {:?}", seen.headers);
        // The upstream switches all the same.
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (502, &"unreadable-answer".parse().unwrap())
        );
    }
}

/// It could not be told there which bytes are the body's.
#[tokio::test]
async fn an_endpoint_that_reads_credentials_from_bodies_becomes_nothing_else() {
    let world = world().await;
    let provider = "kind = \"api-key\"\nplacements = \"form /switch token\"";
    world.vault.replace(Arc::new(crate::world::vault(REAL, &crate::world::declared(provider))));
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/switch").method("POST").header("connection", "Upgrade");
    let request =
        request.header("upgrade", "SPDY/3.1").header("content-type", "application/x-www-form-urlencoded");
    let request = request.body(full(format!("token={STAND_IN}"))).unwrap();
    let (head, page) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(head.headers["x-understudy-reason"], "upgrade-not-allowed");
    assert!(String::from_utf8_lossy(&page).contains("reads credentials from bodies"), "{page:?}");
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn another_protocol_than_the_rules_is_refused_with_what_would_allow_it() {
    let world = world().await;
    let (head, body) = whole(ask(&world, "tcp", "tcp").await).await;
    assert_eq!(
        (head.status.as_u16(), &head.headers["x-understudy-reason"]),
        (403, &"upgrade-not-allowed".parse().unwrap())
    );
    let page = String::from_utf8(body.to_vec()).unwrap();
    assert!(page.contains("add `upgrade = \"tcp\"` to t.toml:2"), "{page}");
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn an_answer_that_switches_to_another_protocol_is_not_passed_on() {
    let world = world().await;
    let (head, _) = whole(ask(&world, "SPDY/3.1", "h2c").await).await;
    assert_eq!(
        (head.status.as_u16(), &head.headers["x-understudy-reason"]),
        (502, &"unreadable-answer".parse().unwrap())
    );
}

#[tokio::test]
async fn an_open_one_ends_when_its_rule_does_not_name_it_any_more() {
    let world = world().await;
    let mut tunnel = open(&world).await;
    assert_eq!(say(&mut tunnel, "abc").await, "cba\n");
    rights(&world, "");
    assert_eq!(say(&mut tunnel, "def").await, "");
    let line = world.only_line().await;
    assert_eq!(
        (&line["decision"], &line["reason"]),
        (&"terminated".into(), &"upgrade-not-allowed".into()),
        "{line}"
    );
    assert!(!world.upstream.seen.received.lock().unwrap().ends_with(b"def\n"));
}
