//! Keys here are made up.

use std::collections::HashMap;

use understudy_control::{Prepare, User};

use super::super::catalogue::Catalogue;
use super::super::declaration::parse;
use super::super::fixture::{Values, vault};
use super::super::installation_key::InstallationKey;
use super::super::{Grants, MintedNow, RequestHead, examine};
use super::*;
use crate::reason::Reason;

const ACCOUNT: &str = include_str!("../../../tests/keys/service-account.json");
const APP: &str = include_str!("../../../tests/keys/app.pem");
const GOOGLE: &str = "[gcp]\nkind = \"google-service-account\"\nfile = \"/run/secrets/gcp\"\n\
                      grant-to = { harnesses = [\"generic\"] }\n";
const GITHUB: &str = "[app]\nkind = \"github-app\"\nfile = \"/run/secrets/app\"\napp = [12345, \"Iv23li\"]\n\
                      grant-to = { harnesses = [\"generic\"] }\n";

fn read(text: &str) -> Result<super::super::Declaration, String> {
    let catalogue = Catalogue::new([]).unwrap();
    let read = parse("secrets.toml", text, &catalogue).map_err(|error| error.to_string())?;
    Ok(read.into_iter().next().unwrap())
}

fn both() -> Vault {
    vault(&format!("{GOOGLE}{GITHUB}"), &Values::from([("gcp", ACCOUNT), ("app", APP)]))
}

#[test]
fn mistakes_are_named_with_their_place_and_the_way_out() {
    let hosts = |text: &str| read(text).unwrap().hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(hosts(GOOGLE), ["*.googleapis.com"]);
    assert_eq!(hosts(GITHUB), ["api.github.com", "github.com", "uploads.github.com"]);
    assert_eq!(hosts(&GITHUB.replace("app =", "hosts = \"ghe.example.com\"\napp =")), ["ghe.example.com"]);
    for (text, from, to, said) in [
        (GITHUB, "app = [12345, \"Iv23li\"]\n", "", "1:1: missing field `app`"),
        (GITHUB, "[12345, \"Iv23li\"]", "[]", "4:7: `app` is a number"),
        (GITHUB, "[12345, \"Iv23li\"]", "\"a b\"", "4:7: `app` is a number"),
        (GITHUB, "[12345, \"Iv23li\"]", "1.5", "4:7: `app`: expected a number, a text"),
        (GITHUB, "app =", "installations = []\napp =", "4:17: `installations` is one number or several"),
        (GITHUB, "app =", "installations = \"x\"\napp =", "4:17: `installations` is one number or several"),
        (
            GITHUB,
            "app =",
            "scopes = \"x\"\napp =",
            "4:10: `scopes` is for `kind = \"google-service-account\"`",
        ),
        (GOOGLE, "grant", "app = 1\ngrant", "4:7: `app` is for `kind = \"github-app\"`"),
        (GOOGLE, "grant", "scopes = []\ngrant", "4:10: `scopes` is empty"),
        (GOOGLE, "grant", "scopes = \"a b\"\ngrant", "4:10: `scopes`: \"a b\" must be one word"),
        (GOOGLE, "grant", "env = \"X\"\ngrant", "4:7: `env` is not for `kind = \"google-service-account\"`"),
        (GOOGLE, "grant", "paths = \"/x\"\ngrant", "4:9: `paths` is not for"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let error = read(&changed).unwrap_err();
        assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
    }
    assert_eq!(
        read(&GITHUB.replace("[12345, \"Iv23li\"]", "12345\ninstallations = [7, \"8\"]")).unwrap().assertion,
        Some(Binding::GitHub { ids: vec!["12345".to_owned()], installations: vec![7, 8] })
    );
}

#[test]
fn what_is_no_usable_key_is_refused_with_what_to_do() {
    let of = |text: &str, value: &str| {
        let values =
            HashMap::from([("gcp", value.to_owned().leak() as &str), ("app", value.to_owned().leak())]);
        vault(text, &values).unusable()[0].error().to_owned()
    };
    let short = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n";
    for (text, value, said) in [
        (GOOGLE, APP.to_owned(), "not the JSON file of a service account's key"),
        (GOOGLE, ACCOUNT.replace("service_account", "authorized_user"), "`type` is not service_account"),
        (GOOGLE, ACCOUNT.replace("https://oauth2", "http://oauth2"), "`token_uri` is not an https URL"),
        (GOOGLE, ACCOUNT.replace("BEGIN PRIVATE", "BEGIN PUBLIC"), "not a private key in PEM"),
        (GITHUB, ACCOUNT.to_owned(), "not a private key in PEM"),
        (GITHUB, short.to_owned(), "not an RSA key of 2048"),
        (GITHUB, APP.replacen("MIIE", "MIIF", 1), "not an RSA key of 2048"),
        (
            GITHUB,
            both().secret("app").unwrap().assertion_key().unwrap().file().to_owned(),
            "is a stand-in of this installation",
        ),
    ] {
        let error = of(text, &value);
        assert!(error.contains(said), "{error}\nexpected {said}");
        assert!(!error.contains("MII"), "{error}");
    }
}

#[test]
fn the_real_key_is_found_in_any_layout_and_a_container_is_given_nothing_of_it() {
    let vault = both();
    let account: serde_json::Value = serde_json::from_str(ACCOUNT).unwrap();
    for (name, pem) in [("gcp", account["private_key"].as_str().unwrap()), ("app", APP)] {
        let one_line: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let escaped = pem.replace('\n', "\\n");
        let last = pem.lines().rev().find(|line| line.len() == 64).unwrap();
        for text in [pem, &one_line, &escaped, last] {
            assert_eq!(vault.real_value_in(text.as_bytes()), Some(name), "{text}");
        }
        let key = vault.secret(name).unwrap().assertion_key().unwrap();
        assert_eq!(vault.real_value_in(key.file().as_bytes()), None);
        assert_eq!(vault.stand_ins_in(key.stand_in_text().as_bytes()).count(), 1);
        assert_eq!(format!("{key:?}"), "AssertionKey(..)");
    }
    let annotations = [("understudy.harness", "generic"), ("understudy.secrets", "gcp app")];
    let prepare = Prepare {
        id: "a".repeat(64).parse().unwrap(),
        name: None,
        image: None,
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        user: User { uid: 0, gid: 0 },
        env: Default::default(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    };
    let (harnesses, policies) = (understudy_harnesses::Harnesses::default(), Default::default());
    let given = super::super::terms(&prepare, &harnesses, &policies, &vault).unwrap();
    let value = |name: &str| {
        given
            .env
            .iter()
            .find(|variable| variable.name == name)
            .map_or("", |variable| &variable.value)
            .to_owned()
    };
    assert_eq!(value("GITHUB_APP_ID"), "12345");
    for variable in ["GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_APP_PRIVATE_KEY_PATH"] {
        let path = value(variable);
        let file = given.placement.files.iter().find(|file| file.path == path).unwrap();
        assert!(
            file.content.contains("PRIVATE KEY-----")
                && vault.real_value_in(file.content.as_bytes()).is_none()
        );
        assert!(
            path == "/run/understudy/google-credentials.json"
                || file.content == value("GITHUB_APP_PRIVATE_KEY")
        );
    }
    let path = value("GOOGLE_APPLICATION_CREDENTIALS");
    let file = given.placement.files.iter().find(|file| file.path == path).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file.content).unwrap();
    for kept in ["client_email", "project_id", "token_uri", "universe_domain", "type"] {
        assert_eq!(file[kept], account[kept], "{kept}");
    }
    assert_ne!(file["private_key_id"], account["private_key_id"]);
}

#[test]
fn the_stand_in_stays_when_the_key_is_replaced_and_is_another_one_elsewhere() {
    let binding = Binding::GitHub { ids: vec!["1".to_owned()], installations: Vec::new() };
    let of = |pem: &str, byte: u8, name: &str, before: Option<&AssertionKey>| {
        AssertionKey::read(
            pem.as_bytes(),
            &binding,
            (&InstallationKey::from_bytes(&[byte; 32]), name),
            before,
        )
        .unwrap()
        .0
    };
    let key = of(APP, 1, "a", None);
    let other = of(key.file(), 2, "a", None);
    assert_ne!(key.file(), other.file());
    let replaced = of(other.file(), 1, "a", None);
    assert_eq!(key.file(), replaced.file());
    assert_eq!(of(other.file(), 1, "a", Some(&key)).file(), key.file());
    assert!(key.file().starts_with("-----BEGIN RSA PRIVATE KEY-----\nMII"));
}

#[test]
fn only_a_container_that_was_granted_the_key_uses_it() {
    let vault = both();
    let reason = |granted: &[&str], host: &str, verified_tls: bool| {
        let (host, method, uri) = (host.parse().unwrap(), http::Method::GET, http::Uri::from_static("/app"));
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {}", token(&vault)).parse().unwrap());
        let head = RequestHead { host: &host, method: &method, verified_tls, uri: &uri, headers: &headers };
        let grants: Grants = granted.iter().copied().collect();
        examine(&vault, &grants, &MintedNow::default(), head).map_err(|denial| denial.reason)
    };
    let swaps = reason(&["app"], "api.github.com", true).unwrap();
    assert_eq!((swaps.secrets, swaps.headers.len()), (vec!["app".to_owned()], 1));
    assert_eq!(reason(&[], "api.github.com", true).unwrap_err(), Reason::CredentialNotGranted);
    assert_eq!(reason(&["gcp"], "api.github.com", true).unwrap_err(), Reason::CredentialNotGranted);
    assert_eq!(reason(&["app"], "storage.googleapis.com", true).unwrap_err(), Reason::CredentialMisdirected);
    assert_eq!(reason(&["app"], "evil.example", true).unwrap_err(), Reason::CredentialMisdirected);
    assert_eq!(reason(&["app"], "api.github.com", false).unwrap_err(), Reason::CredentialInClear);
}

/// Of the App, signed with its stand-in.
fn token(vault: &Vault) -> String {
    use base64::Engine as _;
    use rustls_pki_types::PrivatePkcs1KeyDer;
    use rustls_pki_types::pem::PemObject as _;
    let key = vault.secret("app").unwrap().assertion_key().unwrap();
    let der = PrivatePkcs1KeyDer::from_pem_slice(key.file().as_bytes()).unwrap();
    let pair = ring::signature::RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
    let now = signed::now();
    let claims = format!("{{\"iss\":12345,\"iat\":{now},\"exp\":{}}}", now + 300);
    let text = format!("{}.{}", jws::BASE64.encode("{\"alg\":\"RS256\"}"), jws::BASE64.encode(claims));
    let mut signature = vec![0; 256];
    let random = ring::rand::SystemRandom::new();
    pair.sign(&ring::signature::RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).unwrap();
    format!("{text}.{}", jws::BASE64.encode(signature))
}
