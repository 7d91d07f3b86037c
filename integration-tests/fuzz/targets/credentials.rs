//! The head of a request: a real value never passes, and a stand-in passes only as a swap in its place.
#![no_main]

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use understudy::credentials::{Catalogue, Grants, InstallationKey, MintedNow, RequestHead, Vault, declaration, examine, grants};
use understudy_harnesses::Harnesses;
use understudy_policies::HostName;
use zeroize::Zeroizing;

const REAL: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
const SECRETS: &str = r#"
[provider]
kind = "api-key"
file = "/run/secrets/provider"
hosts = ["api.example.com"]
placements = [
    "header x-api-key", "header x-token-bin", "header authorization Bearer", "basic user", "basic password",
    "cookie sid", "query key", "path /bot{}/**", "websocket-protocol key.",
]
grant-to = { harnesses = ["generic"] }
"#;
const HEADERS: [&str; 6] =
    ["x-api-key", "x-token-bin", "authorization", "cookie", "sec-websocket-protocol", "x-other"];

struct Stand {
    vault: Vault,
    grants: Grants,
    stand_in: String,
    hosts: [HostName; 2],
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
    let hosts = ["api.example.com".parse().ok()?, "other.example.com".parse().ok()?];
    Some(Stand { vault, grants, stand_in, hosts })
});

fuzz_target!(|input: (bool, bool, Vec<(u8, bool, Vec<u8>)>, String)| {
    let Some(stand) = STAND.as_ref() else { panic!("the stand is broken") };
    let (bound, verified_tls, raw, path) = input;
    // The fuzzer cannot guess 50 characters: these stand for them.
    let fill = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).replace('\u{1}', REAL).replace('\u{2}', &stand.stand_in)
    };
    let Ok(uri) = format!("/{}", fill(path.as_bytes())).parse::<Uri>() else { return };
    let mut headers = HeaderMap::new();
    for (number, encoded, value) in &raw {
        let name = HeaderName::from_static(HEADERS[usize::from(*number) % HEADERS.len()]);
        let value = if *encoded {
            let scheme = if name == "authorization" { "Basic " } else { "" };
            format!("{scheme}{}", BASE64_STANDARD.encode(fill(value)))
        } else {
            fill(value)
        };
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(name, value);
        }
    }
    let host = &stand.hosts[usize::from(!bound)];
    let method = Method::GET;
    let head = RequestHead { host, verified_tls, method: &method, uri: &uri, headers: &headers };
    let contains = |what: &str| {
        uri.to_string().contains(what)
            || headers.values().any(|v| v.as_bytes().windows(what.len()).any(|w| w == what.as_bytes()))
    };
    match examine(&stand.vault, &stand.grants, &MintedNow::default(), head) {
        Ok(swaps) => {
            assert!(!contains(REAL), "a real value passed");
            let swapped = !swaps.headers.is_empty() || swaps.path.is_some();
            assert!(!swapped || (bound && verified_tls));
            assert_eq!(swapped, !swaps.secrets.is_empty());
            // What leaves holds no stand-in, in any form that the search knows.
            let url =
                swaps.path.as_ref().map_or_else(|| uri.to_string(), |path| path.path_and_query().to_string());
            assert!(
                stand.vault.stand_ins_in(url.as_bytes()).next().is_none(),
                "a stand-in leaves in the URL"
            );
            for name in headers.keys() {
                for (index, value) in headers.get_all(name).iter().enumerate() {
                    let other = swaps.headers.iter().find(|(n, i, _)| n == name && *i == index);
                    let value = other.map_or(value, |(_, _, value)| value);
                    assert!(
                        stand.vault.stand_ins_in(value.as_bytes()).next().is_none(),
                        "a stand-in leaves in {name}"
                    );
                }
            }
        }
        Err(denial) => assert!(!format!("{denial:?}").contains(REAL)),
    }
});
