//! Fields of a body: a real value never passes, a stand-in in a declared field never leaves, all else stays.
#![no_main]

use std::sync::{Arc, LazyLock};

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Uri};
use libfuzzer_sys::fuzz_target;
use understudy::credentials::{
    Catalogue, Grants, InstallationKey, RequestHead, Vault, declaration, examine_body, fields, grants,
};
use understudy_harnesses::Harnesses;
use understudy_policies::HostName;
use zeroize::Zeroizing;

const REAL: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
const SECRETS: &str = r#"
[provider]
kind = "api-key"
file = "/run/secrets/provider"
hosts = ["api.example.com"]
placements = ["form /** s", "json /** /a/0/k", "multipart /** s"]
grant-to = { harnesses = ["generic"] }
"#;

struct Stand {
    vault: Vault,
    grants: Grants,
    stand_in: String,
    host: HostName,
}

static STAND: LazyLock<Option<Stand>> = LazyLock::new(|| {
    let catalogue = Arc::new(Catalogue::new([]).ok()?);
    let declared = declaration::parse("secrets.toml", SECRETS, &catalogue).ok()?;
    let key = InstallationKey::from_bytes(&[7; 32]);
    let vault = Vault::new(declared, catalogue, &key, |_| Ok(Zeroizing::new(REAL.into()))).ok()?;
    let harnesses = Harnesses::load(None);
    let generic = harnesses.harness("generic").ok()?;
    let grants = grants::choose(&vault, generic, None, Some("provider")).ok()?.grants();
    let stand_in = vault.secret("provider")?.stand_in().to_owned();
    Some(Stand { vault, grants, stand_in, host: "api.example.com".parse().ok()? })
});

/// Every byte stays but stand-ins that became the real value, one of them at the least.
fn assert_only_swapped(before: &[u8], after: &[u8], stand_in: &str) {
    let (mut before, mut after, mut swaps) = (before, after, 0);
    while !before.is_empty() || !after.is_empty() {
        if let (Some(rest), Some(real)) =
            (before.strip_prefix(stand_in.as_bytes()), after.strip_prefix(REAL.as_bytes()))
        {
            (before, after, swaps) = (rest, real, swaps + 1);
            continue;
        }
        assert_eq!(before.first(), after.first(), "a byte was changed");
        (before, after) = (&before[1..], &after[1..]);
    }
    assert!(swaps > 0, "a secret is named, and nothing was swapped");
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let Some(stand) = STAND.as_ref() else { panic!("the stand is broken") };
    let (kind, raw) = input;
    let json = kind % 3 == 0;
    // The fuzzer cannot guess 50 characters: these stand for them.
    let mut body = Vec::new();
    for byte in &raw {
        match byte {
            1 => body.extend_from_slice(REAL.as_bytes()),
            2 => body.extend_from_slice(stand.stand_in.as_bytes()),
            other => body.push(*other),
        }
    }
    let kind = match kind % 3 {
        0 => "application/json",
        1 => "application/x-www-form-urlencoded",
        _ => "multipart/form-data; boundary=b",
    };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let (method, uri) = (Method::POST, Uri::from_static("/token"));
    let head =
        RequestHead { host: &stand.host, verified_tls: true, method: &method, uri: &uri, headers: &headers };
    let Ok(Some(fields)) = fields(&stand.vault, &head) else { panic!("the body is looked into") };
    match examine_body(&stand.vault, &stand.grants, head, fields, &body) {
        Ok(swapped) => {
            assert!(!raw.contains(&1), "a real value passed");
            if swapped.secrets.is_empty() {
                assert_eq!(swapped.bytes.as_slice(), body);
            } else if json {
                let pointed = |bytes: &[u8]| {
                    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
                    value.pointer("/a/0/k").and_then(|value| value.as_str()).map(str::to_owned)
                };
                // The last of two names wins there, and two are refused here.
                assert_eq!(pointed(&body).as_deref(), Some(stand.stand_in.as_str()));
                assert_eq!(pointed(&swapped.bytes).as_deref(), Some(REAL));
            } else {
                assert_only_swapped(&body, &swapped.bytes, &stand.stand_in);
            }
        }
        Err(denial) => assert!(!format!("{denial:?}").contains(REAL)),
    }
});
