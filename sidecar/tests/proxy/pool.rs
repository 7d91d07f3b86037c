//! Which requests share an upstream connection.

use std::sync::atomic::Ordering::Relaxed;

use crate::client::{Client, H2, WAYS, nothing};
use crate::world::{STAND_IN, World};

#[tokio::test]
async fn one_container_reuses_and_two_never_share() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut first = Client::new(&world, alpn).await;
        for _ in 0..3 {
            assert_eq!(first.get("/hello").await.0.status, 200);
        }
        assert_eq!(world.upstream.connections(), 1, "{protocols:?}");
        let mut again = Client::new(&world, alpn).await;
        again.get("/hello").await;
        assert_eq!(world.upstream.connections(), 1, "another connection of the same container");

        let listener = world.another_container().await;
        let mut other = Client::at(&world, listener, alpn).await;
        other.get("/hello").await;
        assert_eq!(world.upstream.connections(), 2, "another container");
    }
}

#[tokio::test]
async fn requests_with_a_secret_do_not_share_with_those_without() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        client.get("/hello").await;
        for _ in 0..2 {
            let request = client.request("/hello").header("authorization", format!("Bearer {STAND_IN}"));
            let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
            crate::client::whole(response).await;
        }
        assert_eq!(world.upstream.connections(), 2);
    }
}

#[tokio::test]
async fn what_is_done_is_counted() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    client.get("/hello").await;
    let request = client.request_for("evil.example", "/").body(nothing()).unwrap();
    client.send(request).await.unwrap();
    world.audit(2).await;
    let counters = &world.container.counters;
    assert_eq!((counters.allowed.load(Relaxed), counters.denied.load(Relaxed)), (1, 1));
    assert_eq!(counters.open_connections.load(Relaxed), 1);
    drop(client);
    while counters.open_connections.load(Relaxed) != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
