//! The head of a request: a real value never passes, and a stand-in passes only as a swap in its place.
#![no_main]

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use understudy::credentials::{Grants, InstallationKey, RequestHead, Vault, declaration, examine, grants};
use understudy_harnesses::Harnesses;
use understudy_policies::HostName;
use zeroize::Zeroizing;

const REAL: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
const SECRETS: &str = r#"
[provider]
kind = "api-key"
file = "/run/secrets/provider"
hosts = ["api.example.com"]
placements = ["header x-api-key"]
grant-to = { harnesses = ["generic"] }
"#;

struct Stand {
    vault: Vault,
    grants: Grants,
    stand_in: String,
    hosts: [HostName; 2],
}

static STAND: LazyLock<Option<Stand>> = LazyLock::new(|| {
    let declared = declaration::parse("secrets.toml", SECRETS).ok()?;
    let key = InstallationKey::from_bytes(&[7; 32]);
    let vault = Vault::new(declared, &key, |_| Ok(Zeroizing::new(REAL.into()))).ok()?;
    let harnesses = Harnesses::load(None);
    let generic = harnesses.harness("generic").ok()?;
    let grants = grants::choose(&vault, generic, None, Some("provider")).ok()?.grants();
    let stand_in = vault.secret("provider")?.stand_in().to_owned();
    let hosts = ["api.example.com".parse().ok()?, "other.example.com".parse().ok()?];
    Some(Stand { vault, grants, stand_in, hosts })
});

fuzz_target!(|input: (bool, bool, Vec<(String, Vec<u8>)>, String)| {
    let Some(stand) = STAND.as_ref() else { panic!("the stand is broken") };
    let (bound, verified_tls, raw, path) = input;
    // The fuzzer cannot guess 50 characters: these stand for them.
    let fill = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\u{1}", REAL).replace("\u{2}", &stand.stand_in);
    let Ok(uri) = format!("/{}", fill(path.as_bytes())).parse::<Uri>() else { return };
    let mut headers = HeaderMap::new();
    for (name, value) in &raw {
        let name = if name == "k" { "x-api-key" } else { name };
        let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(fill(value).as_bytes()))
        else {
            continue;
        };
        headers.append(name, value);
    }
    let host = &stand.hosts[usize::from(!bound)];
    let method = Method::GET;
    let head = RequestHead { host, verified_tls, method: &method, uri: &uri, headers: &headers };
    let contains = |what: &str| {
        uri.to_string().contains(what)
            || headers.values().any(|v| v.as_bytes().windows(what.len()).any(|w| w == what.as_bytes()))
    };
    match examine(&stand.vault, &stand.grants, head) {
        Ok(swaps) => {
            assert!(!contains(REAL), "a real value passed");
            let swapped = headers.get_all("x-api-key").iter().filter(|v| v.as_bytes() == stand.stand_in.as_bytes()).count();
            assert_eq!(swaps.headers.len(), swapped, "a stand-in passed unswapped, or something else was swapped");
            assert!(swaps.headers.is_empty() || (bound && verified_tls));
        }
        Err(denial) => assert!(!format!("{denial:?}").contains(REAL)),
    }
});
