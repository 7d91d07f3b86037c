use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, Uri};

use super::super::examine::{Swaps, examine};
use super::super::fixture::{Values, declared};
use super::super::{Catalogue, Holdings, InstallationKey, Vault, declaration};
use super::*;

const ACME: &str = r#"
name = "acme"
what = "Acme"
hosts = ["api.example.com"]

[[minted]]
name = "session"
paths = ["/sessions", "/sessions/*/again"]
field = "/secret"
placements = "header authorization Bearer"
wrap = true

[[minted]]
name = "ticket"
method = "GET"
paths = "/ticket"
field = "/data/0/ticket"
used-at = "tickets.example.com"
placements = "header x-ticket"
wrap = false

[[minted]]
name = "work"
method = "GET"
paths = "/work"
field = "/packed"
inside = "/with/token"
harmless = "args"
left-out = ["auth", "sources"]
placements = "header authorization Bearer"
wrap = true
"#;
const SECRET: &str = "ses_0123456789abcdefghijABCDEFGHIJ";
const TICKET: &str = "tick-0123456789abcdef";

struct Setup {
    vault: Vault,
    holdings: Holdings,
    grants: Grants,
}

impl Setup {
    fn new() -> Self {
        Self::with(&declared("key", ""))
    }

    fn with(text: &str) -> Self {
        let catalogue = Arc::new(Catalogue::new([("acme.toml".to_owned(), ACME.to_owned())]).unwrap());
        let declared = declaration::parse("secrets.toml", text, &catalogue).unwrap();
        let values = Values::from([("key", "sk-0123456789abcdefghij")]);
        let key = InstallationKey::from_bytes(&[1; 32]);
        let read = |_: &_| Ok(Zeroizing::new(values["key"].as_bytes().to_vec()));
        let vault = Vault::new(declared, catalogue, &key, read).unwrap();
        Self { vault, holdings: Holdings::default(), grants: ["key"].into_iter().collect() }
    }

    fn now(&self) -> MintedNow {
        self.holdings.minted(Instant::now())
    }

    fn minting(&self, method: &str, path: &str, by: &[&str]) -> Option<Minting> {
        self.minting_at(HOST, method, path, by)
    }

    fn minting_at(&self, host: &str, method: &str, path: &str, by: &[&str]) -> Option<Minting> {
        let swaps = Swaps { secrets: by.iter().map(|&name| name.to_owned()).collect(), ..Swaps::default() };
        let (host, method) = (host.parse().unwrap(), method.parse().unwrap());
        Minting::of(&self.vault, &host, &method, path, &swaps, &self.now())
    }

    /// What the container gets of the answer.
    fn settle(&self, method: &str, path: &str, body: &str) -> Result<String, MintError> {
        let minting = self.minting(method, path, &["key"]).unwrap();
        let settled = minting.settle(&self.vault, &self.holdings, body.as_bytes(), Instant::now())?;
        Ok(String::from_utf8(settled.to_vec()).unwrap())
    }

    fn wrapped(&self) -> String {
        let body = self.settle("POST", "/sessions", &format!("{{\"secret\":\"{SECRET}\"}}")).unwrap();
        body.strip_prefix("{\"secret\":\"").unwrap().strip_suffix("\"}").unwrap().to_owned()
    }

    fn send(
        &self,
        grants: &Grants,
        host: &str,
        url: &str,
        tls: bool,
        headers: &[(&str, &str)],
    ) -> Result<Swaps, CredentialDenial> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let (host, uri) = (host.parse().unwrap(), url.parse::<Uri>().unwrap());
        let head =
            RequestHead { host: &host, method: &Method::GET, verified_tls: tls, uri: &uri, headers: &map };
        examine(&self.vault, grants, &self.now(), head)
    }

    fn sent(&self, host: &str, header: &str, value: &str) -> Result<Option<String>, Reason> {
        let swaps = self.send(&self.grants, host, "/", true, &[(header, value)]);
        let swaps = swaps.map_err(|denial| denial.reason)?;
        Ok(swaps.headers.first().map(|(_, _, value)| value.to_str().unwrap().to_owned()))
    }
}

const HOST: &str = "api.example.com";

#[test]
fn only_a_declared_request_with_a_swap_mints() {
    let setup = Setup::new();
    for (method, path, by, expected) in [
        ("POST", "/sessions", &["key"][..], true),
        ("POST", "/sessions/7/again", &["key"], true),
        ("GET", "/ticket", &["key"], true),
        ("POST", "/sessions", &[], false),
        ("GET", "/sessions", &["key"], false),
        ("POST", "/SESSIONS", &["key"], false),
        ("POST", "/x/../sessions", &["key"], false),
        ("POST", "/sessions/", &["key"], false),
    ] {
        assert_eq!(setup.minting(method, path, by).is_some(), expected, "{method} {path} {by:?}");
    }
}

#[test]
fn a_wrapped_one_is_a_stand_in_inside_and_itself_outside() {
    let setup = Setup::new();
    let stand_in = setup.wrapped();
    assert!(stand_in != SECRET && stand_in.len() == SECRET.len(), "{stand_in}");
    // The same answer again, the same stand-in.
    assert_eq!(setup.wrapped(), stand_in);
    let bearer = |word: &str| format!("Bearer {word}");
    assert_eq!(setup.sent(HOST, "authorization", &bearer(&stand_in)), Ok(Some(bearer(SECRET))));
    let swaps = setup.send(&setup.grants, HOST, "/", true, &[("authorization", &bearer(&stand_in))]).unwrap();
    assert_eq!(swaps.secrets, ["acme session"]);
    assert_eq!(setup.sent(HOST, "authorization", &bearer(SECRET)), Err(Reason::RealCredential));
    assert_eq!(setup.sent(HOST, "x-api-key", &stand_in), Err(Reason::CredentialMisdirected));
    assert_eq!(
        setup.sent("other.example.com", "authorization", &bearer(&stand_in)),
        Err(Reason::CredentialMisdirected)
    );
    assert_eq!(
        setup.sent(HOST, "authorization", "Bearer other-0123456789abcdef"),
        Err(Reason::ForeignCredential)
    );
    let of = |url: &str, tls, headers: &[(&str, &str)]| {
        setup.send(&setup.grants, HOST, url, tls, headers).unwrap_err().reason
    };
    let held = bearer(&stand_in);
    assert_eq!(of("/", false, &[("authorization", &held)]), Reason::CredentialInClear);
    assert_eq!(of("/", true, &[("authorization", &held), ("authorization", &held)]), Reason::Malformed);
    assert_eq!(of(&format!("/?x={stand_in}"), true, &[]), Reason::CredentialMisdirected);
    assert_eq!(
        of(&format!("/?x={}", stand_in.replace('_', "%5f")), true, &[]),
        Reason::CredentialMisdirected
    );
}

#[test]
fn it_is_nothing_to_another_container_and_without_the_grant_it_came_from() {
    let (setup, other) = (Setup::new(), Setup::new());
    let held = format!("Bearer {}", setup.wrapped());
    // Known by its mark, and refused.
    assert_eq!(other.sent(HOST, "authorization", &held), Err(Reason::CredentialNotGranted));
    let lost = setup.send(&Grants::default(), HOST, "/", true, &[("authorization", &held)]).unwrap_err();
    assert_eq!(lost.reason, Reason::CredentialMisdirected);
    setup.holdings.forget();
    assert_eq!(setup.sent(HOST, "authorization", &held), Err(Reason::CredentialNotGranted));
}

#[test]
fn one_that_is_not_wrapped_goes_through_as_it_is() {
    let setup = Setup::new();
    assert_eq!(
        setup.sent(HOST, "authorization", &format!("Bearer {TICKET}")),
        Err(Reason::ForeignCredential)
    );
    let body = format!("{{\"data\":[{{\"ticket\":\"{TICKET}\"}}]}}");
    assert_eq!(setup.settle("GET", "/ticket", &body).unwrap(), body);
    assert_eq!(setup.sent("tickets.example.com", "x-ticket", TICKET), Ok(None));
    // Where the secret is bound it was not made for.
    assert_eq!(
        setup.sent(HOST, "authorization", &format!("Bearer {TICKET}")),
        Err(Reason::ForeignCredential)
    );
}

#[test]
fn what_is_minted_by_a_minted_one_has_the_grants_of_the_first() {
    let setup = Setup::new();
    setup.wrapped();
    let minting = setup.minting("POST", "/sessions/7/again", &["acme session"]).unwrap();
    let body = "{\"secret\":\"ses_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\"}";
    minting.settle(&setup.vault, &setup.holdings, body.as_bytes(), Instant::now()).unwrap();
    assert_eq!(setup.now().usable(&setup.grants, &HOST.parse().unwrap()).count(), 2);
    assert_eq!(setup.now().usable(&Grants::default(), &HOST.parse().unwrap()).count(), 0);
}

#[test]
fn an_answer_in_which_it_cannot_be_told_does_not_go_on() {
    let setup = Setup::new();
    for (body, error) in [
        ("{\"other\":1}", None),
        ("{\"secret\":null}", None),
        ("{\"secret\":\"\"}", None),
        ("not json", Some(MintError::Body(crate::credentials::body::FieldError::Malformed))),
        (
            "{\"secret\":\"a\",\"secret\":\"b\"}",
            Some(MintError::Body(crate::credentials::body::FieldError::Twice)),
        ),
        ("{\"secret\":{\"x\":\"y\"}}", Some(MintError::NoText)),
        ("{\"secret\":\"short\"}", Some(MintError::Shape)),
        ("{\"secret\":\"with white space in it\"}", Some(MintError::Shape)),
    ] {
        assert_eq!(setup.settle("POST", "/sessions", body).err(), error, "{body}");
        assert_eq!(setup.now().all().count(), 0);
    }
    // A stand-in that comes back is no new credential.
    let own = format!("{{\"secret\":\"{}\"}}", setup.vault.secret("key").unwrap().stand_in());
    assert_eq!(setup.settle("POST", "/sessions", &own).unwrap(), own);
    assert_eq!(setup.now().all().count(), 0);
}

/// A registry sends its clients to an address that answers a name and a password with a token (distribution specification,
/// "Token Authentication").
#[test]
fn a_container_registrys_token_is_a_stand_in_at_the_registry() {
    const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJhY2Nlc3MiOltdLCJleHAiOjE3fQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ";
    let setup = |hosts: &str| {
        Setup::with(&format!(
            "[key]\nlike = \"container-registry\"\nfile = \"/run/secrets/key\"\nhosts = [{hosts}]\n\
             grant-to = {{ harnesses = [\"generic\"] }}\n"
        ))
    };
    let bearer = |word: &str| format!("Bearer {word}");
    for (hosts, asked, path, used, elsewhere) in [
        (
            "\"registry.example.com\"",
            "registry.example.com",
            "/v2/token",
            "registry.example.com",
            "other.example.com",
        ),
        ("\"auth.docker.io\"", "auth.docker.io", "/token", "registry-1.docker.io", "hub.docker.com"),
    ] {
        let setup = setup(hosts);
        let body = format!("{{\"token\":\"{TOKEN}\",\"access_token\":\"{TOKEN}\",\"expires_in\":300}}");
        let minting = setup.minting_at(asked, "GET", path, &["key"]).unwrap();
        let told = minting.settle(&setup.vault, &setup.holdings, body.as_bytes(), Instant::now()).unwrap();
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        for field in ["token", "access_token"] {
            let stand_in = told[field].as_str().unwrap();
            assert_ne!(stand_in, TOKEN);
            assert_eq!(setup.sent(used, "authorization", &bearer(stand_in)), Ok(Some(bearer(TOKEN))));
            let elsewhere = setup.sent(elsewhere, "authorization", &bearer(stand_in));
            assert_eq!(elsewhere, Err(Reason::CredentialMisdirected));
        }
        // What a registry answers holds no token that the container has not.
        assert!(setup.now().is_swapped_at(&setup.grants, &used.parse().unwrap()));
        assert!(!setup.now().is_swapped_at(&setup.grants, &elsewhere.parse().unwrap()));
        assert!(!setup.now().is_swapped_at(&Grants::default(), &used.parse().unwrap()));
    }
}

#[test]
fn one_inside_of_base64url_of_json_is_a_stand_in_with_the_claims() {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;

    let setup = Setup::new();
    let jwt = |claims: &str| {
        let part = |text: &str| BASE64.encode(text);
        format!("{}.{}.{}", part(r#"{"alg":"RS256"}"#), part(claims), part(&"s".repeat(64)))
    };
    let real = format!("ses-si-{}", jwt(r#"{"session_id":"one","exp":4102444800}"#));
    let packed = BASE64.encode(format!(r#"{{"version":1,"with":{{"token":"{real}"}},"url":"https://x"}}"#));
    let got = setup.settle("GET", "/work", &format!(r#"{{"id":"w","packed":"{packed}"}}"#)).unwrap();
    let got: serde_json::Value = serde_json::from_str(&got).unwrap();
    let inner = BASE64.decode(got["packed"].as_str().unwrap()).unwrap();
    let inner: serde_json::Value = serde_json::from_slice(&inner).unwrap();
    assert_eq!((&inner["version"], &inner["url"], &got["id"]), (&1.into(), &"https://x".into(), &"w".into()));
    let stand_in = inner["with"]["token"].as_str().unwrap();
    let (claims, signature) = real.rsplit_once('.').unwrap();
    assert!(stand_in.starts_with(claims) && !stand_in.ends_with(signature), "{stand_in}");
    let bearer = |word: &str| format!("Bearer {word}");
    assert_eq!(setup.sent(HOST, "authorization", &bearer(stand_in)), Ok(Some(bearer(&real))));
    assert_eq!(setup.sent(HOST, "authorization", &bearer(&real)), Err(Reason::RealCredential));
    // Nothing to do, and what cannot be told.
    for body in ["null", r#"{"packed":null}"#, r#"{"packed":""}"#] {
        assert_eq!(setup.settle("GET", "/work", body).unwrap(), body);
    }
    for packed in ["not base64!", "bm90IGpzb24"] {
        let body = format!(r#"{{"packed":"{packed}"}}"#);
        assert!(matches!(setup.settle("GET", "/work", &body), Err(MintError::Body(_))), "{packed}");
    }
    // Then what else is there could be what the container must not have.
    let packing = |inner: &str| format!(r#"{{"packed":"{}"}}"#, BASE64.encode(inner));
    for inner in ["{}", r#"{"with":{}}"#, r#"{"with":{"token":null}}"#, r#"{"with":{"token":""}}"#] {
        assert_eq!(setup.settle("GET", "/work", &packing(inner)), Err(MintError::Absent), "{inner}");
    }
    assert_eq!(
        setup.settle("GET", "/work", &packing(r#"{"with":{"token":{"x":1}}}"#)),
        Err(MintError::NoText)
    );
    for (body, at) in [
        (packing(&format!(r#"{{"with":{{"token":"{real}","secret":"x"}}}}"#)), "with/secret"),
        (format!(r#"{{"packed":"","data":{{"token":"{real}"}}}}"#), "data/token"),
    ] {
        assert_eq!(setup.settle("GET", "/work", &body), Err(MintError::Beside(at.to_owned())), "{body}");
    }
    let body = packing(&format!(r#"{{"auth":[{{"token":"{SECRET}"}}],"with":{{"token":"{real}"}}}}"#));
    let got: serde_json::Value = serde_json::from_str(&setup.settle("GET", "/work", &body).unwrap()).unwrap();
    let inner = BASE64.decode(got["packed"].as_str().unwrap()).unwrap();
    let inner: serde_json::Value = serde_json::from_slice(&inner).unwrap();
    assert_eq!(inner, serde_json::json!({"with": {"token": stand_in}}));
}
