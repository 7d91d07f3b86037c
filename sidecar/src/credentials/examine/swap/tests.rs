//! Each placement: what leaves differs from what was sent in the credential alone.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Uri};
use proptest::prelude::*;
use understudy_policies::HostName;

use super::super::super::fixture::{Values, declared, vault};
use super::super::super::{Grants, Vault};
use super::super::{CredentialDenial, RequestHead, Swaps, examine};
use super::*;
use crate::credentials::MintedNow;

const KEY: &str = "key-REALrealREAL_0123456789";
const USER: &str = "usr-REALrealREAL-0123456789";
const HOST: &str = "api.example.com";

struct Setup {
    vault: Vault,
    grants: Grants,
}

/// `key` stands where it is told, and is granted; `user` is for user names of Basic.
fn setup(placements: &str) -> Setup {
    setup_with(placements, "")
}

fn setup_with(placements: &str, more: &str) -> Setup {
    let with = |name: &str, placements: &str, more: &str| {
        declared(name, more).replace("[\"header x-api-key\"]", placements)
    };
    let text = [with("key", placements, more), with("user", "[\"basic user\"]", "")].concat();
    let vault = vault(&text, &Values::from([("key", KEY), ("user", USER)]));
    assert!(vault.unusable().is_empty(), "{:?}", vault.unusable());
    Setup { vault, grants: ["key", "user"].into_iter().collect() }
}

impl Setup {
    fn fill(&self, text: &str) -> String {
        self.vault.secrets().iter().fold(text.to_owned(), |text, secret| {
            text.replace(&format!("{{{}}}", secret.name()), secret.stand_in())
        })
    }

    fn examine(&self, url: &str, headers: &[(&str, &str)]) -> Result<Swaps, CredentialDenial> {
        self.request(&Method::GET, url, headers)
    }

    fn request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Swaps, CredentialDenial> {
        let uri: Uri = self.fill(url).parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, self.fill(value).parse().unwrap());
        }
        let host: HostName = HOST.parse().unwrap();
        let head = RequestHead { host: &host, method, verified_tls: true, uri: &uri, headers: &map };
        examine(&self.vault, &self.grants, &MintedNow::default(), head)
    }

    /// What leaves as this header, or the reason why nothing does.
    fn header(&self, name: &str, value: &str) -> Result<String, Reason> {
        let swaps = self.examine("/", &[(name, value)]).map_err(|denial| denial.reason)?;
        let [(_, 0, value)] = swaps.headers.as_slice() else { return Ok(self.fill(value)) };
        assert!(value.is_sensitive() && swaps.path.is_none());
        Ok(value.to_str().unwrap().to_owned())
    }

    fn url(&self, url: &str) -> Result<String, Reason> {
        let swaps = self.examine(url, &[]).map_err(|denial| denial.reason)?;
        assert!(swaps.headers.is_empty());
        let sent = self.fill(url).parse::<Uri>().unwrap().path_and_query().unwrap().to_string();
        Ok(swaps.path.map_or(sent, |path| path.path_and_query().to_string()))
    }
}

fn basic(text: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(text))
}

#[test]
fn basic_is_decoded_and_encoded_again() {
    let setup = setup("[\"basic password\"]");
    let sent = |text: &str| setup.header("authorization", &basic(&setup.fill(text)));
    assert_eq!(sent("x-access-token:{key}"), Ok(basic(&format!("x-access-token:{KEY}"))));
    assert_eq!(sent(":{key}"), Ok(basic(&format!(":{KEY}"))));
    assert_eq!(sent("{user}:x-oauth-basic"), Ok(basic(&format!("{USER}:x-oauth-basic"))));
    assert_eq!(sent("{user}:{key}"), Ok(basic(&format!("{USER}:{KEY}"))));
    let unpadded = BASE64_STANDARD_NO_PAD.encode(setup.fill("a:{key}"));
    assert_eq!(
        setup.header("authorization", &format!("bAsIc \t{unpadded}")),
        Ok(format!("bAsIc \t{}", BASE64_STANDARD.encode(format!("a:{KEY}"))))
    );
    for (text, reason) in [
        ("{key}:", Reason::CredentialMisplaced),
        ("x:{user}", Reason::CredentialMisplaced),
        ("{key}:{key}", Reason::CredentialMisplaced),
        ("x:{key} ", Reason::CredentialMisplaced),
        ("x:y:{key}", Reason::CredentialMisplaced),
        ("x:theirs", Reason::ForeignCredential),
        // The other half is no way out either.
        ("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:{key}", Reason::ForeignCredential),
    ] {
        assert_eq!(sent(text), Err(reason), "{text}");
    }
}

#[test]
fn basic_that_is_none_is_malformed_where_secrets_are_bound_only() {
    let setup = setup("[\"basic password\"]");
    for value in ["Basic !!!", "Basic YWJj", "Basic YWJjOg=x"] {
        assert_eq!(setup.header("authorization", value), Err(Reason::Malformed), "{value}");
    }
    // Nothing follows the scheme: a credential like any other.
    assert_eq!(setup.header("authorization", "Basic"), Err(Reason::ForeignCredential));
    let elsewhere: HostName = "elsewhere.example".parse().unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Basic !!!"))]);
    let (method, uri) = (Method::GET, Uri::from_static("/"));
    let head =
        RequestHead { host: &elsewhere, method: &method, verified_tls: true, uri: &uri, headers: &headers };
    assert!(examine(&setup.vault, &setup.grants, &MintedNow::default(), head).is_ok());
}

#[test]
fn no_cookie_is_swapped_that_a_server_may_read_as_part_of_another() {
    let setup = setup("[\"cookie sid\"]");
    for cookies in
        [&["a=\"x; sid={key}; b=\""][..], &["a=\"x\\\"; sid={key}; b=\"y\""], &["a=\"x", "sid={key}", "b=\""]]
    {
        let headers: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
        let denial = setup.examine("/", &headers).unwrap_err();
        assert_eq!(denial.reason, Reason::Malformed, "{cookies:?}");
    }
    assert!(setup.examine("/", &[("cookie", "a=\"x; b=\"")]).is_ok());
}

#[test]
fn one_cookie_of_several() {
    let setup = setup("[\"cookie sid\"]");
    let left = format!("a=1;sid={KEY}; b=\"x y\" ; sid=\"{KEY}\";c");
    assert_eq!(setup.header("cookie", "a=1;sid={key}; b=\"x y\" ; sid=\"{key}\";c"), Ok(left));
    assert_eq!(setup.header("cookie", "a=1; b=2"), Ok("a=1; b=2".to_owned()));
    for (value, reason) in [
        ("sid={key}; other={key}", Reason::CredentialMisplaced),
        ("SID={key}", Reason::CredentialMisplaced),
        ("sid={key}x", Reason::CredentialMisplaced),
        ("sid={key}; sid=theirs", Reason::ForeignCredential),
        ("sid=theirs", Reason::ForeignCredential),
        ("sid={key}; x=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", Reason::ForeignCredential),
    ] {
        assert_eq!(setup.header("cookie", value), Err(reason), "{value}");
    }
    // HTTP/2 sends each on its own.
    let swaps = setup.examine("/", &[("cookie", "a=1"), ("cookie", "sid={key}")]).unwrap();
    let [(_, 1, value)] = swaps.headers.as_slice() else { panic!("{swaps:?}") };
    assert_eq!(*value, format!("sid={KEY}"));
}

#[test]
fn parameters_of_the_query() {
    let setup = setup("[\"query key\"]");
    assert_eq!(setup.url("/a%20b?x=1&key={key}&&y"), Ok(format!("/a%20b?x=1&key={KEY}&&y")));
    assert_eq!(setup.url("/?k%65y={key}&key={key}"), Ok(format!("/?k%65y={KEY}&key={KEY}")));
    let spelled: String = setup.fill("{key}").bytes().map(|b| format!("%{b:02x}")).collect();
    assert_eq!(setup.url(&format!("/?key={spelled}")), Ok(format!("/?key={KEY}")));
    assert_eq!(setup.url("/?x=key"), Ok("/?x=key".to_owned()));
    for (url, reason) in [
        ("/{key}?key={key}", Reason::CredentialMisplaced),
        ("/?key={key}&x={key}", Reason::CredentialMisplaced),
        ("/?KEY={key}", Reason::CredentialMisplaced),
        ("/?key={key}%20", Reason::CredentialMisplaced),
        ("/?key={key};x", Reason::CredentialMisplaced),
        ("/?{key}=key", Reason::CredentialMisplaced),
        ("/?key=theirs", Reason::ForeignCredential),
        ("/?key={key}&Key=theirs", Reason::ForeignCredential),
        ("/?key={key}&x=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", Reason::ForeignCredential),
    ] {
        assert_eq!(setup.url(url), Err(reason), "{url}");
    }
}

#[test]
fn a_segment_of_the_path() {
    let setup = setup("[\"path /bot{}/**\"]");
    assert_eq!(setup.url("/bot{key}/send?x=%20"), Ok(format!("/bot{KEY}/send?x=%20")));
    let colon = format!("/bot{}/send", setup.fill("{key}").replace('-', "%2D"));
    assert_eq!(setup.url(&colon), Ok(format!("/bot{KEY}/send")));
    for (url, reason) in [
        ("/file/bot{key}/x", Reason::CredentialMisplaced),
        ("/bot{key}/{key}", Reason::CredentialMisplaced),
        ("/bot{key}/../x", Reason::CredentialMisplaced),
        ("/bot{key}/%2e%2e/x", Reason::CredentialMisplaced),
        ("/bot{key}x/send", Reason::CredentialMisplaced),
        ("/bottheirs/send", Reason::ForeignCredential),
        ("/%62ottheirs/send", Reason::ForeignCredential),
        ("/%62ot{key}/send", Reason::CredentialMisplaced),
        ("/bottheirs/../send", Reason::Malformed),
        ("//bottheirs/send", Reason::Malformed),
    ] {
        assert_eq!(setup.url(url), Err(reason), "{url}");
    }
}

#[test]
fn an_item_of_the_websocket_protocol() {
    let name = "sec-websocket-protocol";
    let setup = setup("[\"websocket-protocol api-key.\"]");
    let left = format!("realtime , api-key.{KEY},v1");
    assert_eq!(setup.header(name, "realtime , api-key.{key},v1"), Ok(left));
    assert_eq!(setup.header(name, "{key}"), Err(Reason::CredentialMisplaced));
    assert_eq!(setup.header(name, "api-key.theirs"), Err(Reason::ForeignCredential));
    let bare = tests::setup("[\"websocket-protocol\"]");
    assert_eq!(bare.header(name, "realtime, {key}"), Ok(format!("realtime, {KEY}")));
    assert_eq!(bare.header(name, "realtime"), Ok("realtime".to_owned()));
}

#[test]
fn metadata_of_grpc() {
    let setup = setup("[\"header x-token-bin\", \"header x-token\"]");
    let encoded = |text: &str| BASE64_STANDARD_NO_PAD.encode(setup.fill(text));
    assert_eq!(setup.header("x-token-bin", &encoded("{key}")), Ok(BASE64_STANDARD_NO_PAD.encode(KEY)));
    assert_eq!(setup.header("x-token", "{key}"), Ok(KEY.to_owned()));
    assert_eq!(setup.header("x-token-bin", &encoded("{key}x")), Err(Reason::CredentialMisplaced));
    assert_eq!(setup.header("x-token", &encoded("{key}")), Err(Reason::CredentialMisplaced));
    assert_eq!(setup.header("x-token-bin", &encoded("theirs")), Err(Reason::ForeignCredential));
}

#[test]
fn a_value_that_cannot_be_written_there_is_refused() {
    let text = declared("key", "").replace("header x-api-key", "cookie sid");
    let vault = vault(&text, &Values::from([("key", "semi;colon;0123456789;abc")]));
    let setup = Setup { vault, grants: ["key"].into_iter().collect() };
    let denial = setup.examine("/", &[("cookie", "sid={key}")]).unwrap_err();
    assert_eq!(denial.reason, Reason::CredentialMisplaced);
    assert!(!format!("{denial:?}").contains("semi"), "{denial:?}");
}

#[test]
fn another_spelling_of_a_header_cannot_shadow_it() {
    let setup = setup("[\"header x-api-key\"]");
    for shadow in [[("x_api_key", "theirs")].as_slice(), &[("x-api-key", "{key}"), ("x_api-key", "")]] {
        let denial = setup.examine("/", shadow).unwrap_err();
        assert_eq!(
            (denial.reason, denial.remedy.as_str()),
            (Reason::Malformed, "write the header's name with `-`")
        );
    }
    assert!(setup.examine("/", &[("x_other", "x")]).is_ok());
}

#[test]
fn methods_and_paths_hold_for_the_stand_in_alone() {
    let setup = setup_with("[\"header x-api-key\"]", "methods = [\"GET\"]\npaths = \"/v1/**\"");
    let reason = |method: Method, url: &str, header: (&str, &str)| {
        setup.request(&method, url, &[header]).err().map(|denial| denial.reason)
    };
    let key = ("x-api-key", "{key}");
    assert_eq!(reason(Method::GET, "/v1/a", key), None);
    assert_eq!(reason(Method::POST, "/v1/a", key), Some(Reason::CredentialRestricted));
    assert_eq!(reason(Method::GET, "/v2", key), Some(Reason::CredentialRestricted));
    assert_eq!(reason(Method::GET, "/v1/%2e%2e/v2", key), Some(Reason::CredentialRestricted));
    assert_eq!(reason(Method::POST, "/v2", ("accept", "*/*")), None);
    // A wrong place is told first: another path would not help.
    assert_eq!(reason(Method::POST, "/v2", ("x-other", "{key}")), Some(Reason::CredentialMisplaced));
    let denial = setup.request(&Method::POST, "/v1/a", &[key]).unwrap_err();
    assert!(
        denial.remedy.starts_with("secret `key` (secrets.toml:1): it may be used with `GET`"),
        "{denial:?}"
    );
}

#[test]
fn a_secret_can_let_other_credentials_to_its_hosts() {
    let allowing = |foreign: &str| {
        let text = declared("key", &format!("foreign = \"{foreign}\""));
        let vault = vault(&text, &Values::from([("key", KEY)]));
        Setup { vault, grants: ["key"].into_iter().collect() }
    };
    let theirs = [("x-api-key", "theirs"), ("authorization", "Bearer theirs")];
    assert!(allowing("allow").examine("/", &theirs).is_ok());
    assert_eq!(allowing("deny").examine("/", &theirs).unwrap_err().reason, Reason::ForeignCredential);
    // Ours stays ours.
    assert_eq!(
        allowing("allow").examine("/", &[("x-other", "{key}")]).unwrap_err().reason,
        Reason::CredentialMisplaced
    );
    // One that denies is enough.
    let text = [declared("key", "foreign = \"allow\""), declared("other", "")].concat();
    let vault = vault(&text, &Values::from([("key", KEY), ("other", USER)]));
    let setup = Setup { vault, grants: ["key"].into_iter().collect() };
    assert_eq!(setup.examine("/", &theirs).unwrap_err().reason, Reason::ForeignCredential);
}

/// Placement, and a request of which it is a part: `<S>` for the stand-in, `<A>` and `<B>` for what may stand around it.
const SHAPES: [(&str, &str, &str); 8] = [
    ("header x-api-key", "x-api-key", "<S>"),
    ("header authorization Bearer", "authorization", "Bearer <S>"),
    ("basic password", "authorization", "Basic"),
    ("cookie sid", "cookie", "a=<A>; sid=<S>; b=<B>"),
    ("websocket-protocol k.", "sec-websocket-protocol", "<A>, k.<S>, <B>"),
    ("query key", "", "/<A>?a=<A>&key=<S>&b=<B>"),
    ("path /bot{}/**", "", "/bot<S>/<A>?<B>"),
    ("header x-token-bin", "x-token-bin", "Binary"),
];

proptest! {
    /// What leaves is what was sent with the real value in place of the stand-in, and no stand-in leaves.
    #[test]
    fn a_swap_changes_the_credential_alone(shape in 0..SHAPES.len(), a in "[a-z0-9]{1,8}", b in "[a-z0-9]{1,8}") {
        let (placement, header, template) = SHAPES[shape];
        let setup = setup(&format!("[\"{placement}\"]"));
        let fill = |credential: &str| match template {
            "Basic" => basic(&format!("{a}:{credential}")),
            "Binary" => BASE64_STANDARD_NO_PAD.encode(credential),
            _ => template.replace("<A>", &a).replace("<B>", &b).replace("<S>", credential),
        };
        let stand_in = setup.fill("{key}");
        let sent = fill(&stand_in);
        let left = if header.is_empty() { setup.url(&sent) } else { setup.header(header, &sent) };
        prop_assert_eq!(left, Ok(fill(KEY)));
    }

    /// Whatever stands around: either nothing leaves, or no stand-in does, in any form that the search knows.
    #[test]
    fn no_stand_in_leaves(
        shape in 0..SHAPES.len(), text in "[ -~]{0,12}(\\{key\\}|\\{user\\})?[ -~]{0,12}(\\{key\\})?[ -~]{0,4}",
    ) {
        let (placement, header, _) = SHAPES[shape];
        let setup = setup(&format!("[\"{placement}\"]"));
        let uri = setup.fill(&format!("/{text}"));
        if header.is_empty() {
            if uri.parse::<Uri>().is_ok()
                && let Ok(left) = setup.url(&format!("/{text}"))
            {
                prop_assert!(setup.vault.stand_ins_in(left.as_bytes()).next().is_none(), "{}", left);
            }
        } else if let Ok(left) = setup.header(header, &text) {
            prop_assert!(setup.vault.stand_ins_in(left.as_bytes()).next().is_none(), "{}", left);
        }
    }
}
