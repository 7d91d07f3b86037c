//! Keys here are made up.

use super::super::catalogue::Catalogue;
use super::super::declaration::parse;
use super::super::fixture::{Values, vault};
use super::super::installation_key::InstallationKey;
use super::*;

const GOOD: &str = "[store]\nkind = \"aws\"\nfile = \"/run/secrets/store\"\nhosts = \"s3.example.com\"\nservices = \"s3\"\n\
                    grant-to = { harnesses = [\"generic\"] }\n";
const LINES: &str = "# mine\n[default]\naws_access_key_id = AKIAREALREALREAL2345\n\
                     aws_secret_access_key = rEaL/secret+access/key0123456789abcdefgh\nregion = x\n";
const JSON: &str = r#"{"Version": 1, "AccessKeyId": "AKIAREALREALREAL2345", "SecretAccessKey": "rEaL/secret+access/key0123456789abcdefgh",
    "SessionToken": "IQoJb3JpZ2luX2Vj-the-real-token", "Expiration": "2027-01-31T12:00:00.5Z"}"#;

fn read(text: &str) -> Result<super::super::Declaration, String> {
    let catalogue = Catalogue::new([]).unwrap();
    let read = parse("secrets.toml", text, &catalogue).map_err(|error| error.to_string())?;
    Ok(read.into_iter().next().unwrap())
}

#[test]
fn mistakes_are_named_with_their_place_and_the_way_out() {
    assert!(read(GOOD).unwrap().aws.is_some());
    for (from, to, said) in [
        ("services = \"s3\"\n", "", "1:1: missing field `services`"),
        ("services = \"s3\"", "services = []", "5:12: `services` is empty"),
        ("services = \"s3\"", "services = \"S3\"", "5:12: `services`: \"S3\" is not a name in lower case"),
        ("services", "regions = \"*\"\nservices", "5:11: `regions`: \"*\" is not a name"),
        (
            "services",
            "buckets = \"a*b\"\nservices",
            "5:11: `buckets`: \"a*b\" is not a name in lower case, with `*`",
        ),
        ("services", "env = \"X\"\nservices", "5:7: `env` is not for `kind = \"aws\"`"),
        ("services", "placements = \"header x\"\nservices", "5:14: `placements` is not for `kind = \"aws\"`"),
        ("\"aws\"", "\"bearer\"", "5:12: `services` is for `kind = \"aws\"`"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
    }
}

#[test]
fn a_key_is_read_from_either_form_and_its_stand_ins_stay_what_they_are() {
    let of = |text: &str, byte: u8, name: &str| {
        AwsKey::read(text.as_bytes(), &InstallationKey::from_bytes(&[byte; 32]), name).unwrap()
    };
    let (lines, value, secret) = of(LINES, 1, "a");
    let (json, other_value, same) = of(JSON, 1, "a");
    assert!(value.is(other_value.expose().as_bytes()) && lines.id().0.is(b"AKIAREALREALREAL2345"));
    assert_eq!(
        (lines.stand_in_id(), lines.stand_in_token(), &secret),
        (json.stand_in_id(), json.stand_in_token(), &same)
    );
    assert_eq!((lines.token().is_some(), json.token().is_some()), (false, true));
    assert_eq!((lines.expires(), json.expires()), (None, Some(1_801_396_800)));
    assert_eq!((secret.len(), lines.stand_in_id().len()), (40, 20));
    for (other, _, other_secret) in [of(LINES, 2, "a"), of(LINES, 1, "b")] {
        assert_ne!(other.stand_in_id(), lines.stand_in_id());
        assert_ne!(other_secret, secret);
    }
    assert_eq!(format!("{lines:?}"), "AwsKey(..)");
}

#[test]
fn what_is_no_usable_key_is_refused_with_what_to_do() {
    let key = InstallationKey::from_bytes(&[1; 32]);
    let twice = LINES.replace("region = x", "[two]\naws_access_key_id = AKIAOTHEROTHER222345");
    for (text, said) in [
        ("AKIAREALREALREAL2345", "neither a file of `aws configure`"),
        ("{", "neither a file"),
        ("{\"AccessKeyId\": \"AKIAREALREALREAL2345\"}", "the secret access key is missing"),
        ("aws_access_key_id =\naws_secret_access_key = x", "the id of the access key is missing"),
        ("aws_access_key_id = short\naws_secret_access_key = x", "the id of the access key: the value has 5"),
        (&twice, "several profiles"),
        (&JSON.replace("2027-01-31T", "31 January "), "Expiration is not as"),
    ] {
        let error = AwsKey::read(text.as_bytes(), &key, "a").unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("REAL"), "{error}");
    }
}

#[test]
fn every_half_is_searched_for_and_a_stand_in_is_no_key() {
    let vault = vault(GOOD, &Values::from([("store", JSON)]));
    let secret = vault.secret("store").unwrap();
    for real in [
        "AKIAREALREALREAL2345",
        "rEaL/secret+access/key0123456789abcdefgh",
        "IQoJb3JpZ2luX2Vj-the-real-token",
    ] {
        assert_eq!(vault.real_value_in(format!("x {real}").as_bytes()), Some("store"));
    }
    let stand_ins: Vec<&str> = secret.all_stand_ins().collect();
    assert_eq!(stand_ins.len(), 3);
    for stand_in in &stand_ins {
        assert!(vault.is_stand_in(stand_in) && vault.real_value_in(stand_in.as_bytes()).is_none());
        assert_eq!(vault.stand_ins_in(stand_in.as_bytes()).count(), 1);
    }
    assert_eq!(secret.held().count(), 3);
    let (file, login) = file(secret.aws_key().unwrap(), secret.stand_in());
    assert_eq!((file.path.as_str(), login.path.as_str()), ("~/.aws/credentials", "~/.aws/credentials"));
    let expected = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\naws_session_token = {}\n",
        stand_ins[1], stand_ins[0], stand_ins[2]
    );
    assert_eq!(file.content, expected);
    let placed: &'static str = file.content.leak();
    let wrong = super::super::fixture::vault(GOOD, &Values::from([("store", placed)]));
    assert!(wrong.unusable()[0].error().contains("is a stand-in of this installation"));
}

#[test]
fn a_container_is_given_the_stand_ins_in_variables_and_in_the_file() {
    let second = GOOD.replace("[store]", "[other]").replace("secrets/store", "secrets/other");
    let other = LINES.replace("REAL", "ELSE").replace("rEaL", "eLsE").leak();
    let vault = vault(&(GOOD.to_owned() + &second), &Values::from([("store", JSON), ("other", other)]));
    let terms = |secrets: &str| {
        let annotations = [("understudy.harness", "generic"), ("understudy.secrets", secrets)];
        let prepare = understudy_control::Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            user: understudy_control::User { uid: 0, gid: 0 },
            env: Default::default(),
            args: Vec::new(),
            managed: Vec::new(),
            joins: None,
            origin: None,
            mounts: None,
        };
        let (harnesses, policies) = (understudy_harnesses::Harnesses::default(), Default::default());
        super::super::terms(&prepare, &harnesses, &policies, &vault)
    };
    let given = terms("store").unwrap();
    let secret = vault.secret("store").unwrap();
    let key = secret.aws_key().unwrap();
    for (name, stand_in) in environment(key, secret.stand_in()) {
        assert!(
            given.env.iter().any(|variable| variable.name == name && variable.value == stand_in),
            "{name}"
        );
        assert!(given.placement.stand_ins.iter().any(|known| known == stand_in), "{name}");
    }
    let placed = given.placement.files.iter().find(|file| file.path == FILE).unwrap();
    assert!(placed.mode == 0o600 && placed.content.contains(secret.stand_in()));
    assert!(given.placement.login_files.iter().any(|file| file.path == FILE && file.pointers == POINTERS));
    for text in given.env.iter().map(|variable| &variable.value).chain([&placed.content]) {
        assert_eq!(vault.real_value_in(text.as_bytes()), None);
    }
    let refusal = terms("store other").unwrap_err().to_string();
    assert!(refusal.contains("`AWS_ACCESS_KEY_ID` of secret"), "{refusal}");
    assert!(!terms("").unwrap().placement.files.iter().any(|file| file.path == FILE));
}

#[test]
fn only_a_container_that_was_granted_the_key_signs_and_only_at_its_hosts() {
    use super::super::{Grants, MintedNow, RequestHead, examine};
    use crate::reason::Reason;
    let vault = vault(GOOD, &Values::from([("store", JSON)]));
    let id = vault.secret("store").unwrap().aws_key().unwrap().stand_in_id().to_owned();
    let reason = |granted: &[&str], host: &str| {
        let host = host.parse().unwrap();
        let (method, uri) = (http::Method::GET, http::Uri::from_static("/bucket"));
        let mut headers = http::HeaderMap::new();
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={id}/20150830/us-east-1/s3/aws4_request, SignedHeaders=host, Signature={}",
            "5d".repeat(32)
        );
        headers.insert("authorization", authorization.parse().unwrap());
        headers.insert("x-amz-date", "20150830T123600Z".parse().unwrap());
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        let grants: Grants = granted.iter().copied().collect();
        examine(&vault, &grants, &MintedNow::default(), head).map(|_| ()).unwrap_err().reason
    };
    assert_eq!(reason(&[], "s3.example.com"), Reason::CredentialNotGranted);
    assert_eq!(reason(&["store"], "other.example.com"), Reason::CredentialMisdirected);
    assert_eq!(reason(&["store"], "s3.example.com"), Reason::NotSigned);
}

#[test]
fn a_command_is_asked_again_before_its_key_expires_and_not_all_the_time() {
    use std::time::{Duration, Instant};
    let text = GOOD.replace("file = \"/run/secrets/store\"", "command = [\"keys\"]");
    let outdated = |expires: &str, after: u64| {
        let json = JSON.replace("2027-01-31T12:00:00.5Z", expires);
        let catalogue = std::sync::Arc::new(Catalogue::new([]).unwrap());
        let declared = parse("secrets.toml", &text, &catalogue).unwrap();
        let key = InstallationKey::from_bytes(&[1; 32]);
        let read = |_: &super::super::Source| Ok(zeroize::Zeroizing::new(json.as_bytes().to_vec()));
        let vault = super::super::Vault::new(declared, catalogue, &key, read).unwrap();
        assert!(vault.secret("store").is_some());
        vault.is_outdated(Instant::now() + Duration::from_secs(after))
    };
    assert!(outdated("2020-01-31T12:00:00+00:00", 61));
    assert!(!outdated("2020-01-31T12:00:00Z", 10));
    assert!(!outdated("2999-01-31T12:00:00Z", 3600));
}
