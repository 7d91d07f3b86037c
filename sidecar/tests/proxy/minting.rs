//! Endpoints that create or store credentials, at a host that a secret is bound to.

use std::sync::Arc;

use crate::client::{Client, H1, H2, full, whole};
use crate::upstream::digest;
use crate::world::{BEARER, REAL, STAND_IN, World, declared, vault};

/// A secret for a GitHub of one's own, whose tokens start with `sk-`.
async fn world(more: &str) -> World {
    let world = World::new().await;
    let provider = format!("like = \"github-pat\"\nprefix = \"sk-\"\n{more}");
    world.vault.replace(Arc::new(vault(REAL, &declared(&provider))));
    world
}

async fn post(client: &mut Client, path: &str, credential: bool) -> (http::response::Parts, String) {
    let mut request = client.request(path).method("POST");
    if credential {
        request = request.header("authorization", format!("Bearer {STAND_IN}"));
    }
    let request = request.body(full("{\"key\": \"ssh-ed25519 AAAA\"}")).unwrap();
    let (head, body) = whole(client.send(request).await.unwrap()).await;
    (head, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn they_are_refused_and_the_page_names_the_switch() {
    for alpn in [H1, H2] {
        let world = world("").await;
        for (path, credential) in [
            ("/repos/o/r/keys", true),
            ("/repos/o/r/keys", false),
            ("/repos/o/r/%6Beys?x=1", true),
            ("/repos/o/r%2Fkeys", true),
            ("/repos/o/r/KEYS/", true),
        ] {
            let mut client = Client::new(&world, alpn).await;
            let (head, page) = post(&mut client, path, credential).await;
            assert_eq!(
                (head.status.as_u16(), &head.headers["x-understudy-reason"]),
                (403, &"credential-minting".parse().unwrap())
            );
            assert!(
                page.contains("in a request to POST /repos/*/*/keys, which creates a deploy key"),
                "{page}"
            );
            assert!(
                page.contains("add `minting = [\"deploy-key\"]` to secret `provider` (secrets.toml:1)"),
                "{page}"
            );
        }
        let lines = world.audit(5).await;
        assert!(
            lines.iter().all(|line| line["reason"] == "credential-minting" && line["decision"] == "denied")
        );
        assert_eq!(lines[0]["secrets"], serde_json::json!(["provider"]));
        assert_eq!(world.upstream.requests(), 0);
    }
}

#[tokio::test]
async fn the_switch_lets_that_through_and_nothing_else() {
    let world = world("minting = [\"deploy-key\"]\n").await;
    let mut client = Client::new(&world, H2).await;
    let (head, _) = post(&mut client, "/repos/o/r/keys", true).await;
    assert_ne!(head.status, 403);
    assert_eq!(world.upstream.requests(), 1);
    let (head, page) = post(&mut client, "/repos/o/r/hooks", true).await;
    assert_eq!(head.status, 403);
    assert!(page.contains("which creates a webhook"), "{page}");
    let (head, _) = post(&mut client, "/upload", true).await;
    assert_eq!((head.status.as_u16(), world.upstream.requests()), (200, 2));
}

#[tokio::test]
async fn a_stand_in_without_a_secret_goes_nowhere() {
    let world = World::new().await;
    world.vault.replace(Arc::new(vault(REAL, &declared(BEARER).replace("[provider]", "[renamed]"))));
    let mut client = Client::new(&world, H1).await;
    let (head, page) = post(&mut client, "/upload", true).await;
    assert_eq!(head.headers["x-understudy-reason"], "credential-not-granted");
    assert!(page.contains("gone or has another name"), "{page}");
    assert_eq!(world.upstream.requests(), 0);
}

/// What is asked for by GraphQL is told by the body, which leaves as it is or not at all.
#[tokio::test]
async fn mutations_that_create_credentials_are_refused_and_others_pass_whole() {
    for alpn in [H1, H2] {
        let world = world("").await;
        let post = async |kind: &str, body: String| {
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/graphql").method("POST").header("content-type", kind);
            let request = request.header("authorization", format!("Bearer {STAND_IN}"));
            whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await
        };
        let harmless =
            format!("{{\"query\":\"{{ viewer {{ login }} }}\",\"x\":\"{}\"}}", "x".repeat(300_000));
        let (head, answer) = post("application/json", harmless.clone()).await;
        assert_eq!(head.status, 200, "{answer:?}");
        assert_eq!(answer, digest(harmless.as_bytes()));
        let (_, requests) = (world.only_line().await, world.upstream.requests());
        for (kind, body, reason, status) in [
            (
                "application/json",
                "{\"query\":\"mutation{a:inviteEnterpriseAdmin{b}}\"}",
                "credential-minting",
                403,
            ),
            (
                "text/plain",
                "{\"query\":\"mutation{ invite\\u0045nterpriseAdmin{b}}\"}",
                "credential-minting",
                403,
            ),
            ("application/json", "{\"id\":\"1\"}", "malformed", 400),
            ("multipart/form-data; boundary=x", "--x--", "malformed", 400),
        ] {
            let (head, page) = post(kind, body.to_owned()).await;
            let said = head.headers.get("x-understudy-reason").map(|reason| reason.to_str().unwrap());
            assert_eq!((head.status.as_u16(), said), (status, Some(reason)), "{body}: {page:?}");
        }
        let mutation = crate::bodies::encoded("gzip", b"{\"query\":\"mutation{inviteEnterpriseAdmin{b}}\"}");
        for (coding, status, reason) in
            [("gzip", 403, "credential-minting"), ("compress", 415, "body-encoded")]
        {
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/graphql").method("POST").header("content-encoding", coding);
            let request = request.header("authorization", format!("Bearer {STAND_IN}"));
            let request = request.body(full(mutation.clone())).unwrap();
            let (head, _) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(
                (head.status.as_u16(), head.headers["x-understudy-reason"].as_bytes()),
                (status, reason.as_bytes())
            );
        }
        let (head, _) = post("application/json", " ".repeat((1 << 20) + 1)).await;
        assert_eq!((head.status.as_u16(), world.upstream.requests()), (413, requests));
    }
}
