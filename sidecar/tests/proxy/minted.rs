//! Credentials that an upstream makes for a session, in the answer to a declared request.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;

use crate::client::{Client, H1, H2, WAYS, full, nothing, whole};
use crate::world::{STAND_IN, World};

const SECRET: &str = "ses_0123456789abcdefghijABCDEFGHIJ";

/// Posts `body` to an endpoint that answers with it.
async fn mint(client: &mut Client, path: &str, status: u16, body: String) -> (u16, String) {
    let request = client.request(path).method(Method::POST).header("x-status", status);
    let request = request.header("authorization", format!("Bearer {STAND_IN}"));
    let (head, body) = whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await;
    (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
}

async fn with(client: &mut Client, path: &str, name: &str, value: &str) -> (String, String) {
    let request = client.request(path).header(name, value).body(nothing()).unwrap();
    let (head, body) = whole(client.send(request).await.unwrap()).await;
    let reason = head.headers.get("x-understudy-reason").map_or("", |reason| reason.to_str().unwrap());
    (reason.to_owned(), String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn a_long_lived_one_is_a_stand_in_for_its_container_alone() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let answer = format!("{{\"id\": 1, \"secret\": \"{SECRET}\"}}");
        let (status, body) = mint(&mut client, "/mint/session", 201, answer.clone()).await;
        assert_eq!((status, body.contains(SECRET), body.len()), (201, false, answer.len()));
        let stand_in = body.split('"').nth(5).unwrap().to_owned();
        let held = format!("Bearer {stand_in}");
        assert_eq!(with(&mut client, "/used", "authorization", &held).await.0, "");
        assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {SECRET}"));
        // What repeats it does not tell it.
        let (_, echo) = with(&mut client, "/repeat", "authorization", &held).await;
        assert_eq!(echo, held);
        let lines = world.audit(3).await;
        assert_eq!(lines[1]["secrets"], serde_json::json!(["acme session"]));
        assert!(!world.audit_text().contains(SECRET));
        let mut other = Client::at(&world, world.another_container().await, alpn).await;
        assert_eq!(with(&mut other, "/used", "authorization", &held).await.0, "credential-not-granted");
        let value = format!("Bearer {SECRET}");
        assert_eq!(with(&mut client, "/used", "authorization", &value).await.0, "real-credential");
        assert_eq!(with(&mut other, "/used", "authorization", &value).await.0, "foreign-credential");
    }
}

/// Wherever else the answer has it, in whatever form.
#[tokio::test]
async fn an_answer_that_repeats_it_does_not_tell_it() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        let answer = |value: &str| {
            let encoded = BASE64_STANDARD.encode(format!("x:{value}"));
            format!("{{\"copy\":\"{value}\",\"secret\":\"{value}\",\"basic\":\"{encoded}\"}}")
        };
        let (status, body) = mint(&mut client, "/mint/session", 200, answer(SECRET)).await;
        let stand_in = body.split('"').nth(7).unwrap();
        assert_eq!((status, body.as_str()), (200, answer(stand_in).as_str()));
        assert_ne!(stand_in, SECRET);
        assert_eq!(world.only_line().await["scrubbed"], 2);
    }
}

#[tokio::test]
async fn a_short_lived_one_is_let_through_and_only_then() {
    let world = World::new().await;
    let mut client = Client::new(&world, H1).await;
    let ticket = "tick-0123456789abcdef";
    assert_eq!(
        with(&mut client, "/used", "authorization", &format!("Bearer {ticket}")).await.0,
        "foreign-credential"
    );
    let answer = format!("{{\"ticket\": \"{ticket}\"}}");
    for (path, status) in [("/mint/ticket", 403), ("/mint/other", 200)] {
        assert_eq!(mint(&mut client, path, status, answer.clone()).await, (status, answer.clone()));
        let (reason, _) = with(&mut client, "/used", "authorization", &format!("Bearer {ticket}")).await;
        assert_eq!(reason, "foreign-credential", "{path}");
    }
    // Without a stand-in, whoever asked could have said what the answer says.
    let request = client.request("/mint/ticket").method(Method::POST).body(full(answer.clone())).unwrap();
    whole(client.send(request).await.unwrap()).await;
    assert_eq!(
        with(&mut client, "/used", "authorization", &format!("Bearer {ticket}")).await.0,
        "foreign-credential"
    );
    assert_eq!(mint(&mut client, "/mint/ticket", 200, answer.clone()).await, (200, answer));
    assert_eq!(with(&mut client, "/used", "authorization", &format!("Bearer {ticket}")).await.0, "");
    assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {ticket}"));
}

#[tokio::test]
async fn an_answer_that_cannot_be_told_does_not_go_on() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        for body in [
            format!("secret: {SECRET}"),
            format!("{{\"secret\": [\"{SECRET}\"]}}"),
            "x".repeat((1 << 20) + 1),
        ] {
            let mut client = Client::new(&world, alpn).await;
            let request = client.request("/mint/session").method(Method::POST);
            let request = request.header("authorization", format!("Bearer {STAND_IN}"));
            // Its head may have gone on, and then it is cut.
            let Ok(answer) = client.send(request.body(full(body)).unwrap()).await else { continue };
            let body = http_body_util::BodyExt::collect(answer.into_body()).await;
            assert!(body.is_err() || !String::from_utf8_lossy(&body.unwrap().to_bytes()).contains(SECRET));
        }
        let lines = world.audit(3).await;
        assert!(lines.iter().all(|line| line["reason"] == "unreadable-answer"), "{lines:#?}");
    }
}

/// Where the server reads a path as the endpoint's and we do not, the container would get the credential itself.
#[tokio::test]
async fn another_spelling_of_the_endpoint_mints_nothing() {
    let world = World::new().await;
    let answer = format!("{{\"secret\": \"{SECRET}\"}}");
    for path in [
        "/mint/session/",
        "//mint/session",
        "/Mint/session",
        "/mint/x/../session",
        "/mint/session;x",
        "/mint%2Fsession",
    ] {
        let mut client = Client::new(&world, H1).await;
        let (status, body) = mint(&mut client, path, 200, answer.clone()).await;
        assert_eq!((status, body.contains(SECRET)), (403, false), "{path}: {body}");
        assert!(body.contains("`POST /mint/session`"), "{body}");
    }
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/mint/session").method("PUT").header("x-http-method-override", "POST");
    let request = request.header("authorization", format!("Bearer {STAND_IN}")).body(full(answer.clone()));
    let (_, body) = whole(client.send(request.unwrap()).await.unwrap()).await;
    assert!(!String::from_utf8_lossy(&body).contains(SECRET));
    assert_eq!(world.upstream.requests(), 0);
    let mut client = Client::new(&world, H1).await;
    // What is let through as it is may be written in any way: it is refused when it comes back.
    assert_eq!(mint(&mut client, "/mint/ticket/", 200, answer.clone()).await, (200, answer));
}

#[tokio::test]
async fn a_revoked_container_holds_nothing() {
    let world = World::new().await;
    let mut client = Client::new(&world, H1).await;
    mint(&mut client, "/mint/session", 200, format!("{{\"secret\": \"{SECRET}\"}}")).await;
    let holdings = &world.container.holdings;
    assert_eq!(holdings.minted(std::time::Instant::now()).count(), 1);
    world.container.revoke();
    assert_eq!(holdings.minted(std::time::Instant::now()).count(), 0);
}
