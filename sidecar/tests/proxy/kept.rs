//! Upstream connections that nobody uses, and that the container may not use any more.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use understudy::credentials::Rights;
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, WAYS, nothing, whole};
use crate::world::{HOST, STAND_IN, World};

fn set(world: &World, rules: &str) {
    let policy = Arc::new(Policy::parse("web", "web.toml", rules).unwrap());
    let policy = Arc::new(PolicySet::combine(vec![policy]));
    let rights = Rights::clone(&world.container.rights());
    world.container.set_rights(Rights { policy, ..rights });
}

fn allow(world: &World) -> String {
    format!("[[allow]]\nhost = {HOST:?}\nport = {}\n", world.upstream.port())
}

fn terminated(world: &World) -> u64 {
    world.container.counters.terminated.load(Relaxed)
}

async fn none_is_open(world: &World) {
    so_many_are_open(world, 0).await;
    assert_eq!(world.container.upstreams.count(), 0);
}

/// In far less than the minute that an idle connection is kept.
async fn so_many_are_open(world: &World, count: usize) {
    let closed = async {
        while world.upstream.open() > count || world.container.upstreams.count() > count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("an upstream connection stays open");
}

/// As long as an end would take.
async fn stays_open(world: &World) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.upstream.open(), 1);
}

#[tokio::test]
async fn a_pooled_one_ends_with_what_allowed_its_host_and_not_before() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        set(&world, &allow(&world));
        let mut client = Client::new(&world, alpn).await;
        assert_eq!(client.get("/hello").await.0.status, 200);
        world.audit(1).await;
        set(&world, &format!("{}paths = \"/hello\"\n", allow(&world)));
        stays_open(&world).await;
        assert_eq!(client.get("/hello").await.0.status, 200);
        assert_eq!((world.upstream.connections(), terminated(&world)), (1, 0), "{protocols:?}");
        world.audit(2).await;

        set(&world, "[[allow]]\nhost = \"elsewhere.example.com\"\n");
        none_is_open(&world).await;
        assert_eq!(terminated(&world), 1, "{protocols:?}");
        set(&world, &allow(&world));
        assert_eq!(client.get("/hello").await.0.status, 200);
        assert_eq!(world.upstream.connections(), 2, "{protocols:?}");
    }
}

#[tokio::test]
async fn a_pooled_one_that_carried_a_secret_ends_with_the_grant_and_all_with_the_container() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/hello").header("authorization", format!("Bearer {STAND_IN}"));
        whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        client.get("/hello").await;
        world.audit(2).await;
        assert_eq!(world.upstream.open(), 2, "{protocols:?}");
        let policy = Arc::clone(&world.container.rights().policy);
        world.container.set_rights(Rights { policy, ..Rights::default() });
        so_many_are_open(&world, 1).await;
        stays_open(&world).await;
        assert_eq!(terminated(&world), 1, "{protocols:?}");
        world.container.revoke();
        none_is_open(&world).await;
        assert_eq!(terminated(&world), 2, "{protocols:?}");
    }
}

#[tokio::test]
async fn one_that_only_lost_its_secret_runs_to_its_end_and_is_not_kept() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").header("authorization", format!("Bearer {STAND_IN}"));
        let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
        let policy = Arc::clone(&world.container.rights().policy);
        world.container.set_rights(Rights { policy, ..Rights::default() });
        script.send(Frame::data(Bytes::from("whole"))).await.unwrap();
        drop(script);
        assert_eq!(whole(response).await.1, "whole", "{protocols:?}");
        none_is_open(&world).await;
        assert_eq!((terminated(&world), &world.only_line().await["decision"]), (0, &"allowed".into()));
    }
}

/// Nothing is sent that could be looked at.
#[tokio::test]
async fn a_silent_stream_is_ended_too() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        set(&world, &allow(&world));
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").body(nothing()).unwrap();
        let mut response = client.send(request).await.unwrap();
        script.send(Frame::data(Bytes::from("first"))).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();

        set(&world, "[[allow]]\nhost = \"elsewhere.example.com\"\n");
        let next = tokio::time::timeout(Duration::from_secs(10), response.body_mut().frame());
        assert!(!matches!(next.await.expect("the stream goes on"), Some(Ok(_))), "{protocols:?}");
        let line = world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["reason"]),
            (&"terminated".into(), &"host-not-allowed".into()),
            "{line}"
        );
        none_is_open(&world).await;
        assert_eq!(terminated(&world), 1, "{protocols:?}");
    }
}
