use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;

use super::super::record::{StandIns, Tokens};
use super::*;
use crate::credentials::Catalogue;

const ACCESS: &str = "at-0123456789abcdefghij";

fn oauth(kind: &str) -> Oauth {
    let catalogue = Catalogue::new([]).unwrap();
    let mut accounts = catalogue.accounts();
    accounts.find(|(known, _)| known.name == kind).map(|(_, oauth)| oauth.clone()).unwrap()
}

fn record() -> Record {
    let token = |text: &str| Token::new(text.to_owned());
    let (access, refresh) = (token("the-old-access-token"), token("the-old/refresh+token"));
    Record::new("chatgpt-account", Tokens { access, refresh: Some(refresh), id: None }, StandIns::default())
}

fn refresh_of(record: &Record) -> &str {
    record.refresh.as_ref().unwrap().expose()
}

#[test]
fn the_request_is_what_the_provider_reads() {
    let refresh = record().refresh.unwrap();
    let (content_type, body) = request(&oauth("chatgpt-account"), &record(), &refresh);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(content_type, "application/json");
    assert_eq!(
        body,
        json!({"grant_type": "refresh_token", "refresh_token": "the-old/refresh+token", "client_id": "app_EMoamEEZ73f0CkXaXp7hrann"})
    );
    let google = Oauth { client_secret: Some("a b".to_owned()), ..oauth("google-account") };
    let (content_type, body) = request(&google, &record(), &refresh);
    let body = std::str::from_utf8(&body).unwrap();
    assert_eq!(content_type, "application/x-www-form-urlencoded");
    assert!(
        body.starts_with("grant_type=refresh_token&refresh_token=the-old%2Frefresh%2Btoken&client_id="),
        "{body}"
    );
    assert!(body.ends_with("&client_secret=a%20b"), "{body}");
}

#[test]
fn new_tokens_take_the_place_of_the_old_ones() {
    let oauth = oauth("claude-account");
    let body = json!({"access_token": ACCESS, "refresh_token": "rt-0123456789abcdefghij", "expires_in": 60,
                      "token_type": "Bearer", "scope": "a b", "account": {"uuid": "a-1", "email_address": "a@b.example"}});
    let answer = answer(&oauth, 200, body.to_string().as_bytes()).ok().unwrap();
    let record = record().renewed(&oauth, answer, Millis(1000));
    assert_eq!((record.access.expose(), refresh_of(&record)), (ACCESS, "rt-0123456789abcdefghij"));
    assert_eq!((record.expires, record.generation, record.scopes.len()), (Some(Millis(61_000)), 2, 2));
    assert_eq!((&record.facts["email"], &record.facts["account-id"]), (&json!("a@b.example"), &json!("a-1")));
    assert!(record.said.contains_key("account") && record.undeclared.is_none());
}

#[test]
fn a_refresh_token_that_is_not_answered_stays_and_a_lifetime_is_found() {
    let oauth = oauth("chatgpt-account");
    for (expires_in, expected) in [
        (json!(60), 60_000),
        (json!("60"), 60_000),
        (Value::Null, UNKNOWN_LIFETIME * 1000),
        (json!(-1), UNKNOWN_LIFETIME * 1000),
        (json!(0), UNKNOWN_LIFETIME * 1000),
        (json!(1e300), UNKNOWN_LIFETIME * 1000),
        (json!(u64::MAX), UNKNOWN_LIFETIME * 1000),
    ] {
        let body = json!({"access_token": ACCESS, "expires_in": expires_in}).to_string();
        let record = record().renewed(&oauth, answer(&oauth, 200, body.as_bytes()).ok().unwrap(), Millis(0));
        assert_eq!(refresh_of(&record), "the-old/refresh+token");
        assert_eq!(record.expires, Some(Millis(expected)), "{expires_in}");
    }
}

/// New tokens that seem to be over would be renewed twice a second.
#[test]
fn a_lifetime_is_by_the_providers_clock() {
    let oauth = oauth("chatgpt-account");
    let jwt = |claims: Value| {
        let encoded = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
        format!("{}.{}.{}", encoded(&json!({"alg": "RS256"})), encoded(&claims), "c2lnbmF0dXJl".repeat(4))
    };
    let now = 2_000_000_000;
    for (claims, expected) in [
        (json!({"iat": now - 86_400, "exp": now - 86_400 + 600}), 600),
        (json!({"iat": now + 86_400, "exp": now + 86_400 + 600}), 600),
        (json!({"exp": now + 600}), 600),
        (json!({"exp": now - 600}), UNKNOWN_LIFETIME),
        (json!({"iat": now, "exp": now}), UNKNOWN_LIFETIME),
    ] {
        let body = json!({"access_token": jwt(claims.clone())}).to_string();
        let answer = answer(&oauth, 200, body.as_bytes()).ok().unwrap();
        let record = record().renewed(&oauth, answer, Millis(now * 1000));
        assert_eq!(record.expires, Some(Millis((now + expected) * 1000)), "{claims}");
    }
}

#[test]
fn what_is_no_answer_is_told_and_only_the_provider_ends_a_login() {
    let oauth = oauth("chatgpt-account");
    let ended = |code: &str| Refused::Ended(code.to_owned());
    let code = |status, code: &str| Refused::Code { status, code: code.to_owned() };
    for (status, body, expected) in [
        (400, r#"{"error":"invalid_grant"}"#, ended("invalid_grant")),
        (401, r#"{"error":{"code":"refresh_token_reused","message":"x"}}"#, ended("refresh_token_reused")),
        (400, r#"{"error":{"type":"refresh_token_expired"}}"#, ended("refresh_token_expired")),
        (401, r#"{"code":"refresh_token_invalidated"}"#, ended("refresh_token_invalidated")),
        (400, r#"{"error":"invalid_client"}"#, code(400, "invalid_client")),
        (500, r#"{"error":"invalid_grant"}"#, code(500, "invalid_grant")),
        (429, "", Refused::Status(429)),
        (400, "<html>invalid_grant</html>", Refused::Status(400)),
        (400, r#"{"error":"sk-a secret with spaces"}"#, Refused::Status(400)),
        (
            400,
            r#"{"error":"AbcdefghijKlmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijkl"}"#,
            Refused::Status(400),
        ),
        (400, r#"{"error":"0f3c2a10-1234-5678-9abc-def012345678"}"#, Refused::Status(400)),
        (400, r#"{"error":"AADSTS70008"}"#, code(400, "AADSTS70008")),
        (302, "", Refused::Redirect(302)),
        (200, "<!doctype html><title>Sign in</title>", Refused::NotJson),
        (200, "", Refused::NotJson),
        (200, "[]", Refused::NotJson),
        (200, "{}", Refused::NoToken("access_token")),
        (200, r#"{"access_token":"short"}"#, Refused::NoToken("access_token")),
        (200, r#"{"access_token":["at-0123456789abcdef"]}"#, Refused::NoToken("access_token")),
        (
            200,
            r#"{"access_token":"at-0123456789abcdef","refresh_token":7}"#,
            Refused::NoToken("refresh_token"),
        ),
        (200, r#"{"error":"invalid_grant"}"#, Refused::NoToken("access_token")),
    ] {
        let refused = answer(&oauth, status, body.as_bytes()).err();
        assert_eq!(refused, Some(expected), "{status} {body}");
    }
    assert_eq!(answer(&oauth, 200, &vec![b' '; MOST + 1]).err(), Some(Refused::TooLarge));
}

#[test]
fn a_field_that_looks_like_a_token_is_found_and_nothing_of_the_answer_is_kept() {
    let mut oauth = oauth("chatgpt-account");
    for (field, expected) in [
        (json!({"session_token": "abc"}), Some("session_token")),
        (json!({"extra": {"clientSecret": "x"}}), Some("extra/clientSecret")),
        (json!({"list": [{"jwt": "x"}]}), Some("list/jwt")),
        (json!({"handle": "eyJhbGciOiJub25lIn0.e30.c2lnbmF0dXJl1"}), Some("handle")),
        (json!({"refresh_token_expires_in": 5}), None),
        (json!({"organization": {"uuid": "00000000-0000-4000-8000-000000000001", "name": "A Name 1"}}), None),
        (json!({"email": "someone.with.a.long.name1@mail.example.com"}), None),
    ] {
        let mut body = field.clone();
        body["access_token"] = json!(ACCESS);
        let answered = answer(&oauth, 200, body.to_string().as_bytes()).ok().unwrap();
        let record = record().renewed(&oauth, answered, Millis(0));
        assert_eq!(record.undeclared.as_deref(), expected, "{field}");
        assert_eq!(record.said.is_empty(), expected.is_some());
    }
    oauth.harmless.push("session_token".to_owned());
    let body = json!({"access_token": ACCESS, "session_token": "abc"}).to_string();
    let record = record().renewed(&oauth, answer(&oauth, 200, body.as_bytes()).ok().unwrap(), Millis(0));
    assert_eq!(record.undeclared, None);
}
