//! Configuration that changes under running containers.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use understudy::credentials::{
    Catalogue, InstallationKey, KnownStandIns, Loading, Rights, Surroundings, Vault,
};
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, H1, H2, nothing, whole};
use crate::world::{BEARER, HOST, REAL, STAND_IN, World, declared, vault};

const ROTATED: &str = "sk-test-the-real-one-2";

async fn reason(client: &mut Client, token: &str) -> Option<String> {
    let request = client.request("/hello").header("authorization", format!("Bearer {token}"));
    let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    head.headers.get("x-understudy-reason").map(|reason| reason.to_str().unwrap().to_owned())
}

fn tokens(world: &World) -> Vec<String> {
    let requests = world.upstream.seen.requests.lock().unwrap();
    let token = |head: &http::request::Parts| {
        head.headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned()
    };
    requests.iter().map(token).collect()
}

#[tokio::test]
async fn a_new_value_is_in_every_request_after_the_reload_and_the_old_one_in_every_request_before() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::new(&world, alpn).await);
        }
        let running: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                tokio::spawn(async move {
                    for _ in 0..50 {
                        assert_eq!(reason(&mut client, STAND_IN).await, None);
                    }
                    client
                })
            })
            .collect();
        while world.upstream.requests() < 20 {
            tokio::task::yield_now().await;
        }
        world.vault.replace(Arc::new(vault(ROTATED, &declared(BEARER))));
        let mut clients = Vec::new();
        for client in running {
            clients.push(client.await.unwrap());
        }
        let during = tokens(&world);
        assert_eq!(during.len(), 200);
        assert!(during.iter().all(|token| token == REAL || token == ROTATED), "{during:?}");
        assert!(during[..20].iter().any(|token| token == REAL));
        for client in &mut clients {
            assert_eq!(reason(client, STAND_IN).await, None);
        }
        assert!(tokens(&world)[200..].iter().all(|token| token == ROTATED));
        // Neither is one that a container may send.
        assert_eq!(reason(&mut clients[0], ROTATED).await.unwrap(), "real-credential");
    }
}

#[tokio::test]
async fn an_answer_that_runs_is_not_cut_by_a_reload() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").header("authorization", format!("Bearer {STAND_IN}"));
        let mut response = client.send(request.body(nothing()).unwrap()).await.unwrap();
        script.send(Frame::data(Bytes::from("before "))).await.unwrap();
        let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        world.vault.replace(Arc::new(vault(ROTATED, &declared(BEARER))));
        // Other values and grants, and policy still allows it.
        let policy = Arc::clone(&world.container.rights().policy);
        world.container.set_rights(Rights { policy, ..Rights::default() });
        script.send(Frame::data(Bytes::from("after"))).await.unwrap();
        drop(script);
        let rest = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), b"before after");
    }
}

#[tokio::test]
async fn a_grant_that_is_withdrawn_is_gone_at_the_next_request_of_an_open_connection() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        assert_eq!(reason(&mut client, STAND_IN).await, None);
        let policy = Arc::clone(&world.container.rights().policy);
        let granted = world.container.rights();
        world.container.set_rights(Rights { policy, ..Rights::default() });
        assert_eq!(reason(&mut client, STAND_IN).await.unwrap(), "credential-not-granted");
        world.container.set_rights(Rights::clone(&granted));
        assert_eq!(reason(&mut client, STAND_IN).await, None);
        assert_eq!(tokens(&world), [REAL, REAL]);
    }
}

#[tokio::test]
async fn a_policy_that_changes_holds_at_the_next_request_of_an_open_connection() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    assert_eq!(client.get("/hello").await.0.status, 200);
    let grants = Arc::clone(&world.container.rights().grants);
    let port = world.upstream.port();
    for (rules, status) in [
        (format!("[[deny]]\nhost = \"{HOST}\"\n"), 403),
        (format!("[[allow]]\nhost = \"{HOST}\"\nport = {port}\n"), 200),
        ("[[allow]]\nhost = \"another.example\"\n".to_owned(), 403),
    ] {
        let policy = Arc::new(Policy::parse("web", "web.toml", &rules).unwrap());
        let policy = Arc::new(PolicySet::combine(vec![policy]));
        world.container.set_rights(Rights::new(policy, Arc::clone(&grants), &world.vault.current()));
        assert_eq!(client.get("/hello").await.0.status, status, "{rules}");
    }
    let lines = world.audit(4).await;
    let policies: Vec<_> = lines.iter().map(|line| line["policy"].as_str().unwrap()).collect();
    assert_eq!(policies[1..], ["web", "web", "web"]);
}

/// `secrets.toml` and a value, as files.
struct Files(tempfile::TempDir);

impl Files {
    fn load(&self, declared: &str, value: &str, known: &KnownStandIns, previous: Option<&Vault>) -> Vault {
        use std::os::unix::fs::PermissionsExt;
        let at = |name: &str| self.0.path().join(name);
        std::fs::write(at("value"), value).unwrap();
        std::fs::set_permissions(at("value"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let declared = declared.replace("/run/secrets/provider", at("value").to_str().unwrap());
        std::fs::write(at("secrets.toml"), declared).unwrap();
        let key = InstallationKey::from_bytes(&[7; 32]);
        let around = Surroundings {
            podman_secrets: "/none".into(),
            credentials: None,
            host_run: true,
            ..Surroundings::default()
        };
        let catalogue = &Arc::new(Catalogue::new([]).unwrap());
        let loading = Loading { catalogue, key: &key, around: &around, known, previous, ask_again: false };
        Vault::load(&at("secrets.toml"), loading).unwrap()
    }
}

#[tokio::test]
async fn a_stand_in_outlives_another_shape_of_its_value_and_not_its_secret() {
    let world = World::new().await;
    let files = Files(tempfile::tempdir().unwrap());
    let known = KnownStandIns::default().with(&world.vault.current());
    let mut client = Client::new(&world, H1).await;

    let shape = files.load(&declared(BEARER), "another-shape-of-the-value-0123456789", &known, None);
    let new = shape.secret("provider").unwrap().stand_in().to_owned();
    assert_ne!(new, STAND_IN);
    world.vault.replace(Arc::new(shape));
    for stand_in in [STAND_IN, &new] {
        assert_eq!(reason(&mut client, stand_in).await, None);
        assert_eq!(tokens(&world).last().unwrap(), "another-shape-of-the-value-0123456789");
    }

    // Gone: neither goes upstream, though no secret is bound to the host any more.
    let known = known.with(&world.vault.current());
    let before = tokens(&world).len();
    world.vault.replace(Arc::new(files.load("", "", &known, None)));
    for stand_in in [STAND_IN, &new] {
        assert_eq!(reason(&mut client, stand_in).await.unwrap(), "credential-not-granted");
    }
    assert_eq!(tokens(&world).len(), before);
    let line = world.audit(4).await.pop().unwrap();
    assert_eq!(line["secrets"], serde_json::json!(["provider"]), "{line}");
}

#[tokio::test]
async fn a_former_value_does_not_come_back_for_as_long_as_the_container_lives() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let rights = world.container.rights();
        let (policy, grants) = (Arc::clone(&rights.policy), Arc::clone(&rights.grants));
        for values in [vec![ROTATED], vec!["sk-test-the-real-one-3", "sk-test-the-real-one-4"]] {
            for value in values {
                world.vault.replace(Arc::new(vault(value, &declared(BEARER))));
                let now = Rights::new(Arc::clone(&policy), Arc::clone(&grants), &world.vault.current());
                world.container.set_rights(now);
            }
        }
        // The secret is taken away: nothing of it is granted, and what it was is still searched for.
        world.container.set_rights(Rights { policy: Arc::clone(&policy), ..Rights::default() });
        for former in [REAL, ROTATED, "sk-test-the-real-one-3", "sk-test-the-real-one-4"] {
            let reversed: String = former.chars().rev().collect();
            let request =
                client.request("/reversed").method("POST").body(crate::client::full(reversed)).unwrap();
            let (_, body) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(body, STAND_IN, "{former}");
        }
    }
}

fn allowed(world: &World, rule: &str) {
    let policy = Policy::parse("web", "web.toml", rule).unwrap();
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
    world.container.set_rights(Rights { policy, ..Rights::default() });
}

#[tokio::test]
async fn a_stream_that_policy_does_not_allow_any_more_is_ended_and_another_goes_on() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let port = world.upstream.port();
        let allow = format!("[[allow]]\nhost = {HOST:?}\nport = {port}\n");
        allowed(&world, &allow);
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/script").body(nothing()).unwrap();
        let mut response = client.send(request).await.unwrap();
        for (rules, goes_on) in [
            (format!("{allow}paths = \"/script\"\n"), true),
            (format!("{allow}[[deny]]\nhost = {HOST:?}\npaths = \"/script\"\n"), false),
        ] {
            allowed(&world, &rules);
            script.send(Frame::data(Bytes::from("more"))).await.unwrap();
            let frame = response.body_mut().frame().await;
            assert_eq!(matches!(frame, Some(Ok(_))), goes_on, "{rules}");
        }
        let line = world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["reason"]),
            (&"terminated".into(), &"denied-by-rule".into()),
            "{line}"
        );
        assert_eq!(world.container.counters.terminated.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
