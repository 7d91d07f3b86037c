use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::super::fixture::{Values, declared, vault};
use super::*;

const KEY: &str = "sk-ant-api03-REALrealREAL0123456789";
const TOKEN: &str = "tok-REALrealREAL0123456789token";
const OTHER: &str = "oth-REALrealREAL0123456789other";
const THEME: &str = "shptka_0123456789abcdef0123456789abcdef";

/// `key` and `theme` are granted, `token` (for the same host) and `gone` (for another, unreadable) are not.
struct Setup {
    vault: Vault,
    grants: Grants,
}

fn setup() -> Setup {
    let token = declared("token", "")
        .replace("\"api-key\"", "\"bearer\"")
        .replace("placements = [\"header x-api-key\"]\n", "");
    let other = declared("other", "").replace("api.example.com", "*.other.example");
    let theme = declared("theme", "")
        .replace("api.example.com", "shop.example")
        .replace("\"header x-api-key\"", "\"header x-token\", \"header authorization\"");
    let gone = declared("gone", "prefix = \"acme_\"").replace("api.example.com", "gone.example");
    let text = [declared("key", ""), token, other, theme, gone].concat();
    let values = Values::from([("key", KEY), ("token", TOKEN), ("other", OTHER), ("theme", THEME)]);
    Setup { vault: vault(&text, &values), grants: ["key", "theme", "other"].into_iter().collect() }
}

impl Setup {
    fn stand_in(&self, name: &str) -> &str {
        self.vault.secret(name).unwrap().stand_in()
    }

    /// `{NAME}` in a value or URL is that secret's stand-in.
    fn fill(&self, text: &str) -> String {
        self.vault.secrets().iter().fold(text.to_owned(), |text, secret| {
            text.replace(&format!("{{{}}}", secret.name()), secret.stand_in())
        })
    }

    fn examine(&self, url: &str, headers: &[(&str, &str)], tls: bool) -> Result<Swaps, CredentialDenial> {
        let uri: Uri = self.fill(url).parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(self.fill(name).as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(self.fill(value).as_bytes()).unwrap());
        }
        let host = HostName::from_wire(uri.host().unwrap().as_bytes()).unwrap();
        examine(
            &self.vault,
            &self.grants,
            &MintedNow::default(),
            RequestHead { host: &host, method: &Method::GET, verified_tls: tls, uri: &uri, headers: &map },
        )
    }

    fn reason(&self, url: &str, headers: &[(&str, &str)]) -> Option<Reason> {
        self.examine(url, headers, true).err().map(|denial| denial.reason)
    }
}

#[test]
fn a_stand_in_in_its_place_is_swapped_and_the_rest_is_left() {
    let setup = setup();
    let swaps = setup
        .examine(
            "https://api.example.com/v1/messages?beta=true",
            &[("x-api-key", "{key}"), ("accept", "*/*")],
            true,
        )
        .unwrap();
    let [(name, 0, value)] = swaps.headers.as_slice() else { panic!("{swaps:?}") };
    assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-key", KEY));
    assert!(value.is_sensitive());
    assert_eq!(swaps.secrets, ["key"]);
}

#[test]
fn a_scheme_stays_as_it_was_spelled() {
    let mut setup = setup();
    setup.grants = ["token"].into_iter().collect();
    for (sent, leaves) in [
        ("Bearer {token}", format!("Bearer {TOKEN}")),
        ("bearer {token}", format!("bearer {TOKEN}")),
        ("BEARER  {token} ", format!("BEARER  {TOKEN} ")),
    ] {
        let swaps = setup.examine("https://api.example.com/", &[("authorization", sent)], true).unwrap();
        assert_eq!(swaps.headers[0].2.to_str().unwrap(), leaves, "{sent:?}");
    }
}

#[test]
fn one_secret_can_stand_in_two_headers_and_in_each_once() {
    let setup = setup();
    let both = [("x-token", "{theme}"), ("authorization", "{theme}")];
    let swaps = setup.examine("https://shop.example/", &both, true).unwrap();
    assert_eq!((swaps.headers.len(), swaps.secrets.as_slice()), (2, ["theme".to_owned()].as_slice()));
    for other in ["{theme}", "mine", ""] {
        for repeated in
            [[("x-token", "{theme}"), ("x-token", other)], [("x-token", other), ("x-token", "{theme}")]]
        {
            assert_eq!(setup.reason("https://shop.example/", &repeated), Some(Reason::Malformed), "{other}");
        }
    }
}

#[test]
fn nothing_is_ever_injected() {
    let setup = setup();
    for headers in [[].as_slice(), &[("x-api-key", "")], &[("accept", "text/html")]] {
        let swaps = setup.examine("https://api.example.com/", headers, true).unwrap();
        assert!(swaps.headers.is_empty() && swaps.secrets.is_empty());
    }
}

#[test]
fn the_table_of_reasons() {
    let setup = setup();
    let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(setup.fill(text)));
    let url_safe = BASE64_URL_SAFE_NO_PAD.encode(setup.fill("xx{key}yy"));
    let percent: String = setup.stand_in("key").bytes().map(|b| format!("%{b:02X}")).collect();
    let key_upper = setup.stand_in("key").to_uppercase();
    let api = "https://api.example.com/";
    let away = "https://elsewhere.example/";
    for (url, header, value, reason) in [
        // Not granted, wherever it goes.
        (api, "authorization", "Bearer {token}".to_owned(), Reason::CredentialNotGranted),
        (away, "authorization", "Bearer {token}".to_owned(), Reason::CredentialNotGranted),
        ("https://api.example.com/?t={token}", "accept", "*/*".to_owned(), Reason::CredentialNotGranted),
        // Another host, in any form and place.
        (away, "x-api-key", "{key}".to_owned(), Reason::CredentialMisdirected),
        (away, "x-anything", "a {key} b".to_owned(), Reason::CredentialMisdirected),
        (away, "authorization", basic("user:{key}"), Reason::CredentialMisdirected),
        (away, "cookie", format!("a={url_safe}"), Reason::CredentialMisdirected),
        ("https://elsewhere.example/{key}", "accept", "*/*".to_owned(), Reason::CredentialMisdirected),
        ("https://example.com/", "x-api-key", "{key}".to_owned(), Reason::CredentialMisdirected),
        ("https://a.api.example.com/", "x-api-key", "{key}".to_owned(), Reason::CredentialMisdirected),
        ("https://notapi.example.com/", "x-api-key", "{key}".to_owned(), Reason::CredentialMisdirected),
        ("https://other.example/", "x-api-key", "{other}".to_owned(), Reason::CredentialMisdirected),
        ("https://notother.example/", "x-api-key", "{other}".to_owned(), Reason::CredentialMisdirected),
        // The right host, the wrong place.
        (api, "authorization", "Bearer {key}".to_owned(), Reason::CredentialMisplaced),
        (api, "authorization", basic("user:{key}"), Reason::CredentialMisplaced),
        (api, "authorization", basic("{key}:"), Reason::CredentialMisplaced),
        (api, "x-api-key", "Bearer {key}".to_owned(), Reason::CredentialMisplaced),
        (api, "x-api-key", "{key},{key}".to_owned(), Reason::CredentialMisplaced),
        (api, "x-api-key", "{key}, other".to_owned(), Reason::CredentialMisplaced),
        (api, "x-api-key", "{key}x".to_owned(), Reason::CredentialMisplaced),
        (api, "x-api-key", percent, Reason::CredentialMisplaced),
        (api, "x-api-key", key_upper, Reason::CredentialMisplaced),
        (api, "user-agent", "agent {key}".to_owned(), Reason::CredentialMisplaced),
        ("https://api.example.com/?key={key}", "accept", "*/*".to_owned(), Reason::CredentialMisplaced),
        ("https://api.example.com/a{key}b/", "accept", "*/*".to_owned(), Reason::CredentialMisplaced),
        // Somebody else's, where ours are bound.
        (api, "x-api-key", "sk-ant-api03-attacker".to_owned(), Reason::ForeignCredential),
        (api, "x-api-key", "x".to_owned(), Reason::ForeignCredential),
        (api, "authorization", "Bearer attacker".to_owned(), Reason::ForeignCredential),
        (api, "authorization", "Basic YTpi".to_owned(), Reason::ForeignCredential),
        (api, "x-goog-api-key", "attacker".to_owned(), Reason::ForeignCredential),
        (api, "x-custom", "sk-ant-api03-abcdefghij0123456789".to_owned(), Reason::ForeignCredential),
        (
            "https://api.example.com/?k=AIzaSyA0123456789abcdefghijklmnopqrstuv",
            "accept",
            "*/*".to_owned(),
            Reason::ForeignCredential,
        ),
        (
            "https://api.example.com/bot/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/send",
            "accept",
            "*/*".to_owned(),
            Reason::ForeignCredential,
        ),
        (
            "https://gone.example/",
            "x-custom",
            "acme_abcdefghij0123456789".to_owned(),
            Reason::ForeignCredential,
        ),
        (
            "https://gone.example/?k=acme_abcdefghij0123456789",
            "accept",
            "*/*".to_owned(),
            Reason::ForeignCredential,
        ),
        ("https://a.other.example/", "x-api-key", "attacker".to_owned(), Reason::ForeignCredential),
        ("https://gone.example/", "x-api-key", "attacker".to_owned(), Reason::ForeignCredential),
        // Real ones, in any form and place, whoever was granted them.
        (api, "x-api-key", KEY.to_owned(), Reason::RealCredential),
        (api, "x-api-key", KEY.to_lowercase(), Reason::RealCredential),
        (api, "authorization", format!("Bearer {TOKEN}"), Reason::RealCredential),
        (away, "x-note", format!("{{key}} and {OTHER}"), Reason::RealCredential),
        (away, "authorization", basic(&format!("u:{KEY}")), Reason::RealCredential),
        (away, "cookie", BASE64_URL_SAFE_NO_PAD.encode(format!("abc{TOKEN}")), Reason::RealCredential),
        (
            "https://elsewhere.example/?a=sk-ant-api03-REALrealREAL0123456789",
            "accept",
            "*/*".to_owned(),
            Reason::RealCredential,
        ),
        (
            "https://elsewhere.example/sk%2dant-api03-REALrealREAL012345678%39",
            "accept",
            "*/*".to_owned(),
            Reason::RealCredential,
        ),
        (
            "https://tok-realrealreal0123456789token.elsewhere.example/",
            "accept",
            "*/*".to_owned(),
            Reason::RealCredential,
        ),
    ] {
        assert_eq!(setup.reason(url, &[(header, &value)]), Some(reason), "{url} {header}: {value}");
    }
}

#[test]
fn a_value_in_a_header_name_is_found_and_not_repeated() {
    let setup = setup();
    let denial = setup.examine("https://elsewhere.example/", &[(KEY, "x")], true).unwrap_err();
    assert_eq!((denial.reason, denial.place.as_str()), (Reason::RealCredential, "the name of a header"));
    let denial = setup.examine("https://elsewhere.example/", &[("{key}", "x")], true).unwrap_err();
    assert_eq!(denial.reason, Reason::CredentialMisdirected);
}

/// HTTP/1.1 requests have no host in their URL.
#[test]
fn the_host_name_is_searched_too() {
    let setup = setup();
    let host: HostName = format!("{}.elsewhere.example", TOKEN.to_lowercase()).parse().unwrap();
    let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
    let head =
        RequestHead { host: &host, method: &Method::GET, verified_tls: true, uri: &uri, headers: &headers };
    let denial = examine(&setup.vault, &setup.grants, &MintedNow::default(), head).unwrap_err();
    assert_eq!((denial.reason, denial.place.as_str()), (Reason::RealCredential, "host name"));
}

/// Of a secret that was removed, or has another name now.
#[test]
fn a_stand_in_that_nobody_remembers_is_told_from_a_foreign_credential() {
    let setup = setup();
    let former = vault(&declared("former", ""), &Values::from([("former", "tok-formerFORMER0123456789")]));
    let stale = former.secret("former").unwrap().stand_in();
    let encoded: String = stale.bytes().map(|b| format!("%{b:02X}")).collect();
    for (url, header, value) in [
        ("https://api.example.com/", "x-api-key", stale.to_owned()),
        ("https://api.example.com/", "authorization", format!("Bearer {stale}")),
        ("https://elsewhere.example/", "x-note", format!("a {stale}, b")),
        ("https://elsewhere.example/", "x-note", encoded),
        (&format!("https://elsewhere.example/?k={stale}&x"), "accept", "*/*".to_owned()),
    ] {
        let denial = setup.examine(url, &[(header, &value)], true).unwrap_err();
        assert_eq!(
            (denial.reason, denial.secret.as_deref()),
            (Reason::CredentialNotGranted, None),
            "{url} {value}"
        );
        assert!(denial.remedy.contains("start the container again"), "{denial:?}");
    }
    let other =
        setup.examine("https://elsewhere.example/", &[("x-note", "tok-formerFORMER0123456789")], true);
    assert!(other.is_ok(), "{other:?}");
}

#[test]
fn the_method_is_searched_too() {
    let setup = setup();
    let host = "api.example.com".parse().unwrap();
    let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
    for (method, reason) in
        [(KEY, Reason::RealCredential), (setup.stand_in("key"), Reason::CredentialMisplaced)]
    {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        let denial = examine(&setup.vault, &setup.grants, &MintedNow::default(), head).unwrap_err();
        assert_eq!((denial.reason, denial.place.as_str()), (reason, "method"));
    }
}

#[test]
fn without_verified_tls_nothing_is_swapped() {
    let setup = setup();
    let denial = setup.examine("http://api.example.com/", &[("x-api-key", "{key}")], false).unwrap_err();
    assert_eq!(
        (denial.reason, denial.remedy.as_str()),
        (Reason::CredentialInClear, "use https://api.example.com")
    );
    // A wrong host or place is the reason that is told first: https would not help.
    let denial = setup.examine("http://elsewhere.example/", &[("x-api-key", "{key}")], false).unwrap_err();
    assert_eq!(denial.reason, Reason::CredentialMisdirected);
    assert!(setup.examine("http://api.example.com/", &[("accept", "*/*")], false).is_ok());
}

#[test]
fn hosts_of_nobody_may_get_any_credential_of_the_agents_own() {
    let setup = setup();
    assert_eq!(setup.reason("https://elsewhere.example/?key=x", &[("authorization", "Bearer mine")]), None);
}

#[test]
fn a_denial_tells_secret_place_and_remedy_and_no_value() {
    let setup = setup();
    for (url, header, value) in [
        ("https://elsewhere.example/", "x-api-key", "{key}".to_owned()),
        ("https://api.example.com/", "x-other", "{key}".to_owned()),
        ("https://api.example.com/", "authorization", "Bearer {token}".to_owned()),
        ("https://api.example.com/", "x-api-key", KEY.to_owned()),
    ] {
        let denial = setup.examine(url, &[(header, &value)], true).unwrap_err();
        assert!(denial.secret.is_some() && denial.place == format!("header {header}"), "{denial:?}");
        assert!(denial.remedy.contains(denial.secret.as_deref().unwrap()), "{denial:?}");
        assert!(!format!("{denial:?}").contains("0123456789"), "{denial:?}");
    }
}

#[test]
fn swaps_do_not_print_values() {
    let setup = setup();
    let swaps = setup.examine("https://api.example.com/", &[("x-api-key", "{key}")], true).unwrap();
    assert!(!format!("{swaps:?}{swaps:#?}").contains("REALreal"), "{swaps:?}");
}

proptest! {
    /// Whatever a container sends: no panic, and what leaves differs from what was sent only where an exact stand-in
    /// stood in its place.
    #[test]
    fn only_exact_stand_ins_are_replaced(
        name in prop_oneof![Just("x-api-key".to_owned()), Just("authorization".to_owned()), "[a-z]{1,8}"],
        value in prop_oneof!["\\PC{0,40}", "[ -~]{0,6}\\{key\\}[ -~]{0,6}", Just("{key}".to_owned())],
        path in "[!-~&&[^#?\"<>\\\\^`{|}]]{0,30}", host in "(api\\.example\\.com|[a-z]{1,8}\\.example)",
    ) {
        let setup = setup();
        let filled = setup.fill(&value);
        let Ok(uri) = format!("https://{host}/{path}").parse::<Uri>() else { return Ok(()) };
        let Ok(value) = HeaderValue::from_bytes(filled.as_bytes()) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        let host = HostName::from_wire(host.as_bytes()).unwrap();
        let head = RequestHead { host: &host, method: &Method::GET, verified_tls: true, uri: &uri, headers: &headers };
        if let Ok(swaps) = examine(&setup.vault, &setup.grants, &MintedNow::default(), head) {
            for (header, _, value) in swaps.headers {
                prop_assert_eq!((header.as_str(), host.as_str()), ("x-api-key", "api.example.com"));
                prop_assert_eq!(filled.trim(), setup.stand_in("key"));
                prop_assert_eq!(value.to_str().unwrap(), KEY);
            }
        }
    }
}
