//! Tokens that a program signs itself: what is signed with the stand-in of a service account or of a GitHub App arrives signed
//! with the real key, what comes for it is a stand-in, and all else is refused as clients of those APIs read it.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::client::{Client, H1, H2, WAYS, full, tls, whole};
use crate::upstream::AnyBody;
use crate::world::{HOST, Options, WELL_KNOWN, World};

pub(crate) const ACCOUNT: &str = include_str!("../keys/service-account.json");
pub(crate) const APP: &str = include_str!("../keys/app.pem");
const GOOGLE: &str = "kind = \"google-service-account\"\nhosts = \"*.googleapis.com\"";
const GITHUB: &str =
    "kind = \"github-app\"\napp = [12345, \"Iv23liABC\"]\nhosts = [\"api.github.com\", \"github.com\"]";
const EMAIL: &str = "agent@project.iam.gserviceaccount.com";
const ENDPOINT: &str = "https://oauth2.googleapis.com/token";
const TOKEN_HOST: &str = "oauth2.googleapis.com";
const API_HOST: &str = "storage.googleapis.com";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// What the upstream makes.
pub(crate) const ACCESS: &str = "ya29.c.c0ASRK0GaThe-real-access-token_0123456789abcdefghijklmnop......";
pub(crate) const INSTALLATION: &str = "ghs_therealtokenofaninstallation0123456789";

async fn google(more: &'static str) -> World {
    World::with(Options { provider: more, value: ACCOUNT, ..Options::default() }).await
}

async fn github(provider: &'static str) -> World {
    World::with(Options { provider, value: APP, ..Options::default() }).await
}

fn pair(pem: &str) -> RsaKeyPair {
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap() {
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap(),
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap(),
        _ => panic!("another form"),
    }
}

fn real() -> [RsaKeyPair; 2] {
    let account: Value = serde_json::from_str(ACCOUNT).unwrap();
    [pair(account["private_key"].as_str().unwrap()), pair(APP)]
}

/// What the container has.
fn stand_in(world: &World) -> (RsaKeyPair, Value) {
    let vault = world.vault.current();
    let file = vault.secret("provider").unwrap().assertion_key().unwrap().file().to_owned();
    match serde_json::from_str::<Value>(&file) {
        Ok(json) => (pair(json["private_key"].as_str().unwrap()), json),
        Err(_) => (pair(&file), Value::Null),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn token_with(key: &RsaKeyPair, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", encoded(signature))
}

fn token(key: &RsaKeyPair, claims: &Value) -> String {
    token_with(key, r#"{"alg":"RS256","kid":"stand-in","typ":"JWT"}"#, &claims.to_string())
}

/// Of an assertion, with what is changed in it.
fn claims(change: impl Fn(&mut Value)) -> Value {
    let mut claims = json!({ "iss": EMAIL, "aud": ENDPOINT, "iat": now(), "exp": now() + 3600,
                             "scope": "https://www.googleapis.com/auth/devstorage.read_only" });
    change(&mut claims);
    claims
}

fn of_app(change: impl Fn(&mut Value)) -> Value {
    let mut claims = json!({ "iss": "12345", "iat": now() - 60, "exp": now() + 540 });
    change(&mut claims);
    claims
}

fn form(assertion: &str) -> String {
    let grant = GRANT.replace(':', "%3A");
    format!("grant_type={grant}&assertion={assertion}")
}

/// Header, claims and whether the real key signed it.
fn opened(token: &str) -> (Value, Value, bool) {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts.as_slice() else { return (Value::Null, Value::Null, false) };
    let decoded = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).unwrap();
    let signed = format!("{header}.{claims}");
    let good = real().iter().any(|key| {
        let public: RsaPublicKeyComponents<Vec<u8>> = key.public().into();
        public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &decoded(signature)).is_ok()
    });
    let json = |part: &str| serde_json::from_slice(&decoded(part)).unwrap();
    (json(header), json(claims), good)
}

/// In a form, wherever in it.
fn assertion(form: &str) -> &str {
    form.split('&').find_map(|pair| pair.strip_prefix("assertion=")).unwrap_or_default()
}

/// Of Google's token endpoint and GitHub's for installations. The claim `jti` says what it is to do.
pub(crate) fn answer(request: &http::request::Parts, body: &[u8]) -> Response<AnyBody> {
    let (google, text) = match request.uri.path() {
        "/token" => {
            let body = String::from_utf8_lossy(body).into_owned();
            (true, assertion(&body).to_owned())
        }
        _ => {
            let value = request.headers.get("authorization").map_or("", |value| value.to_str().unwrap());
            (false, value.split(' ').next_back().unwrap_or_default().to_owned())
        }
    };
    let (_, claims, good) = opened(&text);
    let (status, answer) = match (good, google) {
        (false, true) => {
            (400, json!({ "error": "invalid_grant", "error_description": "Invalid JWT Signature." }))
        }
        (false, false) => (401, json!({ "message": "A JSON web token could not be decoded" })),
        (true, _) if claims["jti"] == "repeat" => {
            (400, json!({ "error": "invalid_grant", "error_description": text }))
        }
        (true, true) if claims.get("target_audience").is_some() => {
            let claims = json!({ "aud": claims["target_audience"], "exp": now() + 3600, "email": EMAIL });
            let token = format!(
                "{}.{}.{}",
                encoded(r#"{"alg":"RS256"}"#),
                encoded(claims.to_string()),
                "s".repeat(342)
            );
            (200, json!({ "id_token": token }))
        }
        (true, true) => {
            let mut answer = json!({ "access_token": ACCESS, "expires_in": 3599, "token_type": "Bearer" });
            if claims["jti"] == "more" {
                answer["refresh_token"] = "1//the-real-refresh-token-0123456789".into();
            }
            (200, answer)
        }
        (true, false) => (
            201,
            json!({ "token": INSTALLATION, "expires_at": "2027-01-31T12:00:00Z", "permissions": { "contents": "write", "secrets": "read" },
                    "repository_selection": "selected", "repositories": [{ "full_name": "org/repo", "node_id": "MDEwOlJlcG9zaXRvcnkxMjk2MjY5", "temp_clone_token": "" }] }),
        ),
    };
    // Whatever coding was asked for.
    let packed = claims["jti"] == "packed";
    let text = answer.to_string();
    let bytes = if packed { gzipped(&text) } else { text.into_bytes() };
    let mut response = Response::new(Box::pin(Full::new(Bytes::from(bytes))) as AnyBody);
    if packed {
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    }
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

async fn client(world: &World, listener: SocketAddr, name: &str, alpn: &[&[u8]]) -> Client {
    let (_, address) = WELL_KNOWN.into_iter().find(|(known, _)| *known == name).unwrap();
    let stream = world.connect_at(listener, SocketAddr::new(address.into(), 443)).await;
    Client::over(tls(world, stream, name, alpn).await.unwrap()).await
}

struct Answered {
    status: u16,
    reason: String,
    body: String,
}

/// A request to `host`, with more of its head.
async fn ask(
    world: &World,
    (method, host, path): (Method, &str, &str),
    head: &[(&str, &str)],
    body: &str,
    alpn: &[&[u8]],
) -> Answered {
    let mut client = client(world, world.listener, host, alpn).await;
    let mut request = client.request_for(host, path).method(method);
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(full(body.to_owned())).unwrap()).await.unwrap();
    let (head, body) = whole(answer).await;
    let reason = head.headers.get("x-understudy-reason").map_or("", |reason| reason.to_str().unwrap());
    let body = String::from_utf8(body.to_vec()).unwrap();
    for value in [ACCESS, INSTALLATION] {
        assert!(!body.contains(value), "{body}");
    }
    Answered { status: head.status.as_u16(), reason: reason.to_owned(), body }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn exchange(world: &World, body: &str, alpn: &[&[u8]]) -> Answered {
    ask(world, (Method::POST, TOKEN_HOST, "/token"), &[FORM], body, alpn).await
}

async fn used_with(world: &World, host: &str, path: &str, token: &str, alpn: &[&[u8]]) -> Answered {
    let bearer = format!("Bearer {token}");
    ask(world, (Method::GET, host, path), &[("authorization", &bearer)], "", alpn).await
}

async fn with_token(world: &World, host: &str, path: &str, token: &str) -> Answered {
    used_with(world, host, path, token, H1).await
}

/// The endpoint is none of the key's hosts, and its answer is what it makes all the same.
#[tokio::test]
async fn a_token_that_comes_encoded_is_a_stand_in_wherever_the_key_is_bound_to() {
    const STORAGE: &str = "kind = \"google-service-account\"\nhosts = \"storage.googleapis.com\"";
    for provider in [GOOGLE, STORAGE] {
        for coding in ["gzip", "br, zstd", "identity"] {
            let world = google(provider).await;
            let (key, _) = stand_in(&world);
            let body = form(&token(&key, &claims(|claims| claims["jti"] = "packed".into())));
            let head = [FORM, ("accept-encoding", coding)];
            let answered = ask(&world, (Method::POST, TOKEN_HOST, "/token"), &head, &body, H1).await;
            assert_eq!(answered.status, 200, "{}", answered.body);
            let told: Value = serde_json::from_str(&answered.body).unwrap();
            assert!(told["access_token"].as_str().unwrap().starts_with("ya29."), "{told}");
        }
    }
}

#[tokio::test]
async fn an_assertion_is_signed_again_and_its_token_is_a_stand_in() {
    for (alpn, protocols) in WAYS {
        let options = Options { protocols, provider: GOOGLE, value: ACCOUNT, ..Options::default() };
        let world = World::with(options).await;
        let (key, file) = stand_in(&world);
        assert_eq!((&file["client_email"], &file["token_uri"]), (&EMAIL.into(), &ENDPOINT.into()));
        let sent = claims(|_| {});
        let answered = exchange(&world, &form(&token(&key, &sent)), alpn).await;
        assert_eq!(answered.status, 200, "{}", answered.body);
        let told: Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!((&told["expires_in"], &told["token_type"]), (&3599.into(), &"Bearer".into()));
        let held = told["access_token"].as_str().unwrap().to_owned();
        assert!(held.starts_with("ya29.") && held.len() == ACCESS.len());
        let received = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
        let (header, arrived, good) = opened(assertion(&received));
        assert!(good && arrived == sent, "{arrived}");
        assert_eq!(header, json!({ "alg": "RS256", "kid": "5d".repeat(20), "typ": "JWT" }));

        let used = used_with(&world, API_HOST, "/storage/v1/b", &held, alpn).await;
        assert_eq!((used.status, used.body.as_str()), (200, "hello"));
        assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {ACCESS}"));
        let repeated = used_with(&world, API_HOST, "/repeat", &held, alpn).await;
        assert_eq!(repeated.body, format!("Bearer {held}"));
        // Nobody else has it, and it goes nowhere else.
        assert_eq!(with_token(&world, "api.github.com", "/x", &held).await.reason, "credential-misdirected");
        let mut other = client(&world, world.another_container().await, API_HOST, H1).await;
        let request = other.request_for(API_HOST, "/x").header("authorization", format!("Bearer {held}"));
        let (head, _) = whole(other.send(request.body(full("")).unwrap()).await.unwrap()).await;
        assert_eq!(head.headers["x-understudy-reason"], "credential-not-granted");
        let lines = world.audit(5).await;
        for line in &lines[..3] {
            assert_eq!((&line["decision"], &line["secrets"]), (&"allowed".into(), &json!(["provider"])));
        }
        let audit = world.audit_text();
        assert!(!audit.contains(ACCESS) && !audit.contains(&held) && !audit.contains("eyJ"), "{audit}");
    }
}

#[tokio::test]
async fn an_id_token_keeps_what_it_says() {
    let world = google(GOOGLE).await;
    let (key, _) = stand_in(&world);
    let sent = claims(|claims| {
        claims.as_object_mut().unwrap().remove("scope");
        claims["target_audience"] = "https://service.example".into();
    });
    let answered = exchange(&world, &form(&token(&key, &sent)), H1).await;
    let told: Value = serde_json::from_str(&answered.body).unwrap();
    let held = told["id_token"].as_str().unwrap();
    let (_, claims, _) = opened(held);
    assert_eq!((&claims["email"], claims["exp"].as_u64().unwrap() > now()), (&EMAIL.into(), true));
    assert!(!held.ends_with(&"s".repeat(20)));
    with_token(&world, API_HOST, "/x", held).await;
    let arrived = world.upstream.last().headers["authorization"].to_str().unwrap().to_owned();
    assert!(arrived.ends_with(&"s".repeat(342)), "{arrived}");
}

#[tokio::test]
async fn a_token_of_its_own_is_signed_again_for_an_api() {
    for alpn in [H1, H2] {
        let world = google(GOOGLE).await;
        let (key, _) = stand_in(&world);
        let by_audience = claims(|claims| {
            claims.as_object_mut().unwrap().remove("scope");
            (claims["aud"], claims["sub"]) = (format!("https://{API_HOST}/").into(), EMAIL.into());
        });
        let by_scope = claims(|claims| drop(claims.as_object_mut().unwrap().remove("aud")));
        for sent in [by_audience, by_scope] {
            let own = format!("Bearer {}", token(&key, &sent));
            let head = [("authorization", own.as_str()), ("range", "bytes=0-1")];
            let answered = ask(&world, (Method::GET, API_HOST, "/repeat"), &head, "", alpn).await;
            let arrived = world.upstream.last().headers["authorization"].to_str().unwrap().to_owned();
            let (header, claims, good) = opened(arrived.strip_prefix("Bearer ").unwrap());
            assert!(good && claims == sent && header["kid"] == "5d".repeat(20));
            assert!(!world.upstream.last().headers.contains_key("range"));
            // What repeats it does not tell the signature.
            let signature = arrived.rsplit('.').next().unwrap();
            assert!(answered.status == 200 && !answered.body.contains(signature), "{}", answered.body);
        }
    }
}

/// Status, reason, and that the answer is one of that API; nothing goes upstream.
fn refused(world: &World, answered: &Answered, reason: &str, pointer: &str, said: &str) {
    assert_eq!(answered.reason, reason, "{}", answered.body);
    let json: Value = serde_json::from_str(&answered.body).unwrap();
    let message = json.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{json}"));
    assert!(message.starts_with("understudy: ") && message.contains(said), "{message}\nexpected {said}");
    assert_eq!(world.upstream.requests(), 0, "{message}");
}

#[tokio::test]
async fn an_assertion_that_does_not_hold_is_refused_in_the_words_of_the_api() {
    let world = google(GOOGLE).await;
    let (key, _) = stand_in(&world);
    let [real, other] = real();
    let good = claims(|_| {});
    let text = good.to_string();
    let fine = token(&key, &good);
    let head = |header: &str| token_with(&key, header, &text);
    let unsigned = |header: &str| format!("{}.{}.", encoded(header), encoded(&text));
    let (signed, signature) = fine.rsplit_once('.').unwrap();
    let hmac = {
        let signed = format!("{}.{}", encoded(r#"{"alg":"HS256"}"#), encoded(&text));
        let public = key.public().as_ref().to_vec();
        let tag =
            ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public), signed.as_bytes());
        format!("{signed}.{}", encoded(tag))
    };
    let twice = text.replacen("{", &format!("{{\"iss\":\"{EMAIL}\","), 1);
    for (assertion, reason, said) in [
        (token(&other, &good), "not-signed", "signature is not by the key"),
        (token(&real, &good), "real-credential", "the real key must not be in a container"),
        (format!("{signed}.{}", encoded("x".repeat(256))), "not-signed", "signature is not by the key"),
        (fine.replacen("eyJ", "eyK", 1), "not-signed", "not well-formed"),
        (unsigned(r#"{"alg":"none"}"#), "signing-unsupported", "RS256"),
        (hmac, "signing-unsupported", "RS256"),
        (head(r#"{"alg":"RS512"}"#), "signing-unsupported", "RS256"),
        (head(r#"{"alg":"RS256","crit":["x"]}"#), "signing-unsupported", "`crit`"),
        (head(r#"{"alg":"RS256","jku":"https://x"}"#), "signing-unsupported", "`jku`"),
        (head(r#"{"alg":"RS256","alg":"RS256"}"#), "not-signed", "named twice"),
        (token_with(&key, r#"{"alg":"RS256"}"#, &twice), "not-signed", "named twice"),
        (token(&key, &claims(|c| c["exp"] = (now() - 1).into())), "not-signed", "expired"),
        (token(&key, &claims(|c| c["exp"] = (now() + 7200).into())), "not-signed", "60 minutes"),
        (token(&key, &claims(|c| c["iat"] = (now() + 600).into())), "not-signed", "in the future"),
        (
            token(&key, &claims(|c| c["aud"] = "https://storage.googleapis.com/".into())),
            "not-signed",
            "`aud` must be",
        ),
        (
            token(&key, &claims(|c| c["sub"] = "boss@example.com".into())),
            "credential-restricted",
            "`subjects`",
        ),
        (token(&key, &claims(|c| c["uid"] = "x".into())), "not-signed", "`uid`"),
        (
            token(&key, &claims(|c| c["iss"] = "other@example.com".into())),
            "foreign-credential",
            "only the grant",
        ),
        (token(&key, &claims(|c| c["jti"] = "x".repeat(9000).into())), "not-signed", "longer than 8192"),
        (format!("{signed}=.{signature}"), "not-signed", "not plain base64url"),
        (format!("{fine}%0A"), "not-signed", "not plain base64url"),
        (format!("+{fine}"), "not-signed", "not plain base64url"),
    ] {
        let answered = exchange(&world, &form(&assertion), H1).await;
        refused(&world, &answered, reason, "/error_description", said);
        assert!(answered.body.contains("\"error\":\"invalid_grant\""), "{}", answered.body);
    }
    for (body, reason, said) in [
        (format!("{}&scope=x", form(&fine)), "malformed", "nothing else"),
        (format!("{}&assertion=x", form(&fine)), "malformed", "twice"),
        (format!("{}&x=%zz", form(&fine)), "malformed", "Content-Type"),
        (form(&fine).replace("jwt-bearer", "saml2-bearer"), "foreign-credential", "only the grant"),
        (
            "grant_type=refresh_token&refresh_token=1//somebodys".to_owned(),
            "foreign-credential",
            "only the grant",
        ),
        (String::new(), "foreign-credential", "only the grant"),
    ] {
        refused(&world, &exchange(&world, &body, H2).await, reason, "/error_description", said);
    }
    let body = form(&fine);
    for (method, path, head) in [
        (Method::GET, "/token", vec![FORM]),
        (Method::POST, "/token/", vec![FORM]),
        (Method::POST, "/%74oken", vec![FORM]),
        (Method::POST, "/token?x", vec![FORM]),
        (Method::POST, "/token", vec![("content-type", "application/json")]),
        (Method::POST, "/token", vec![FORM, ("content-encoding", "x-other")]),
        (Method::POST, "/token", vec![FORM, ("x-http-method-override", "GET")]),
    ] {
        let answered = ask(&world, (method.clone(), TOKEN_HOST, path), &head, &body, H1).await;
        refused(&world, &answered, "malformed", "/error_description", "token endpoint");
    }
    // In another place, and at another host.
    let bearer = format!("Bearer {fine}");
    let answered = ask(&world, (Method::GET, API_HOST, "/x"), &[("authorization", &bearer)], "", H1).await;
    refused(&world, &answered, "not-signed", "/error/message", "left out beside `scope`");
    let answered =
        ask(&world, (Method::GET, "github.com", "/x"), &[("authorization", &bearer)], "", H1).await;
    assert_eq!(answered.reason, "credential-misdirected");
    let two = [("authorization", bearer.as_str()), ("authorization", "Bearer x")];
    let answered = ask(&world, (Method::GET, API_HOST, "/x"), &two, "", H1).await;
    refused(&world, &answered, "malformed", "/error/message", "once");
    let own = format!("Bearer {}", token(&other, &claims(|c| c["iss"] = "other@example.com".into())));
    let answered = ask(&world, (Method::GET, API_HOST, "/x"), &[("authorization", &own)], "", H1).await;
    refused(&world, &answered, "foreign-credential", "/error/message", "stand-ins");
}

/// Google renews accounts at the address where it takes assertions.
#[tokio::test]
async fn accounts_at_the_same_address_are_no_hindrance() {
    let more =
        "kind = \"google-service-account\"\nhosts = [\"*.googleapis.com\", \"cloudcode-pa.googleapis.com\"]";
    for provider in [GOOGLE, more] {
        let options = Options { provider, value: ACCOUNT, keeps_accounts: true, ..Options::default() };
        let world = World::with(options).await;
        let (key, _) = stand_in(&world);
        for alpn in [H1, H2] {
            let answered = exchange(&world, &form(&token(&key, &claims(|_| {}))), alpn).await;
            assert_eq!(answered.status, 200, "{}", answered.body);
        }
        let [_, other] = real();
        for body in [
            form(&token(&other, &claims(|_| {}))),
            form(&token(&other, &claims(|c| c["iss"] = "x@y.example".into()))),
            "grant_type=refresh_token&refresh_token=1//somebodys".to_owned(),
        ] {
            let answered = exchange(&world, &body, H1).await;
            assert!(
                answered.status == 403 && answered.body.contains("error_description"),
                "{}",
                answered.body
            );
        }
        assert_eq!(world.upstream.requests(), 2);
    }
}

#[tokio::test]
async fn scopes_and_subjects_are_held_to() {
    let world = google(
        "kind = \"google-service-account\"\nhosts = \"*.googleapis.com\"\nscopes = \"https://www.googleapis.com/auth/devstorage.read_only\"\n\
         subjects = \"boss@example.com\"",
    )
    .await;
    let (key, _) = stand_in(&world);
    let asked = |change: &dyn Fn(&mut Value)| form(&token(&key, &claims(change)));
    let wider = asked(&|c| c["scope"] = "https://www.googleapis.com/auth/cloud-platform".into());
    refused(
        &world,
        &exchange(&world, &wider, H1).await,
        "credential-restricted",
        "/error_description",
        "`scopes`",
    );
    let by_audience = claims(|c| {
        c.as_object_mut().unwrap().remove("scope");
        c["aud"] = format!("https://{API_HOST}/").into();
    });
    let answered = with_token(&world, API_HOST, "/x", &token(&key, &by_audience)).await;
    refused(&world, &answered, "credential-restricted", "/error/message", "instead of `aud`");
    assert_eq!(exchange(&world, &asked(&|c| c["sub"] = "boss@example.com".into()), H1).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_tells_more_does_not_go_on() {
    let world = google(GOOGLE).await;
    let (key, _) = stand_in(&world);
    let body = form(&token(&key, &claims(|c| c["jti"] = "repeat".into())));
    let answered = exchange(&world, &body, H1).await;
    let received = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
    let signature = received.rsplit('.').next().unwrap();
    assert!(answered.status == 400 && !answered.body.contains(signature), "{}", answered.body);
    let (told, _) = answered.body.rsplit_once('.').unwrap();
    assert!(told.contains("eyJ"));
    // Its head went on: it is cut.
    let body = form(&token(&key, &claims(|c| c["jti"] = "more".into())));
    let mut client = client(&world, world.listener, TOKEN_HOST, H1).await;
    let request = client.request_for(TOKEN_HOST, "/token").method(Method::POST).header(FORM.0, FORM.1);
    if let Ok(answer) = client.send(request.body(full(body)).unwrap()).await {
        let body = http_body_util::BodyExt::collect(answer.into_body()).await;
        assert!(body.is_err() || !String::from_utf8_lossy(&body.unwrap().to_bytes()).contains("1//the-real"));
    }
    let lines = world.audit(2).await;
    assert_eq!(lines[1]["reason"], "unreadable-answer");
}

#[tokio::test]
async fn an_app_gets_the_token_of_an_installation() {
    for (alpn, protocols) in WAYS {
        let options = Options { protocols, provider: GITHUB, value: APP, ..Options::default() };
        let world = World::with(options).await;
        let (key, _) = stand_in(&world);
        let sent = of_app(|_| {});
        let bearer = format!("Bearer {}", token_with(&key, r#"{"alg":"RS256"}"#, &sent.to_string()));
        let about =
            ask(&world, (Method::GET, "api.github.com", "/app"), &[("authorization", &bearer)], "", alpn)
                .await;
        assert_eq!((about.status, about.body.as_str()), (200, "hello"));
        let arrived = world.upstream.last().headers["authorization"].to_str().unwrap().to_owned();
        let (header, claims, good) = opened(arrived.strip_prefix("Bearer ").unwrap());
        assert!(good && claims == sent && header == json!({ "alg": "RS256", "typ": "JWT" }));

        let head = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = "/app/installations/7/access_tokens";
        let answered =
            ask(&world, (Method::POST, "api.github.com", path), &head, "{\"repositories\":[\"repo\"]}", alpn)
                .await;
        let told: Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!((answered.status, &told["permissions"]["contents"]), (201, &"write".into()), "{told}");
        let held = told["token"].as_str().unwrap().to_owned();
        assert!(held.starts_with("ghs_") && held.len() == INSTALLATION.len());
        for value in [format!("token {held}"), format!("Bearer {held}")] {
            ask(
                &world,
                (Method::GET, "api.github.com", "/repos/org/repo"),
                &[("authorization", &value)],
                "",
                alpn,
            )
            .await;
            let expected = value.replace(&held, INSTALLATION);
            assert_eq!(world.upstream.last().headers["authorization"], expected);
        }
        let basic = |token: &str| {
            format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("x-access-token:{token}")))
        };
        let path = "/org/repo.git/info/refs?service=git-upload-pack";
        let answered =
            ask(&world, (Method::GET, "github.com", path), &[("authorization", &basic(&held))], "", alpn)
                .await;
        assert_eq!(answered.status, 200);
        assert_eq!(world.upstream.last().headers["authorization"], basic(INSTALLATION));
        // What it may not create, it may not.
        let value = format!("Bearer {held}");
        let head = [("authorization", value.as_str())];
        let answered =
            ask(&world, (Method::POST, "api.github.com", "/repos/org/repo/keys"), &head, "{}", alpn).await;
        assert_eq!(answered.reason, "credential-minting");
    }
}

#[tokio::test]
async fn an_app_that_says_something_else_is_refused_as_github_does() {
    let provider = "kind = \"github-app\"\napp = 12345\ninstallations = [7, 8]\nhosts = [\"api.github.com\", \"github.com\"]";
    let world = github(provider).await;
    let (key, _) = stand_in(&world);
    let [other, real] = real();
    let fine = token(&key, &of_app(|_| {}));
    let install = "/app/installations/7/access_tokens";
    for (token, path, reason, said) in [
        (token(&other, &of_app(|_| {})), install, "not-signed", "signature is not by the key"),
        (token(&real, &of_app(|_| {})), install, "real-credential", "the real key"),
        (token(&key, &of_app(|c| c["exp"] = (now() + 1200).into())), install, "not-signed", "10 minutes"),
        (token(&key, &of_app(|c| c["exp"] = (now() - 1).into())), install, "not-signed", "expired"),
        (token(&key, &of_app(|c| c["iss"] = "Iv23liABC".into())), install, "foreign-credential", "stand-ins"),
        (token(&key, &of_app(|c| c["x"] = 1.into())), install, "not-signed", "`x`"),
        (fine.clone(), "/app/installations/9/access_tokens", "credential-restricted", "installations 7, 8"),
        (fine.clone(), "/app/installations/7/access_tokens/", "credential-restricted", "plainly"),
        (fine.clone(), "/app/installations/7%2Faccess_tokens", "credential-restricted", "plainly"),
        (fine.clone(), "/user", "credential-restricted", "`/app`"),
        (format!("{fine}."), install, "not-signed", "three parts"),
    ] {
        let bearer = format!("Bearer {token}");
        let head = [("authorization", bearer.as_str())];
        let answered = ask(&world, (Method::POST, "api.github.com", path), &head, "", H1).await;
        refused(&world, &answered, reason, "/message", said);
    }
    let bearer = format!("Bearer {fine}");
    let head = [("authorization", bearer.as_str()), ("x-http-method-override", "POST")];
    let answered = ask(&world, (Method::GET, "api.github.com", install), &head, "", H1).await;
    refused(&world, &answered, "malformed", "/message", "names another method");
    // Without TLS, and to somebody else.
    assert_eq!(with_token(&world, API_HOST, "/app", &fine).await.reason, "credential-misdirected");
    assert_ne!(HOST, API_HOST);
}
