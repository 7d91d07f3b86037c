use super::super::record::StandIns;
use super::*;

fn account() -> Account {
    let stand_ins = StandIns {
        access: "at-stand-in".into(),
        refresh: Some("rt-stand-in".into()),
        id: Some("h.c.s".into()),
    };
    Account {
        uid: None,
        name: "work".to_owned(),
        generation: 1,
        expires: Some(Millis(100_000)),
        renewed: Millis(0),
        scopes: vec!["a".to_owned(), "b".to_owned()],
        facts: Map::new(),
        said: Map::from_iter([("account".to_owned(), json!({"uuid": "a-1"}))]),
        undeclared: None,
        stand_ins,
        ended: None,
    }
}

#[test]
fn a_container_is_told_stand_ins_and_the_true_lifetime() {
    let reply = tokens(&account(), Millis(40_000));
    let expected = json!({"access_token": "at-stand-in", "refresh_token": "rt-stand-in", "id_token": "h.c.s",
                          "token_type": "Bearer", "expires_in": 60, "scope": "a b", "account": {"uuid": "a-1"}});
    assert_eq!((reply.status, reply.body), (200, expected));
    let undeclared = Account { undeclared: Some("session_token".to_owned()), ..account() };
    let reply = tokens(&undeclared, Millis(0));
    assert_eq!(reply.status, 502);
    assert!(reply.body["error_description"].as_str().unwrap().contains("`session_token`"));
}

#[test]
fn a_token_is_stale_with_less_than_a_minute_or_half_of_its_life() {
    assert!(!is_stale(&account(), Millis(40_000)) && is_stale(&account(), Millis(51_000)));
    let long = Account { expires: Some(Millis(3_600_000)), ..account() };
    assert!(!is_stale(&long, Millis(3_539_000)) && is_stale(&long, Millis(3_541_000)));
    assert!(!is_stale(&Account { expires: None, ..account() }, Millis(u64::MAX)));
}

#[test]
fn a_login_that_is_over_is_told_with_what_to_do() {
    let ended = RenewError::Ended { account: "work".to_owned(), code: "invalid_grant".to_owned() };
    let reply = failed(&ended);
    assert_eq!((reply.status, &reply.body["error"]), (401, &json!("login_required")));
    assert!(reply.body["error_description"].as_str().unwrap().contains("login import FORMAT --account work"));
    let later = RenewError::Later { account: "work".to_owned(), why: "x".to_owned() };
    assert_eq!(failed(&later).status, 503);
}

#[test]
fn what_is_asked_is_read_from_forms_and_json_and_every_other_grant_is_told_apart() {
    let (vault, grants) = (Vault::default(), Grants::default());
    let asked = |content_type: &str, body: &str| Asked::read(&vault, &grants, content_type, body.as_bytes());
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    let login = |name: &str, client_id: Option<&str>, encoding| {
        let client_id = client_id.map(str::to_owned);
        Asked::Login(Grant { name: name.to_owned(), client_id, client_secret: None, encoding })
    };
    const DEVICE: &str =
        r#"{"grant_type":"urn:ietf:params:oauth:grant-type:device_code","device_code":"x","client_id":"a"}"#;
    for (content_type, body, expected) in [
        (form, "grant_type=refresh_token&refresh_token=x", Asked::Foreign),
        (form, "grant_type=refresh_token&refresh_token=x&refresh_token=y", Asked::Malformed),
        (form, "grant_type=authorization%5Fcode&code=x", login("authorization_code", None, Encoding::Form)),
        ("", DEVICE, login("urn:ietf:params:oauth:grant-type:device_code", Some("a"), Encoding::Json)),
        ("", r#"{"grant_type":"client_credentials"}"#, Asked::Other(Some("client_credentials".to_owned()))),
        (form, "code=x", Asked::Other(None)),
        ("application/json", r#"{"grant_type":"refresh_token","refresh_token":"x"}"#, Asked::Foreign),
        ("", r#"{"grant_type":"refresh_token"}"#, Asked::Other(Some("refresh_token".to_owned()))),
        ("application/json", r#"{"grant_type":"sk-Secret 1"}"#, Asked::Other(Some("another".to_owned()))),
        ("application/json", "grant_type=refresh_token", Asked::Malformed),
        ("", r#"{"grant_type":"authorization_code","client_id":"a","client_id":"b"}"#, Asked::Malformed),
        ("multipart/form-data", "--x", Asked::Malformed),
    ] {
        assert_eq!(asked(content_type, body), expected, "{content_type} {body}");
    }
}
