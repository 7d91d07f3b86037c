//! Hosts that the upstream names in the answer to a declared request.

use std::sync::Arc;

use http::Method;
use understudy::ceiling::with_named;
use understudy::credentials::Rights;
use understudy_harnesses::{NamedHost, Pattern};
use understudy_policies::Ceiling;

use crate::client::{Client, H1, H2, full, nothing, tls, whole};
use crate::world::{FORMERLY, HOST, Options, REAL, STAND_IN, TO_FORMERLY, World};

const BOUND: &str = "kind = \"bearer\"\nhosts = [\"*.example.com\"]";

/// The container's harness lets the upstream name hosts below example.com, within `ceiling`.
async fn world(ceiling: &'static str) -> World {
    let world = World::with(Options { provider: BOUND, ..Options::default() }).await;
    let endpoint = format!("https://{HOST}:{}/mint/me", world.upstream.port());
    let named_by = Arc::new(NamedHost {
        endpoint: endpoint.try_into().unwrap(),
        field: "/endpoints/api".to_owned(),
        within: vec![Pattern("*.example.com".parse().unwrap())],
    });
    let rights = Rights { named_by: vec![named_by], ..(*world.container.rights()).clone() };
    world.container.set_rights(rights.clone());
    let (container, hosts) = (Arc::clone(&world.container), Arc::downgrade(&world.named));
    let ceiling = Ceiling::parse("ceiling", "ceiling.toml", ceiling, &[]).unwrap();
    world.named.on_change(Box::new(move || {
        let named = hosts.upgrade().unwrap().of(&container.id);
        container.set_rights(with_named(rights.clone(), &named, &[], &ceiling));
    }));
    world
}

/// Asks with the stand-in, or without, and is answered with that text.
async fn asks(world: &World, alpn: &[&[u8]], token: &str, status: u16, named: &str) {
    let mut client = Client::new(world, alpn).await;
    let request = client.request("/mint/me").method(Method::POST).header("x-status", status);
    let request = request.header("authorization", format!("Bearer {token}"));
    let body = format!("{{\"endpoints\":{{\"api\":\"{named}\"}}}}");
    let request = request.body(full(body.clone())).unwrap();
    let (_, answer) = whole(client.send(request).await.unwrap()).await;
    assert!(token != STAND_IN || answer == body, "{answer:?}");
}

/// What becomes of a request with the stand-in to [`FORMERLY`].
async fn reaches(world: &World, alpn: &[&[u8]]) -> String {
    let stream = tls(world, world.connect(TO_FORMERLY).await, FORMERLY, alpn).await.unwrap();
    let mut client = Client::over(stream).await;
    let request = client.request_for(FORMERLY, "/used").header("authorization", format!("Bearer {STAND_IN}"));
    let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    head.headers.get("x-understudy-reason").map_or("", |reason| reason.to_str().unwrap()).to_owned()
}

#[tokio::test]
async fn a_named_host_is_allowed_with_the_same_swap_as_soon_as_the_answer_is_read() {
    for alpn in [H1, H2] {
        let world = world("").await;
        assert_eq!(reaches(&world, alpn).await, "host-not-allowed");
        asks(&world, alpn, STAND_IN, 200, &format!("https://{FORMERLY}")).await;
        assert_eq!(reaches(&world, alpn).await, "");
        assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {REAL}"));
        let line = world.audit(3).await.pop().unwrap();
        let place = format!("https://{HOST}:{}/mint/me /endpoints/api", world.upstream.port());
        assert_eq!((&line["host"], &line["rule"]), (&FORMERLY.into(), &place.into()));
    }
}

#[tokio::test]
async fn nothing_else_widens() {
    for (ceiling, token, status, named) in [
        ("", STAND_IN, 403, "https://formerly.example.com"),
        ("", "not-ours", 200, "https://formerly.example.com"),
        ("", STAND_IN, 200, "https://formerly.example.com.evil.example"),
        ("", STAND_IN, 200, "https://FORMERLY.example.com"),
        ("", STAND_IN, 200, "https://formerly.example.com:443"),
        ("deny = \"formerly.example.com\"", STAND_IN, 200, "https://formerly.example.com"),
    ] {
        let world = world(ceiling).await;
        asks(&world, H1, token, status, named).await;
        assert_eq!(reaches(&world, H1).await, "host-not-allowed", "{token} {status} {named}");
    }
}

#[tokio::test]
async fn it_is_for_its_container_alone() {
    let world = world("").await;
    asks(&world, H1, STAND_IN, 200, &format!("https://{FORMERLY}")).await;
    let other = "b".repeat(64).parse().unwrap();
    assert_eq!((world.named.of(&world.container.id).len(), world.named.of(&other).len()), (1, 0));
}
