//! Logins inside of containers that bring a key which is not renewed, as the built-in catalogue describes them: of `gh`,
//! Copilot, Vibe and the console of Claude; and the login of Gemini CLI, whose program says a secret of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use understudy::accounts::Millis;
use understudy::accounts::store::StoreError;

use crate::client::{Client, H1, H2, full, tls, whole};
use crate::provider::Scheme;
use crate::world::{Account, Options, WELL_KNOWN, World};

pub(crate) const GITHUB: &str = "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";
pub(crate) const MISTRAL: &str = "RealRealRealRealRealRealRealReal";
pub(crate) const ANTHROPIC: &str = "sk-ant-api03-realrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealrealreal0AA";

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const DEVICE: &str = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
const GH: &str = "178c6fc778ccc68e1d6a";

/// What a program sends, and what comes of it.
struct Way {
    like: &'static str,
    host: &'static str,
    path: &'static str,
    content_type: &'static str,
    accepts: Option<&'static str>,
    body: String,
    field: &'static str,
    real: &'static str,
    whose: Option<&'static str>,
    /// Where it is used, and in which header after what.
    used: (&'static str, &'static str, &'static str),
}

fn ways() -> Vec<Way> {
    let github = Way {
        like: "github-app-token",
        host: "github.com",
        path: "/login/oauth/access_token",
        content_type: FORM,
        accepts: None,
        body: format!("client_id={GH}&device_code=a-code&grant_type={DEVICE}"),
        field: "access_token",
        real: GITHUB,
        whose: Some("mock-user"),
        used: ("api.github.com", "authorization", "token "),
    };
    let copilot = |client: &str| {
        Way {
        like: "github-copilot-token",
        content_type: JSON,
        accepts: Some("application/json"),
        body: json!({ "client_id": client, "device_code": "a-code", "grant_type": "urn:ietf:params:oauth:grant-type:device_code" })
            .to_string(),
        used: ("api.github.com", "authorization", "Bearer "),
        ..github_like()
    }
    };
    let vibe = Way {
        like: "mistral-api-key",
        host: "console.mistral.ai",
        path: "/api/vibe/sign-in/p-1/exchange",
        content_type: JSON,
        accepts: Some("*/*"),
        body: json!({ "exchange_token": "an-exchange-token", "code_verifier": "v" }).to_string(),
        field: "api_key",
        real: MISTRAL,
        whose: None,
        used: ("api.mistral.ai", "authorization", "Bearer "),
    };
    vec![github, copilot("Ov23ctDVkRmgkPke0Mmm"), copilot("Ov23li8tweQw6odWQebz"), vibe]
}

fn github_like() -> Way {
    Way {
        like: "",
        host: "github.com",
        path: "/login/oauth/access_token",
        content_type: FORM,
        accepts: None,
        body: String::new(),
        field: "access_token",
        real: GITHUB,
        whose: Some("mock-user"),
        used: ("", "", ""),
    }
}

async fn world(like: &str) -> Arc<World> {
    let account = Account {
        scheme: Scheme::ChatGpt,
        lifetime: Duration::from_secs(3600),
        expires: Millis(Millis::now().0 + 3_600_000),
        proactive: false,
        imported: false,
    };
    let beside = match like {
        "" => String::new(),
        like => format!(
            "[key]\nlike = \"{like}\"\naccount = \"key\"\ngrant-to = {{ harnesses = [\"generic\"] }}\n"
        ),
    };
    let options = Options { account: Some(account), beside: beside.leak(), ..Options::default() };
    Arc::new(World::with(options).await)
}

fn arm(world: &World, account: &str) {
    let until = Instant::now() + Duration::from_secs(3600);
    world.keeper().arming().arm(&world.container.id, Some(account.to_owned()), until).unwrap();
}

/// As the control server does it.
fn confirm(world: &World) -> bool {
    let arming = world.keeper().arming();
    let code = arming.list()[0].1.made.as_ref().unwrap().code.clone();
    let made = arming.take(&world.container.id, &code).unwrap();
    world.keeper().keep_login(&made).unwrap();
    if made.followed {
        arming.follow(&world.container.id, &made.shown.account);
    }
    made.tell()
}

async fn made(world: &World) -> (String, String, Option<String>) {
    for _ in 0..500 {
        if let Some(made) = world.keeper().arming().list().pop().and_then(|(_, shown)| shown.made) {
            return (made.account, made.kind, made.whose);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing was made: {:?}", world.keeper().arming().list());
}

async fn at(world: &World, listener: SocketAddr, name: &str, alpn: &[&[u8]]) -> Client {
    let (_, address) = WELL_KNOWN.into_iter().find(|(known, _)| *known == name).unwrap();
    let stream = world.connect_at(listener, SocketAddr::new(address.into(), 443)).await;
    Client::over(tls(world, stream, name, alpn).await.unwrap()).await
}

struct Heard {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Heard {
    fn reason(&self) -> Option<&str> {
        self.headers.get("x-understudy-reason")?.to_str().ok()
    }

    /// As its own type says that it is written.
    fn field(&self, name: &str) -> Option<String> {
        if self.headers["content-type"] == JSON {
            let body: Value = serde_json::from_str(&self.body).unwrap();
            return body[name].as_str().map(str::to_owned);
        }
        assert_eq!(self.headers["content-type"], FORM);
        let pairs = self.body.split('&').filter_map(|pair| pair.split_once('='));
        let value =
            pairs.into_iter().find_map(|(key, value)| (key.replace("%5F", "_") == name).then_some(value))?;
        Some(percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned())
    }
}

async fn send(
    world: &World,
    alpn: &[&[u8]],
    host: &str,
    path: &str,
    head: &[(&str, &str)],
    body: &str,
) -> Heard {
    let mut client = at(world, world.listener, host, alpn).await;
    let mut request = client.request_for(host, path).method(Method::POST);
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    let (parts, body) = whole(client.send(request.body(full(body.to_owned())).unwrap()).await.unwrap()).await;
    let body = String::from_utf8(body.to_vec()).unwrap();
    for real in [GITHUB, MISTRAL, ANTHROPIC] {
        assert!(!body.contains(real), "{body}");
    }
    Heard { status: parts.status.as_u16(), headers: parts.headers, body }
}

impl Way {
    async fn ask(&self, world: &World, alpn: &[&[u8]], body: &str) -> Heard {
        let mut head = vec![("content-type", self.content_type)];
        head.extend(self.accepts.map(|accepts| ("accept", accepts)));
        send(world, alpn, self.host, self.path, &head, body).await
    }

    fn asking(&self, world: &Arc<World>) -> JoinHandle<Heard> {
        let world = Arc::clone(world);
        let way = Self { body: self.body.clone(), ..*self };
        tokio::spawn(async move { way.ask(&world, H2, &way.body).await })
    }
}

#[tokio::test]
async fn a_key_is_kept_once_the_operator_said_yes_and_its_program_hears_a_stand_in() {
    for way in ways() {
        let world = world(way.like).await;
        // Unarmed, nothing is asked for, and it is said what to do.
        let refused = way.ask(&world, H1, &way.body).await;
        assert_eq!((refused.status, refused.reason()), (403, Some("credential-minting")), "{}", refused.body);
        assert!(refused.field("error_description").unwrap().contains("understudy login arm agent-a"));
        assert_eq!(world.upstream.requests(), 0);

        arm(&world, "key");
        let answer = way.asking(&world);
        let (account, kind, whose) = made(&world).await;
        assert_eq!((account.as_str(), kind.as_str(), whose.as_deref()), ("key", way.like, way.whose));
        assert!(matches!(world.store().read("key"), Err(StoreError::Missing(_))) && !answer.is_finished());
        assert!(confirm(&world));
        let heard = answer.await.unwrap();
        let stored = world.store().read("key").unwrap();
        assert_eq!((heard.status, heard.field(way.field)), (200, Some(stored.stand_ins.access.clone())));
        assert!(String::from_utf8_lossy(&world.stored_bytes()).contains(way.real));
        assert!(!world.audit_text().contains(way.real));
        // It is good for one login, and none takes the place of what is stored.
        let again = way.ask(&world, H1, &way.body).await;
        assert_eq!((again.status, again.reason()), (403, Some("credential-minting")));
        arm(&world, "key");
        let again = way.ask(&world, H1, &way.body).await;
        assert!(again.status == 403 && again.body.contains("stored"), "{}", again.body);
        // The next container has it.
        let next = world.another_container().await;
        let (host, header, scheme) = way.used;
        let mut client = at(&world, next, host, H1).await;
        let request =
            client.request_for(host, "/hello").header(header, format!("{scheme}{}", stored.stand_ins.access));
        let (head, body) =
            whole(client.send(request.body(full(String::new())).unwrap()).await.unwrap()).await;
        assert_eq!(head.status, 200, "{}", String::from_utf8_lossy(&body));
        let seen = world.upstream.seen.requests.lock().unwrap();
        assert_eq!(seen.last().unwrap().headers[header], format!("{scheme}{}", way.real));
    }
}

#[tokio::test]
async fn a_device_is_asked_for_until_it_is_let_in_and_what_is_unclear_brings_nothing() {
    let world = world("github-app-token").await;
    arm(&world, "key");
    let way = ways().remove(0);
    for (body, status, error) in [
        (way.body.replace("a-code", "pending"), 200, "authorization_pending"),
        (way.body.replace("a-code", "denied"), 200, "access_denied"),
        (way.body.replace("a-code", "rotating"), 502, "server_error"),
        (way.body.replace("a-code", "of-another-shape"), 502, "server_error"),
        (way.body.replace(GH, "Iv1.another"), 403, "access_denied"),
        ("grant_type=refresh_token&refresh_token=ghr_x".to_owned(), 403, "access_denied"),
        (format!("{}&client_id=another", way.body), 400, "invalid_request"),
        (way.body.replace("a-code", "html"), 502, "server_error"),
        // Each of those three may have made a key: no more are asked for.
        (way.body.clone(), 403, "access_denied"),
    ] {
        let heard = way.ask(&world, H1, &body).await;
        assert_eq!(
            (heard.status, heard.field("error").as_deref()),
            (status, Some(error)),
            "{body}: {}",
            heard.body
        );
        assert!(world.store().names().unwrap().is_empty());
        // As GitHub answers who does not say that JSON is accepted.
        assert_eq!(heard.headers["content-type"], FORM);
    }
    // In another place than it may have, it is refused and never sent.
    let before = world.upstream.requests();
    let path = "//login/oauth/access_token";
    let heard = send(&world, H1, way.host, path, &[("content-type", FORM)], &way.body).await;
    assert_eq!(
        (heard.status, heard.field("error").as_deref()),
        (403, Some("access_denied")),
        "{}",
        heard.body
    );
    assert_eq!(world.upstream.requests(), before);
    arm(&world, "key");
    let answer = way.asking(&world);
    made(&world).await;
    assert!(confirm(&world));
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn what_is_declined_is_kept_nowhere() {
    let world = world("mistral-api-key").await;
    arm(&world, "key");
    let answer = ways().remove(3).asking(&world);
    made(&world).await;
    world.keeper().arming().disarm(&world.container.id);
    let heard = answer.await.unwrap();
    assert_eq!((heard.status, heard.reason()), (403, Some("credential-minting")), "{}", heard.body);
    assert!(!String::from_utf8_lossy(&world.stored_bytes()).contains(MISTRAL));
}

#[tokio::test]
async fn the_key_of_a_console_login_follows_on_it_and_on_nothing_else() {
    let (host, path) = ("api.anthropic.com", "/api/oauth/claude_cli/create_api_key");
    let world = world("anthropic-api-key").await;
    let create = async |bearer: &str| {
        let bearer = format!("Bearer {bearer}");
        send(&world, H1, host, path, &[("authorization", &bearer)], "").await
    };
    // Neither unarmed nor by itself.
    for armed in [false, true] {
        if armed {
            arm(&world, "work-claude");
        }
        let heard = create("sk-ant-oat01-0123456789abcdefghij").await;
        assert!(heard.status == 403 && (!armed || heard.body.contains("just confirmed")), "{}", heard.body);
    }
    assert_eq!(world.upstream.requests(), 0);
    let code = json!({ "grant_type": "authorization_code", "code": "code-of-mine", "redirect_uri": "https://platform.claude.com/oauth/code/callback",
        "client_id": "9d1c250a-e61b-44d9-88ed-5944d1962f5e", "code_verifier": "v", "state": "s" });
    let login = {
        let (world, code) = (Arc::clone(&world), code.to_string());
        tokio::spawn(async move {
            let head = [("content-type", JSON)];
            send(&world, H2, "platform.claude.com", "/v1/oauth/token", &head, &code).await
        })
    };
    let (_, kind, made_login) = made(&world).await;
    assert_eq!(kind, "claude-account");
    assert!(confirm(&world));
    let stand_in = login.await.unwrap().field("access_token").unwrap();
    let heard = create("sk-ant-oat01-0123456789abcdefghij").await;
    assert!(heard.status == 403 && heard.body.contains("just confirmed"), "{}", heard.body);
    let creating_with = |stand_in: &str| {
        let (world, bearer) = (Arc::clone(&world), format!("Bearer {stand_in}"));
        tokio::spawn(async move { send(&world, H1, host, path, &[("authorization", &bearer)], "").await })
    };
    let creating = creating_with(&stand_in);
    let (account, kind, whose) = made(&world).await;
    assert_eq!((account.as_str(), kind.as_str()), ("work-claude-key", "anthropic-api-key"));
    // Whose it would be is known before it is made, and none is made before somebody said yes to that.
    assert_eq!(whose, made_login);
    let asked_for = || {
        let seen = world.upstream.seen.requests.lock().unwrap();
        seen.iter().filter(|request| request.uri.path() == path).count()
    };
    assert_eq!(asked_for(), 0);
    world.keeper().arming().disarm(&world.container.id);
    assert_eq!((creating.await.unwrap().status, asked_for()), (403, 0));
    world.keeper().arming().follow(&world.container.id, "work-claude");
    let creating = creating_with(&stand_in);
    made(&world).await;
    assert!(confirm(&world));
    let heard = creating.await.unwrap();
    let stored = world.store().read("work-claude-key").unwrap();
    assert_eq!((heard.status, heard.field("raw_key")), (200, Some(stored.stand_ins.access)));
    // The account's own token was sent for it, and once.
    let real = world.store().read("work-claude").unwrap();
    let real = String::from_utf8(real.to_bytes().unwrap().to_vec()).unwrap();
    let sent: Vec<String> = {
        let seen = world.upstream.seen.requests.lock().unwrap();
        let sent = seen.iter().filter(|request| request.uri.path() == path);
        sent.map(|request| request.headers["authorization"].to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(sent.len(), 1);
    assert!(real.contains(sent[0].strip_prefix("Bearer ").unwrap()));
    assert!(create(&stand_in).await.status == 403);
}

/// Its client secret is in the program, and not in the catalogue.
#[tokio::test]
async fn what_a_program_says_of_itself_is_kept_for_renewals() {
    let world = world("google-account").await;
    arm(&world, "key");
    let body = "grant_type=authorization_code&code=code-of-google&client_secret=a-secret-of-the-program&redirect_uri=https%3A%2F%2Fcodeassist.google.com%2Fauthcode&client_id=681255809395-oo8ft2oprdrnp9e3aqf6av3hmdib135j.apps.googleusercontent.com";
    let login = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            send(&world, H2, "oauth2.googleapis.com", "/token", &[("content-type", FORM)], body).await
        })
    };
    assert_eq!(made(&world).await.1, "google-account");
    assert!(confirm(&world));
    assert_eq!(login.await.unwrap().status, 200);
    let before = world.store().read("key").unwrap();
    world.keeper().renew("key", before.generation).await.unwrap();
    let sent = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
    assert!(
        sent.contains("grant_type=refresh_token") && sent.ends_with("client_secret=a-secret-of-the-program"),
        "{sent}"
    );
    assert_eq!(world.store().read("key").unwrap().generation, 2);
}
