//! Connections on several runtimes.

use std::sync::atomic::Ordering::Relaxed;

use understudy::workers::Threads;

use crate::client::{Client, H1, WAYS, nothing};
use crate::world::{Options, World};

#[tokio::test]
async fn each_worker_has_its_own_upstream_connections_and_a_revocation_reaches_all() {
    for (alpn, protocols) in WAYS {
        let threads = Threads::start(1).unwrap();
        let workers = threads.runtimes().to_vec();
        let world = World::with(Options { protocols, workers, ..Options::default() }).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = Client::new(&world, alpn).await;
            assert_eq!(client.get("/hello").await.0.status, 200);
            clients.push(client);
        }
        assert_eq!(world.upstream.connections(), 2, "{protocols:?}");

        world.container.revoke();
        for mut client in clients {
            let request = client.request("/hello").body(nothing()).unwrap();
            assert!(client.send(request).await.is_err());
        }
        while world.container.counters.open_connections.load(Relaxed) != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(world.upstream.requests(), 4);
    }
}

/// What a sidecar does that stops: requests that did not end in time are cut, and have their lines.
#[tokio::test]
async fn a_worker_that_ends_cuts_its_requests_and_their_lines_are_written() {
    let threads = Threads::start(2).unwrap();
    let workers = threads.runtimes().to_vec();
    let world = World::with(Options { workers, ..Options::default() }).await;
    let script = world.upstream.script();
    let first = Client::new(&world, H1).await;
    let mut second = Client::new(&world, H1).await;
    let request = second.request("/script").body(nothing()).unwrap();
    let response = second.send(request).await.unwrap();
    assert_eq!(response.status(), 200);

    drop(threads);

    let line = world.only_line().await;
    assert_eq!((&line["decision"], &line["path"]), (&"terminated".into(), &"/script".into()), "{line}");
    drop((first, script));
}
