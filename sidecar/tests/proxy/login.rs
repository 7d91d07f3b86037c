//! Logins inside of containers: taken over only while the operator lets it, and after a look at whose they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use understudy::accounts::arming::{ArmingError, Made};
use understudy::accounts::store::StoreError;
use understudy::accounts::{Arming, Millis};
use understudy::credentials::Rights;
use understudy_policies::{Policy, PolicySet};

use crate::client::{Client, H1, H2, full, whole};
use crate::provider::{Scheme, tokens};
use crate::world::{Account, Options, World};

const LONG: Duration = Duration::from_secs(3600);
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

async fn world(imported: bool) -> Arc<World> {
    let expires = Millis(Millis::now().0 + 3_600_000);
    let account = Account { scheme: Scheme::ChatGpt, lifetime: LONG, expires, proactive: false, imported };
    Arc::new(World::with(Options { account: Some(account), ..Options::default() }).await)
}

fn code(login: &str) -> String {
    json!({"grant_type": "authorization_code", "code": format!("code-of-{login}"), "client_id": "acme",
           "redirect_uri": "http://localhost:1455/auth/callback", "code_verifier": "v"})
    .to_string()
}

fn device(login: &str) -> String {
    format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=code-of-{login}&client_id=acme"
    )
}

fn arm(world: &World, time: Duration) {
    let arming = world.keeper().arming();
    arming.arm(&world.container.id, Some("work".to_owned()), Instant::now() + time).unwrap();
}

async fn ask(client: &mut Client, content_type: &str, body: String) -> (u16, Option<String>, Value) {
    let request = client.request("/oauth/token").method("POST").header("content-type", content_type);
    let (head, body) = whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await;
    let reason = head.headers.get("x-understudy-reason").map(|reason| reason.to_str().unwrap().to_owned());
    (head.status.as_u16(), reason, serde_json::from_slice(&body).unwrap())
}

fn asking(
    world: &Arc<World>,
    content_type: &'static str,
    body: String,
) -> JoinHandle<(u16, Option<String>, Value)> {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let mut client = Client::new(&world, H2).await;
        ask(&mut client, content_type, body).await
    })
}

async fn made(arming: &Arming) -> Option<String> {
    for _ in 0..500 {
        if let Some(made) = arming.list().pop().and_then(|(_, shown)| shown.made) {
            assert_eq!(made.account, "work");
            return made.whose;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing was made: {:?}", arming.list());
}

/// The login that waits, by the code that it is shown with.
fn take(world: &World) -> Made {
    let arming = world.keeper().arming();
    let code = arming.list()[0].1.made.as_ref().unwrap().code.clone();
    assert_eq!(arming.take(&world.container.id, "another").err(), Some(ArmingError::Another));
    arming.take(&world.container.id, &code).unwrap()
}

/// As the control server does it.
fn confirm(world: &World) -> bool {
    let made = take(world);
    world.keeper().keep_login(&made).unwrap();
    made.tell()
}

fn holds_a_token(world: &World, login: &str) -> bool {
    let text = String::from_utf8_lossy(&world.stored_bytes()).into_owned();
    text.contains(&tokens(Scheme::ChatGpt, login, 0, LONG).refresh)
}

#[tokio::test]
async fn a_login_waits_for_the_operator_and_its_program_hears_stand_ins() {
    for (content_type, body) in [(JSON, code("mine")), (FORM, device("mine"))] {
        let world = world(false).await;
        arm(&world, LONG);
        let answer = asking(&world, content_type, body.clone());
        assert_eq!(made(world.keeper().arming()).await.as_deref(), Some("acc-mock"));
        // It came as it was sent, and nothing is kept or told yet.
        assert_eq!(world.upstream.requests_for("/oauth/token"), 1);
        assert!(!holds_a_token(&world, "mine") && !answer.is_finished());
        assert!(matches!(world.store().read("work"), Err(StoreError::Missing(_))));
        assert!(confirm(&world));
        let (status, _, told) = answer.await.unwrap();
        assert_eq!(status, 200, "{told}");
        let stored = world.store().read("work").unwrap();
        let known = &stored.stand_ins;
        assert_eq!(
            (&told["access_token"], &told["refresh_token"]),
            (&json!(known.access), &json!(known.refresh))
        );
        assert_eq!(told["id_token"], json!(known.id));
        let real = tokens(Scheme::ChatGpt, "mine", 0, LONG);
        assert!(!told.to_string().contains(&real.refresh) && holds_a_token(&world, "mine"));
        assert!(!world.audit_text().contains(&real.refresh));
        // It is good for one login.
        let mut client = Client::new(&world, H1).await;
        let (status, ..) = ask(&mut client, JSON, code("other")).await;
        assert_eq!((status, world.upstream.requests_for("/oauth/token")), (403, 1));
        // The next container has it.
        let next = world.another_container().await;
        let mut client = Client::at(&world, next, H1).await;
        let request =
            client.request("/account/x").header("authorization", format!("Bearer {}", known.access));
        let request = request.body(crate::client::nothing()).unwrap();
        let (head, body) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.status, 200, "{}", String::from_utf8_lossy(&body));
        let line = world.audit(1).await.remove(0);
        assert_eq!((&line["decision"], &line["secrets"]), (&json!("allowed"), &json!(["work"])));
    }
}

#[tokio::test]
async fn only_a_container_that_is_armed_and_only_in_time() {
    let world = world(false).await;
    let other = world.another_container().await;
    let refused = async |client: &mut Client, label: &str| {
        let (status, reason, told) = ask(client, JSON, code("mine")).await;
        assert_eq!((status, reason.as_deref()), (403, Some("credential-minting")));
        let told = told["error_description"].as_str().unwrap();
        assert!(told.contains(&format!("understudy login arm {label}")), "{told}");
    };
    let mut client = Client::new(&world, H1).await;
    refused(&mut client, "agent-a").await;
    arm(&world, Duration::from_millis(100));
    refused(&mut Client::at(&world, other, H1).await, "agent-b").await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    refused(&mut client, "agent-a").await;
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn what_the_operator_declines_or_lets_pass_is_kept_nowhere() {
    for revoked in [false, true] {
        let world = world(false).await;
        arm(&world, LONG);
        let answer = asking(&world, JSON, code("attackers"));
        made(world.keeper().arming()).await;
        // A second login does not take the place of the one that is looked at.
        let mut client = Client::new(&world, H1).await;
        let (status, ..) = ask(&mut client, JSON, code("another")).await;
        assert_eq!((status, world.upstream.requests_for("/oauth/token")), (403, 1));
        if revoked {
            world.container.revoke();
        }
        world.keeper().arming().disarm(&world.container.id);
        if let Ok((status, reason, told)) = answer.await {
            let expected = if revoked { "revoked" } else { "credential-minting" };
            assert_eq!((status, reason.as_deref()), (403, Some(expected)), "{told}");
        }
        assert!(!holds_a_token(&world, "attackers"));
        assert!(matches!(world.store().read("work"), Err(StoreError::Missing(_))));
        let taken = world.keeper().arming().take(&world.container.id, "");
        assert_eq!(taken.err(), Some(ArmingError::NotArmed));
    }
}

#[tokio::test]
async fn a_stored_account_is_never_replaced_and_its_code_is_not_used_up() {
    let world = world(true).await;
    let before = world.store().read("work").unwrap().to_bytes().unwrap();
    arm(&world, LONG);
    let mut client = Client::new(&world, H1).await;
    let (status, _, told) = ask(&mut client, JSON, code("mine")).await;
    assert_eq!((status, world.upstream.requests()), (403, 0));
    assert!(told["error_description"].as_str().unwrap().contains("`work` is stored already"), "{told}");
    // Or imported while the operator looked.
    let other = self::world(false).await;
    arm(&other, LONG);
    let answer = asking(&other, JSON, code("mine"));
    made(other.keeper().arming()).await;
    other.import("imported");
    let taken = take(&other);
    let error = other.keeper().keep_login(&taken).unwrap_err();
    assert!(error.to_string().contains("is not replaced"), "{error}");
    drop(taken);
    assert_eq!(answer.await.unwrap().0, 403);
    assert_eq!(world.store().read("work").unwrap().to_bytes().unwrap(), before);
    assert!(!holds_a_token(&other, "mine"));
}

#[tokio::test]
async fn a_device_is_asked_for_until_it_is_let_in() {
    let world = world(false).await;
    arm(&world, LONG);
    let mut client = Client::new(&world, H1).await;
    for code in ["authorization_pending", "slow_down"] {
        world.upstream.seen.accounts.fault(400, json!({"error": code, "note": "a-note"}).to_string());
        let (status, _, told) = ask(&mut client, FORM, device("mine")).await;
        assert_eq!((status, told), (400, json!({"error": code})));
    }
    let failed = world.keeper().arming().list()[0].1.failed.clone().unwrap();
    assert!(failed.contains("slow_down"), "{failed}");
    let answer = asking(&world, FORM, device("mine"));
    made(world.keeper().arming()).await;
    assert!(confirm(&world));
    assert_eq!(answer.await.unwrap().0, 200);
}

#[tokio::test]
async fn what_cannot_be_kept_is_told_and_leaves_no_token() {
    let real = tokens(Scheme::ChatGpt, "mine", 0, LONG);
    let ok = json!({"access_token": real.access, "refresh_token": real.refresh, "expires_in": 3600});
    let with = |name: &str, value: Value| {
        let mut answer = ok.clone();
        answer[name] = value;
        answer.to_string()
    };
    let client_id = code("mine").replace("acme", "another-client");
    for (answer, body, said) in [
        (with("refresh_token", Value::Null), code("mine"), "no refresh token"),
        (with("session_token", json!("a-session-token-of-nobody")), code("mine"), "`session_token`"),
        ("<html>".to_owned(), code("mine"), "is not JSON"),
        (String::new(), client_id, "logs in as a client"),
    ] {
        let world = world(false).await;
        arm(&world, LONG);
        world.upstream.seen.accounts.fault(200, answer);
        let mut client = Client::new(&world, H1).await;
        let (status, _, told) = ask(&mut client, JSON, body).await;
        assert!(status >= 400 && told["error_description"].as_str().unwrap().contains(said), "{told}");
        assert!(!told.to_string().contains(&real.refresh) && !told.to_string().contains(&real.access));
        assert!(!holds_a_token(&world, "mine"));
        // Another try may be made.
        assert!(world.keeper().arming().begin(&world.container.id, false).is_ok());
    }
}

#[tokio::test]
async fn a_crash_before_it_was_confirmed_leaves_nothing_and_one_after_it_the_whole_login() {
    let world = world(false).await;
    arm(&world, LONG);
    let answer = asking(&world, JSON, code("mine"));
    made(world.keeper().arming()).await;
    // All that another process would find.
    assert!(!holds_a_token(&world, "mine"));
    assert!(matches!(world.store().read("work"), Err(StoreError::Missing(_))));
    let made = take(&world);
    world.keeper().keep_login(&made).unwrap();
    // The program was not told: the login is there all the same.
    drop(made);
    assert_eq!(answer.await.unwrap().0, 403);
    assert_eq!(world.store().read("work").unwrap().generation, 1);
    assert!(world.vault.current().secret("provider").is_some());
}

#[tokio::test]
async fn a_container_that_may_do_nothing_does_not_log_in_either() {
    let world = world(false).await;
    arm(&world, LONG);
    let failed = PolicySet::combine(vec![Arc::new(Policy::failed("web", "web.toml:1:1: no"))]);
    let rights = world.container.rights();
    world.container.set_rights(Rights { policy: Arc::new(failed), ..(*rights).clone() });
    let mut client = Client::new(&world, H1).await;
    let request = client.request("/oauth/token").method("POST").header("content-type", JSON);
    let (head, _) = whole(client.send(request.body(full(code("mine"))).unwrap()).await.unwrap()).await;
    assert_eq!(
        (head.status.as_u16(), &head.headers["x-understudy-reason"]),
        (403, &"policy-failed".parse().unwrap())
    );
    assert_eq!(world.upstream.requests_for("/oauth/token"), 0);
}
