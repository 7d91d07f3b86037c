//! Accounts: tokens that are renewed, for many containers at once, at a provider that takes each refresh token once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::response::Parts;
use serde_json::{Value, json};
use understudy::accounts::record::StandIns;
use understudy::accounts::{Millis, Record, Store};

use crate::client::{Client, H1, H2, full, nothing, whole};
use crate::provider::{Scheme, Tokens, tokens};
use crate::world::{Account, Options, World};

const LONG: Duration = Duration::from_secs(3600);

async fn world(scheme: Scheme, lifetime: Duration) -> World {
    let account = Account {
        scheme,
        lifetime,
        expires: Millis(Millis::now().0 + 3_600_000),
        proactive: false,
        imported: true,
    };
    World::with(Options { account: Some(account), ..Options::default() }).await
}

fn stand_ins(world: &World) -> StandIns {
    let vault = world.vault.current();
    let account = vault.secret("provider").unwrap().account().unwrap();
    account.stand_ins.clone()
}

fn generation(world: &World) -> u64 {
    world.vault.current().secret("provider").unwrap().account().unwrap().generation
}

/// What was imported.
fn first(world: &World) -> Tokens {
    world.first.clone().unwrap()
}

async fn call(client: &mut Client, token: &str, method: &str, body: &str) -> (Parts, String) {
    let request =
        client.request("/account/x").method(method).header("authorization", format!("Bearer {token}"));
    let sent = if body.is_empty() { nothing() } else { full(body.to_owned()) };
    let exchange = async { whole(client.send(request.body(sent).unwrap()).await.unwrap()).await };
    // What would wait for a body for ever fails.
    let (head, body) = tokio::time::timeout(Duration::from_secs(60), exchange).await.unwrap();
    (head, String::from_utf8_lossy(&body).into_owned())
}

async fn ask(client: &mut Client, content_type: &str, body: String) -> (Parts, Value) {
    let request = client.request("/oauth/token").method("POST").header("content-type", content_type);
    let (head, body) = whole(client.send(request.body(full(body)).unwrap()).await.unwrap()).await;
    (head, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn refresh_of(stand_ins: &StandIns) -> &str {
    stand_ins.refresh.as_deref().unwrap()
}

fn refresh(token: &str) -> String {
    json!({"grant_type": "refresh_token", "refresh_token": token, "client_id": "x"}).to_string()
}

#[tokio::test]
async fn the_access_token_is_swapped_and_what_comes_back_is_the_stand_in() {
    for scheme in [Scheme::ChatGpt, Scheme::Claude] {
        let world = world(scheme, LONG).await;
        let stand_in = stand_ins(&world).access;
        assert_ne!(stand_in, first(&world).access);
        let mut client = Client::new(&world, H2).await;
        let (head, body) = call(&mut client, &stand_in, "GET", "").await;
        assert_eq!(head.status, 200, "{body}");
        assert_eq!(
            world.upstream.last().headers["authorization"],
            format!("Bearer {}", first(&world).access)
        );
        assert!(body.contains(&stand_in) && !body.contains(&first(&world).access), "{body}");
        assert_eq!(world.only_line().await["secrets"], json!(["provider"]));
    }
}

#[tokio::test]
async fn stand_ins_of_other_tokens_are_never_sent_and_real_ones_are_found() {
    let world = world(Scheme::ChatGpt, LONG).await;
    let (stand_ins, real) = (stand_ins(&world), first(&world));
    for (token, reason) in [
        (refresh_of(&stand_ins), "credential-misdirected"),
        (stand_ins.id.as_deref().unwrap(), "credential-misdirected"),
        (real.access.as_str(), "real-credential"),
        (real.refresh.as_str(), "real-credential"),
        (real.id.as_deref().unwrap(), "real-credential"),
    ] {
        let (head, _) = call(&mut Client::new(&world, H1).await, token, "GET", "").await;
        let found = head.headers["x-understudy-reason"].to_str().unwrap();
        // The token endpoint of this test is at the same host.
        assert!(found == reason || found == "credential-misplaced", "{found}, expected {reason}");
    }
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn a_token_that_the_upstream_does_not_take_is_renewed_and_the_request_sent_again() {
    for alpn in [H1, H2] {
        for (method, body) in [("GET", ""), ("POST", "{\"prompt\": \"hello\"}")] {
            let world = world(Scheme::Claude, LONG).await;
            world.upstream.seen.accounts.token(refresh(&first(&world).refresh).as_bytes());
            world.renew_by_hand(1);
            world.upstream.seen.expire("work", 0);
            let stand_in = stand_ins(&world).access;
            let mut client = Client::new(&world, alpn).await;
            let (head, answer) = call(&mut client, &stand_in, method, body).await;
            assert_eq!(head.status, 200, "{method}: {answer}");
            assert!(answer.contains(&format!("\"length\":{}", body.len())), "{answer}");
            assert_eq!((generation(&world), world.upstream.seen.accounts.login("work").number), (3, 2));
            assert_eq!(stand_ins(&world).access, stand_in);
        }
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_sent_again_is_answered_and_the_next_request_has_the_new_token() {
    for alpn in [H1, H2] {
        let world = world(Scheme::Claude, LONG).await;
        world.upstream.seen.expire("work", 0);
        let stand_in = stand_ins(&world).access;
        let mut client = Client::new(&world, alpn).await;
        let (head, _) = call(&mut client, &stand_in, "POST", &"x".repeat(200_000)).await;
        assert_eq!(head.status, 401);
        assert_eq!(generation(&world), 2);
        let (head, _) = call(&mut client, &stand_in, "POST", &"x".repeat(200_000)).await;
        assert_eq!(head.status, 200);
    }
}

#[tokio::test]
async fn an_upstream_that_takes_no_token_is_asked_twice_and_the_provider_once() {
    let world = world(Scheme::Claude, LONG).await;
    let mut client = Client::new(&world, H1).await;
    let stand_in = stand_ins(&world).access;
    let request = client.request("/never").header("authorization", format!("Bearer {stand_in}"));
    let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    assert_eq!((head.status.as_u16(), body.as_ref()), (401, b"never".as_slice()));
    // Two tries, and one request for tokens between them.
    assert_eq!(world.upstream.requests(), 3);
    assert_eq!(world.upstream.seen.accounts.login("work").number, 1);
    // A token that is new is not the reason.
    for _ in 0..5 {
        let request = client.request("/never").header("authorization", format!("Bearer {stand_in}"));
        let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!(head.status, 401);
    }
    assert_eq!(world.upstream.seen.accounts.login("work").number, 1);
}

#[tokio::test]
async fn a_container_that_asks_for_tokens_is_told_stand_ins_and_the_true_lifetime() {
    for scheme in [Scheme::ChatGpt, Scheme::Claude] {
        let world = world(scheme, LONG).await;
        let known = stand_ins(&world);
        let mut client = Client::new(&world, H1).await;
        let form = format!("grant_type=refresh_token&refresh_token={}", refresh_of(&known));
        for (content_type, body) in
            [("application/json", refresh(refresh_of(&known))), ("application/x-www-form-urlencoded", form)]
        {
            let (head, told) = ask(&mut client, content_type, body).await;
            assert_eq!(head.status, 200, "{told}");
            assert_eq!(
                (&told["access_token"], &told["refresh_token"]),
                (&json!(known.access), &json!(known.refresh))
            );
            assert_eq!(told.get("id_token"), known.id.as_ref().map(|id| json!(id)).as_ref());
            let left = told["expires_in"].as_u64().unwrap();
            assert!((3590..=3600).contains(&left), "{left}");
        }
        // Nothing of it left.
        assert_eq!(world.upstream.requests(), 0);
        let line = world.audit(2).await.remove(0);
        assert_eq!((&line["decision"], &line["secrets"]), (&json!("allowed"), &json!(["provider"])));
    }
}

#[tokio::test]
async fn requests_for_tokens_count_for_limits() {
    let world = world(Scheme::Claude, LONG).await;
    crate::limits::limit(&world, "max-requests = 1", "");
    let mut client = Client::new(&world, H1).await;
    let body = refresh(refresh_of(&stand_ins(&world)));
    let (head, _) = ask(&mut client, "application/json", body.clone()).await;
    assert_eq!((head.status.as_u16(), world.container.meter.bytes()), (200, body.len() as u64));
    let (head, _) = ask(&mut client, "application/json", body).await;
    assert_eq!(
        (head.status.as_u16(), &head.headers["x-understudy-reason"]),
        (403, &"limit-reached".parse().unwrap())
    );
}

#[tokio::test]
async fn tokens_that_are_nearly_over_are_renewed_before_they_are_told() {
    let world = world(Scheme::Claude, LONG).await;
    world.change(|record| record.expires = Some(Millis::now()));
    let mut client = Client::new(&world, H2).await;
    let known = stand_ins(&world);
    let (_, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
    assert_eq!(told["access_token"], known.access);
    assert!(told["expires_in"].as_u64().unwrap() > 3590, "{told}");
    assert_eq!(told["account"]["email_address"], "mock@example.invalid");
    assert_eq!(world.upstream.seen.accounts.login("work").number, 1);
    let stored = world.store().read("work").unwrap();
    assert_eq!((stored.generation, &stored.facts["email"]), (3, &json!("mock@example.invalid")));
}

#[tokio::test]
async fn every_other_grant_is_refused_with_what_to_do_and_never_reaches_the_provider() {
    let world = world(Scheme::ChatGpt, LONG).await;
    let known = stand_ins(&world);
    let mut client = Client::new(&world, H1).await;
    let code = json!({"grant_type": "authorization_code", "code": "x"}).to_string();
    let device = "grant_type=urn:ietf:params:oauth:grant-type:device_code&device_code=x".to_owned();
    for (content_type, body, reason, said) in [
        ("application/json", code, "credential-minting", "understudy login arm agent-a"),
        ("application/x-www-form-urlencoded", device, "credential-minting", "device_code` is refused"),
        ("application/json", refresh("rt_attackers-own-refresh-token"), "foreign-credential", "login import"),
        ("application/json", refresh(&known.access), "foreign-credential", "none of an account"),
        ("application/json", refresh(known.id.as_ref().unwrap()), "foreign-credential", "none of an account"),
        ("application/json", "<html>".to_owned(), "malformed", "neither a form nor a JSON"),
    ] {
        let (head, told) = ask(&mut client, content_type, body).await;
        assert_eq!(head.headers["x-understudy-reason"], reason);
        assert!(head.status.is_client_error());
        let told = told["error_description"].as_str().unwrap();
        assert!(told.starts_with("understudy: ") && told.contains(said), "{told}");
    }
    for path in ["//oauth/token", "/oauth/%74oken", "/OAUTH/token/", "/x/../oauth/token"] {
        let request = client.request(path).method("POST").header("content-type", "application/json");
        let body = full(json!({"grant_type": "authorization_code"}).to_string());
        let (head, _) = whole(client.send(request.body(body).unwrap()).await.unwrap()).await;
        assert_eq!(head.headers["x-understudy-reason"], "credential-minting", "{path}");
    }
    let (head, _) = client.get("/oauth/token?grant_type=authorization_code").await;
    assert_eq!(head.headers["x-understudy-reason"], "malformed");
    let (head, _) = ask(&mut client, "application/json", refresh(&first(&world).refresh)).await;
    assert_eq!(head.headers["x-understudy-reason"], "real-credential");
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn an_account_is_worth_nothing_in_a_container_without_its_grant() {
    let world = world(Scheme::Claude, LONG).await;
    let known = stand_ins(&world);
    let rights = world.container.rights();
    let policy = Arc::clone(&rights.policy);
    let none = understudy::credentials::Rights::default();
    world.container.set_rights(understudy::credentials::Rights { policy, ..none });
    let mut client = Client::new(&world, H1).await;
    let (head, _) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
    assert_eq!(head.headers["x-understudy-reason"], "credential-not-granted");
    let (head, _) = call(&mut client, &known.access, "GET", "").await;
    assert_eq!(head.headers["x-understudy-reason"], "credential-not-granted");
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn a_login_that_the_provider_ended_is_told_to_everybody_and_the_provider_is_asked_once() {
    let world = world(Scheme::Claude, LONG).await;
    let accounts = &world.upstream.seen.accounts;
    accounts.token(refresh(&first(&world).refresh).as_bytes());
    world.upstream.seen.expire("work", 0);
    let known = stand_ins(&world);
    for _ in 0..3 {
        let mut client = Client::new(&world, H1).await;
        let (head, page) = call(&mut client, &known.access, "GET", "").await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (401, &"login-needed".parse().unwrap())
        );
        assert!(page.contains("refresh_token_reused") && page.contains("login import"), "{page}");
        let mut client = Client::new(&world, H2).await;
        let (head, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
        assert_eq!((head.status.as_u16(), &told["error"]), (401, &json!("login_required")));
    }
    let mut client = Client::new(&world, H1).await;
    assert_eq!(accounts.login("work").reuses, 1);
    assert_eq!(world.upstream.requests_for("/oauth/token"), 1);
    let vault = world.vault.current();
    let problems = vault.problems(understudy::credentials::expiry::Day::today());
    assert!(
        problems.len() == 1 && problems[0].contains("ended its login (refresh_token_reused)"),
        "{problems:?}"
    );
    // The next login makes it good again, under the same stand-ins.
    world.import("again");
    world.keeper().renew("work", generation(&world)).await.unwrap();
    let (head, _) = call(&mut client, &known.access, "GET", "").await;
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn a_provider_in_trouble_is_asked_again_later_and_nothing_is_lost() {
    let html = "<html>sign in</html>";
    for (status, body, said) in [
        (200, html, "is not JSON"),
        (200, "{}", "no `access_token`"),
        (503, "", "status 503"),
        (302, "", "sent the request elsewhere"),
        (400, "{\"error\":\"invalid_client\"}", "invalid_client"),
    ] {
        let world = world(Scheme::Claude, LONG).await;
        world.upstream.seen.accounts.fault(status, body);
        world.change(|record| record.expires = Some(Millis::now()));
        let known = stand_ins(&world);
        let mut client = Client::new(&world, H1).await;
        for _ in 0..2 {
            let (head, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
            assert_eq!(
                (head.status.as_u16(), &told["error"]),
                (503, &json!("temporarily_unavailable")),
                "{body}"
            );
            assert!(told["error_description"].as_str().unwrap().contains(said), "{told}");
        }
        // The pause after a failure is for everybody.
        assert_eq!(world.upstream.requests(), 1);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let (head, _) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
        assert_eq!((head.status.as_u16(), generation(&world)), (200, 3), "{body}");
    }
}

#[tokio::test]
async fn an_answer_with_a_token_that_nobody_declared_is_kept_from_containers_and_the_login_goes_on() {
    let world = world(Scheme::Claude, LONG).await;
    let renewed = tokens(Scheme::Claude, "work", 1, LONG);
    let answer = json!({"access_token": renewed.access, "refresh_token": renewed.refresh, "expires_in": 3600,
                        "session_token": "a-session-token-that-nobody-declared"});
    world.upstream.seen.accounts.fault(200, answer.to_string());
    world.change(|record| record.expires = Some(Millis::now()));
    let known = stand_ins(&world);
    let mut client = Client::new(&world, H1).await;
    let (head, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
    assert_eq!(head.status, 502);
    assert!(told["error_description"].as_str().unwrap().contains("`session_token`"), "{told}");
    assert!(!told.to_string().contains("a-session-token-that"), "{told}");
    let stored = String::from_utf8(world.store().read("work").unwrap().to_bytes().unwrap().to_vec()).unwrap();
    assert!(!stored.contains("a-session-token-that") && stored.contains(&renewed.refresh));
}

#[tokio::test]
async fn an_answer_that_repeats_a_token_beside_its_fields_is_kept_from_containers() {
    let renewed = tokens(Scheme::Claude, "work", 1, LONG);
    for said in [
        json!({"manage": format!("https://login.example/manage?t={}", renewed.refresh)}),
        json!({"account": {"uuid": format!("of {}", renewed.access)}}),
        json!({"scope": format!("user:inference {}", renewed.access)}),
        json!({"note": format!("not {} any more", tokens(Scheme::Claude, "work", 0, LONG).access)}),
    ] {
        let world = world(Scheme::Claude, LONG).await;
        let mut answer =
            json!({"access_token": renewed.access, "refresh_token": renewed.refresh, "expires_in": 3600});
        answer.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        world.upstream.seen.accounts.fault(200, answer.to_string());
        world.change(|record| record.expires = Some(Millis::now()));
        let mut client = Client::new(&world, H1).await;
        let (_, told) = ask(&mut client, "application/json", refresh(refresh_of(&stand_ins(&world)))).await;
        let old = &first(&world).access;
        for real in [&renewed.access, &renewed.refresh, old] {
            assert!(!told.to_string().contains(real.as_str()), "{said}: {told}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_no_login_where_the_provider_takes_the_old_token_once_more() {
    for (grace, lost, expected, status) in [
        (LONG, 1, Some(1), 200),
        // The second one is lost, too: after a pause.
        (LONG, 2, None, 503),
        (Duration::ZERO, 1, None, 401),
    ] {
        let world = world(Scheme::ChatGpt, LONG).await;
        let accounts = &world.upstream.seen.accounts;
        accounts.allow_reuse_for(grace);
        accounts.lose(lost);
        world.change(|record| record.expires = Some(Millis::now()));
        let known = stand_ins(&world);
        let mut client = Client::new(&world, H1).await;
        let (head, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
        assert_eq!(head.status.as_u16(), status, "{grace:?} {lost}: {told}");
        assert_eq!(world.upstream.requests_for("/oauth/token"), 2);
        if let Some(reuses) = expected {
            assert_eq!(
                (accounts.login("work").revoked, told["access_token"].clone()),
                (false, json!(known.access))
            );
            assert_eq!(generation(&world), 2 + reuses);
        }
        match status {
            503 => {
                tokio::time::sleep(Duration::from_millis(1100)).await;
                let (head, _) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
                assert_eq!(head.status, 200);
            }
            401 => {
                assert_eq!(
                    world.store().read("work").unwrap().ended.as_deref(),
                    Some("refresh_token_reused")
                );
            }
            _ => {}
        }
    }
}

/// A provider that was set back to an older state, or lost its own last step.
#[tokio::test]
async fn a_provider_that_forgot_the_last_token_it_gave_is_asked_once_with_the_one_before() {
    let world = world(Scheme::Claude, LONG).await;
    let accounts = &world.upstream.seen.accounts;
    world.keeper().renew("work", 1).await.unwrap();
    accounts.forget_renewal("work");
    world.keeper().renew("work", 2).await.unwrap();
    let record = world.store().read("work").unwrap();
    assert_eq!((record.generation, record.ended.as_deref()), (3, None));
    assert_eq!(world.upstream.requests_for("/oauth/token"), 3);
    // One that knows neither has ended it, and is asked no more. Nor is one that was given another login meanwhile.
    world.keeper().renew("work", 3).await.unwrap();
    accounts.fault(400, json!({"error": "invalid_grant"}).to_string());
    accounts.fault(400, json!({"error": "invalid_grant"}).to_string());
    world.keeper().renew("work", 4).await.unwrap_err();
    assert_eq!(world.store().read("work").unwrap().ended.as_deref(), Some("invalid_grant"));
    world.import("other");
    accounts.fault(400, json!({"error": "invalid_grant"}).to_string());
    let generation = world.store().read("work").unwrap().generation;
    world.keeper().renew("work", generation).await.unwrap_err();
    assert_eq!(world.upstream.requests_for("/oauth/token"), 7);
}

#[tokio::test]
async fn eight_containers_with_one_account_never_renew_it_twice() {
    crowd(Scheme::ChatGpt, Duration::from_secs(24), Duration::from_secs(3)).await;
}

#[tokio::test]
#[ignore = "five minutes: `make test-all`"]
async fn eight_containers_share_one_codex_account_for_five_minutes() {
    crowd(Scheme::ChatGpt, Duration::from_secs(300), Duration::from_secs(4)).await;
}

#[tokio::test]
#[ignore = "five minutes: `make test-all`"]
async fn eight_containers_share_one_claude_account_for_five_minutes() {
    crowd(Scheme::Claude, Duration::from_secs(300), Duration::from_secs(4)).await;
}

const CONTAINERS: usize = 8;

/// Containers that call all the time, and whose programs ask for tokens now and then, at tokens that live shortly.
async fn crowd(scheme: Scheme, time: Duration, lifetime: Duration) {
    let account = Account {
        scheme,
        lifetime,
        expires: Millis(Millis::now().0 + 1000),
        proactive: true,
        imported: true,
    };
    let world = Arc::new(World::with(Options { account: Some(account), ..Options::default() }).await);
    let known = stand_ins(&world);
    let end = Instant::now() + time;
    let mut running = Vec::new();
    for number in 0..CONTAINERS {
        let listener: SocketAddr =
            world.container_named(char::from(b'0' + u8::try_from(number).unwrap())).await;
        let (world, known) = (Arc::clone(&world), known.clone());
        running.push(tokio::spawn(async move {
            let alpn = if number % 2 == 0 { H1 } else { H2 };
            let mut client = Client::at(&world, listener, alpn).await;
            let mut calls = 0_u32;
            while Instant::now() < end {
                let (head, body) = call(&mut client, &known.access, "POST", "{\"n\": 1}").await;
                assert_eq!(
                    head.status,
                    200,
                    "container {number}, call {calls}: {body}; {:?} {:?}",
                    world.upstream.seen.accounts.login("work"),
                    world.store().read("work")
                );
                calls += 1;
                if calls.is_multiple_of(10) {
                    let (head, told) =
                        ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
                    assert_eq!(
                        (head.status.as_u16(), &told["access_token"]),
                        (200, &json!(known.access)),
                        "{told}"
                    );
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            calls
        }));
    }
    let mut calls = 0;
    for container in running {
        calls += container.await.unwrap();
    }
    let login = world.upstream.seen.accounts.login("work");
    assert!(!login.revoked && login.reuses == 0, "{login:?}");
    // One for each life of a token, and no more than that.
    let lives = u64::try_from(time.as_millis() / lifetime.as_millis()).unwrap();
    assert!(
        login.number >= lives - 2 && login.number <= lives * 2 + 2,
        "{} renewals in {lives} lives",
        login.number
    );
    let generation = world.store().read("work").unwrap().generation;
    assert_eq!(generation, login.number + 1);
    assert!(calls > u32::try_from(CONTAINERS).unwrap() * 5, "{calls}");
    let text = world.audit_text();
    for number in 0..=login.number {
        assert!(!text.contains(&tokens(scheme, "work", number, LONG).refresh));
    }
}

#[tokio::test]
async fn tokens_are_on_disk_before_anybody_hears_of_them() {
    let world = world(Scheme::Claude, LONG).await;
    world.change(|record| record.expires = Some(Millis::now()));
    // The directory cannot be written to: the provider is not even asked.
    let directory = world.store().directory().to_owned();
    let blocked = directory.join("work.json.new");
    std::fs::create_dir(&blocked).unwrap();
    let known = stand_ins(&world);
    let mut client = Client::new(&world, H1).await;
    let (head, told) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
    assert_eq!(head.status, 503, "{told}");
    assert_eq!((world.upstream.requests(), generation(&world)), (0, 2));
    std::fs::remove_dir(&blocked).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let (head, _) = ask(&mut client, "application/json", refresh(refresh_of(&known))).await;
    assert_eq!(head.status, 200);
    let stored: Record = Store::new(directory).read("work").unwrap();
    let vault = world.vault.current();
    assert_eq!(stored.generation, vault.secret("provider").unwrap().account().unwrap().generation);
}
