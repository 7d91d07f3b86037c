use http::{HeaderMap, HeaderValue, Method, Uri};
use proptest::prelude::*;

use super::super::fixture::{Values, declared, vault};
use super::*;

const KEY: &str = "key-REALrealREAL_0123456789";
const OTHER: &str = "oth-REALrealREAL_0123456789";
const WIDE: &str = "wid-REALrealREAL_0123456789";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json; charset=utf-8";

struct Setup {
    vault: Vault,
    grants: Grants,
    host: HostName,
}

/// `key` is granted, `other` (for the same fields) is not.
fn setup(more: &str) -> Setup {
    let with = |name: &str, more: &str| {
        let placements = "[\"form /token secret\", \"json /v1/* /auth/key\"]";
        declared(name, more).replace("[\"header x-api-key\"]", placements)
    };
    // The same field, by another path.
    let wide = declared("wide", more).replace("header x-api-key", "form /* secret");
    let text = [with("key", more), with("other", more), wide].concat();
    let vault = vault(&text, &Values::from([("key", KEY), ("other", OTHER), ("wide", WIDE)]));
    Setup { vault, grants: ["key", "wide"].into_iter().collect(), host: "api.example.com".parse().unwrap() }
}

impl Setup {
    fn fill(&self, text: &str) -> String {
        self.vault.secrets().iter().fold(text.to_owned(), |text, secret| {
            text.replace(&format!("{{{}}}", secret.name()), secret.stand_in())
        })
    }

    /// The body that leaves, or the reason why it does not. None: it is not looked into.
    fn sent(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Option<String>, CredentialDenial> {
        let uri: Uri = url.parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let method = Method::POST;
        let head =
            RequestHead { host: &self.host, method: &method, verified_tls: true, uri: &uri, headers: &map };
        let Some(fields) = fields(&self.vault, &head)? else { return Ok(None) };
        let swapped = examine_body(&self.vault, &self.grants, head, fields, self.fill(body).as_bytes())?;
        let changed = swapped.bytes.as_slice() != self.fill(body).as_bytes();
        assert_eq!(changed, !swapped.secrets.is_empty());
        Ok(Some(String::from_utf8(swapped.bytes.to_vec()).unwrap()))
    }

    fn of_type(&self, url: &str, kind: &str, body: &str) -> Result<Option<String>, Reason> {
        self.sent(url, &[("content-type", kind)], body).map_err(|denial| denial.reason)
    }
}

#[test]
fn declared_fields_are_swapped_and_all_else_stays() {
    let setup = setup("");
    let form = |body| setup.of_type("/token", FORM, body);
    assert_eq!(form("a=%20+&secret={key}&b"), Ok(Some(format!("a=%20+&secret={KEY}&b"))));
    assert_eq!(form("secret={wide}"), Ok(Some(format!("secret={WIDE}"))));
    assert_eq!(form("s%65cret={key}"), Ok(Some(format!("s%65cret={KEY}"))));
    assert_eq!(form("a=1&secret="), Ok(Some("a=1&secret=".to_owned())));
    // In another field it is worthless, and not in the way.
    let stays = setup.fill("text={key}");
    assert_eq!(form("text={key}"), Ok(Some(stays)));
    let json = |body| setup.of_type("/v1/x", JSON, body);
    assert_eq!(
        json(r#" { "auth" : {"x":1,"key": "{key}" } ,"n":1e3} "#),
        Ok(Some(format!(r#" {{ "auth" : {{"x":1,"key": "{KEY}" }} ,"n":1e3}} "#)))
    );
    assert_eq!(json("[]"), Ok(Some("[]".to_owned())));
    assert_eq!(json(r#"{"auth":{"key":null}}"#), Ok(Some(r#"{"auth":{"key":null}}"#.to_owned())));
}

#[test]
fn other_bodies_are_not_looked_into() {
    let setup = setup("");
    for (url, kind) in [("/other/x", FORM), ("/other/x", "text/plain"), ("/v1/x/y", JSON)] {
        assert_eq!(setup.of_type(url, kind, "{"), Ok(None), "{url} {kind}");
    }
}

#[test]
fn where_a_credential_is_read_no_other_type_of_body_goes_by() {
    let at = |more, url: &str, kind: &str| setup(more).of_type(url, kind, "{}");
    for (url, kind) in [
        ("/token", JSON),
        ("/TOKEN", "text/plain"),
        ("/v1/x", FORM),
        ("/v1/x", "multipart/form-data; boundary=x"),
        ("/v1/x", "nonsense"),
    ] {
        assert_eq!(at("", url, kind), Err(Reason::BodyUndeclared), "{url} {kind}");
        assert_eq!(at("foreign = \"allow\"", url, kind), Ok(None), "{url} {kind}");
    }
    let untyped = |body| setup("").sent("/token", &[], body).map_err(|denial| denial.reason);
    assert_eq!(untyped("secret=theirs"), Err(Reason::BodyUndeclared));
    assert_eq!(untyped(""), Ok(Some(String::new())));
}

#[test]
fn a_field_of_a_multipart_form_is_swapped_and_all_else_stays() {
    let text = declared("key", "").replace("header x-api-key", "multipart /upload secret");
    let vault = vault(&text, &Values::from([("key", KEY)]));
    let setup = Setup { vault, grants: ["key"].into_iter().collect(), ..setup("") };
    let body = |value: &str, file: &str| {
        format!(
            "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{file}\r\n\
             --x\r\nContent-Disposition: form-data; name=\"secret\"\r\n\r\n{value}\r\n--x--\r\n"
        )
    };
    let of = |body: &str| setup.of_type("/upload", "multipart/form-data; boundary=x", body);
    assert_eq!(of(&body("{key}", "\u{fffd}\n=&")), Ok(Some(body(KEY, "\u{fffd}\n=&"))));
    assert_eq!(of(&body("theirs", "")), Err(Reason::ForeignCredential));
    assert_eq!(of(&body("x{key}", "")), Err(Reason::CredentialMisplaced));
    assert_eq!(of(&body("{key}", KEY)), Err(Reason::RealCredential));
    assert_eq!(of("secret={key}"), Err(Reason::Malformed));
}

#[test]
fn a_form_that_names_another_method_is_refused_where_methods_matter() {
    let of = |more: &str, kind: &'static str, body: &str| {
        let vault = vault(&declared("key", more), &Values::from([("key", KEY)]));
        let swaps = Swaps { secrets: vec!["key".to_owned()], ..Swaps::default() };
        let (host, uri) = ("api.example.com".parse().unwrap(), Uri::from_static("/x"));
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let method = Method::POST;
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        let fields = overriding(&vault, &head, &swaps).unwrap()?;
        Some(no_override(&vault, &head, &swaps, fields, body.as_bytes()).map_err(|denial| denial.reason))
    };
    let limited = "methods = [\"GET\", \"POST\"]";
    assert_eq!(of("", FORM, "_method=DELETE"), None);
    assert_eq!(of(limited, JSON, "{\"_method\":\"DELETE\"}"), None);
    assert_eq!(of(limited, FORM, "a=_method"), Some(Ok(())));
    assert_eq!(of(limited, FORM, "a=1&%5fmethod=DELETE"), Some(Err(Reason::CredentialRestricted)));
    let part = "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nput\r\n--x--";
    let multipart = "multipart/form-data; boundary=x";
    assert_eq!(of(limited, multipart, part), Some(Err(Reason::CredentialRestricted)));
}

#[test]
fn the_table_of_reasons() {
    let setup = setup("");
    for (url, kind, body, reason) in [
        ("/token", FORM, "secret={other}", Reason::CredentialNotGranted),
        ("/token", FORM, "secret=x{key}", Reason::CredentialMisplaced),
        ("/token", FORM, "secret=theirs", Reason::ForeignCredential),
        ("/token", FORM, "secret={key}&secret=theirs", Reason::Malformed),
        ("/token", FORM, "secret={key}&x=%2", Reason::Malformed),
        ("/token", FORM, "text=key-REALrealREAL_0123456789", Reason::RealCredential),
        ("/x/../token", FORM, "secret={key}", Reason::Malformed),
        ("/v1/x", JSON, r#"{"auth":{"key":"theirs"}}"#, Reason::ForeignCredential),
        ("/v1/x", JSON, r#"{"auth":{"key":["{key}"]}}"#, Reason::ForeignCredential),
        ("/v1/x", JSON, r#"{"auth":{"key":"{key} "}}"#, Reason::CredentialMisplaced),
        ("/v1/x", JSON, r#"{"auth":{"key":"{key}","key":"x"}}"#, Reason::Malformed),
        ("/v1/x", JSON, r#"{"auth":{"key":"{key}"}"#, Reason::Malformed),
        ("/v1/x", JSON, &"[".repeat(10_000), Reason::Malformed),
    ] {
        assert_eq!(setup.of_type(url, kind, body), Err(reason), "{body}");
    }
    let encoded = [("content-type", JSON), ("content-encoding", "gzip")];
    assert_eq!(setup.sent("/v1/x", &encoded, "{}").unwrap_err().reason, Reason::BodyEncoded);
    let identity = [("content-type", JSON), ("content-encoding", "Identity")];
    assert!(setup.sent("/v1/x", &identity, "{}").is_ok());
    let twice = [("content-type", JSON), ("content-type", "text/plain")];
    assert_eq!(setup.sent("/v1/x", &twice, "{}").unwrap_err().reason, Reason::Malformed);
    let denial = setup.sent("/token", &[("content-type", FORM)], "secret=theirs-0123456789").unwrap_err();
    assert_eq!(denial.place, "`form /token secret`");
    assert!(!format!("{denial:?}").contains("0123456789"), "{denial:?}");
}

#[test]
fn limits_of_the_secret_hold_for_bodies() {
    let reading = setup("methods = \"GET\"");
    assert_eq!(reading.of_type("/token", FORM, "secret={key}"), Err(Reason::CredentialRestricted));
    let allowing = setup("foreign = \"allow\"");
    assert_eq!(allowing.of_type("/token", FORM, "secret=theirs"), Ok(Some("secret=theirs".to_owned())));
    assert_eq!(allowing.of_type("/token", FORM, "secret={key}x"), Err(Reason::CredentialMisplaced));
}

proptest! {
    /// Whatever stands around the field, all of it stays.
    #[test]
    fn a_swap_changes_the_field_alone(
        before in "[a-z]{1,4}=[a-z0-9+*]{0,9}&", after in "(&[a-z]{1,4}=[a-z0-9%]{0,0}){0,3}",
        member in "\"[a-j]{1,3}\" ?: ?(\"[ !#-\\[\\]-~]{0,9}\"|[1-9][0-9]{0,4}|\\[\\{\\},null\\]) ?,", space in "[ \\n\\t]{0,3}",
    ) {
        let setup = setup("");
        let form = |credential: &str| format!("{before}secret={credential}{after}");
        prop_assert_eq!(setup.of_type("/token", FORM, &form("{key}")), Ok(Some(form(KEY))));
        let json = |credential: &str| format!("{space}{{\"auth\":{{{member}{space}\"key\":\"{credential}\"{space}}}}}");
        prop_assert_eq!(setup.of_type("/v1/x", JSON, &json("{key}")), Ok(Some(json(KEY))));
    }
}

#[test]
fn another_spelling_of_the_path_leads_no_foreign_credential_through_and_no_real_one() {
    let setup = setup("");
    for path in ["/token/", "/Token", "/TOKEN/"] {
        let form = |body| setup.of_type(path, FORM, body);
        assert_eq!(form("secret=somebody-elses"), Err(Reason::ForeignCredential), "{path}");
        assert_eq!(form("secret={key}"), Err(Reason::CredentialMisplaced), "{path}");
    }
    assert_eq!(setup.of_type("/v1/x/", JSON, "{\"auth\":{\"key\":\"x\"}}"), Err(Reason::ForeignCredential));
}

#[test]
fn what_is_swapped_into_a_body_creates_no_credentials() {
    let text = |minting| {
        let placed = declared("key", minting).replace("header x-api-key", "form /** secret");
        placed.replace("api.example.com", "api.github.com")
    };
    // Granted, allowed to, and not used.
    let helper = text("minting = [\"deploy-key\"]").replace("[key]", "[helper]");
    let helper = helper.replace("/run/secrets/key", "/run/secrets/helper");
    for (minting, expected) in [("", Err(Reason::CredentialMinting)), ("minting = [\"deploy-key\"]", Ok(()))]
    {
        let vault = vault(
            &[text(minting), helper.clone()].concat(),
            &Values::from([("key", KEY), ("helper", OTHER)]),
        );
        let grants: Grants = ["key", "helper"].into_iter().collect();
        let setup = Setup { vault, grants, host: "api.github.com".parse().unwrap() };
        let sent = setup.of_type("/repos/o/r/keys", FORM, "secret={key}").map(drop);
        assert_eq!(sent, expected, "{minting}");
    }
}

/// Its methods that write take JSON, with the token in the header (docs.slack.dev/apis/web-api).
#[test]
fn every_type_that_slack_takes_goes_through() {
    const TOKEN: &str = "xoxb-123456789012-1234567890123-abcdefghijklmnopqrstuvwX";
    let text = "[slack]\nlike = \"slack-bot-token\"\nfile = \"/run/secrets/slack\"\ngrant-to = { harnesses = [\"generic\"] }\n";
    let vault = vault(text, &Values::from([("slack", TOKEN)]));
    let grants = ["slack"].into_iter().collect();
    let setup = Setup { vault, grants, host: "slack.com".parse().unwrap() };
    let multipart = |value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{value}\r\n--b--\r\n")
    };
    let path = "/api/chat.postMessage";
    for (kind, body, sent) in [
        (FORM, "token={slack}&text=x".to_owned(), format!("token={TOKEN}&text=x")),
        (JSON, r#"{"channel":"C1","text":"x"}"#.to_owned(), r#"{"channel":"C1","text":"x"}"#.to_owned()),
        ("multipart/form-data; boundary=b", multipart("{slack}"), multipart(TOKEN)),
    ] {
        assert_eq!(setup.of_type(path, kind, &body), Ok(Some(sent)), "{kind}");
    }
    let theirs = r#"{"token":"xoxb-123456789012-1234567890123-theirstheirstheirstheir"}"#;
    assert_eq!(setup.of_type(path, JSON, theirs), Err(Reason::ForeignCredential));
}
