//! Endpoints that create or store credentials, at hosts of our secrets: whoever may use them needs no secret of ours
//! afterwards, so they are refused unless a secret says otherwise. Pure.

pub mod mutations;

use std::cell::LazyCell;
use std::ops::Deref;

use http::Method;
use understudy_policies::{Readings, RequestPath};

use super::catalogue::endpoint::methods;
use super::catalogue::{Creates, Endpoint, Minted};
use super::declaration::Declaration;
use super::examine::{CredentialDenial, RequestHead, Swaps};
use super::grants::Grants;
use super::vault::Vault;
use crate::reason::Reason;

/// Refuses a request to an endpoint of the catalogue, if a secret is bound to the host: granted or not, usable or not.
pub(super) fn check(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
    swaps: &Swaps,
) -> Result<(), CredentialDenial> {
    let Some(switches) = Switches::of(vault, grants, head, swaps) else { return Ok(()) };
    let methods = methods(head.method, head.headers);
    // Of the path of a host that has such an endpoint.
    let readings = LazyCell::new(|| Readings::of(head.uri.path()));
    let meant = |endpoint: &&Endpoint| {
        let method = endpoint.methods.is_empty() || methods.iter().any(|m| endpoint.methods.contains(m));
        // Of the answer to this one, the container gets a stand-in.
        let own = endpoint.creates == Creates::Sts && !swaps.minted.is_empty();
        method && !own && !switches.allow(endpoint.creates) && endpoint.path.matches_possibly(&readings)
    };
    match vault.catalogue().endpoints_at(head.host, &switches.likes).find(meant) {
        None => plainly(vault, head, &methods, &readings, &switches.likes),
        Some(endpoint) => Err(switches.denial(&format!("a request to {endpoint}"), endpoint.creates, swaps)),
    }
}

/// What the secrets that are bound to a host allow a request to create.
struct Switches<'v> {
    /// The kinds of all of them.
    likes: Vec<&'v str>,
    used: Vec<&'v Declaration>,
    needed: usize,
}

impl<'v> Switches<'v> {
    /// A thing may be created if `minting` of every secret that is swapped in names it: the upstream chooses which of them
    /// counts. If none is swapped in, that of a secret that the container was granted. None: no secret is bound to the host.
    fn of(vault: &'v Vault, grants: &Grants, head: &RequestHead<'v>, swaps: &Swaps) -> Option<Self> {
        let bound: Vec<&Declaration> = vault.bound_to(head.host).collect();
        if bound.is_empty() {
            return None;
        }
        let likes = bound.iter().filter_map(|d| Some(d.like.as_ref()?.name.as_str())).collect();
        let is_used = |secret: &&Declaration| {
            if swaps.secrets.is_empty() {
                grants.contains(&secret.name)
            } else {
                swaps.secrets.contains(&secret.name)
            }
        };
        let used = bound.into_iter().filter(is_used).collect();
        Some(Self { likes, used, needed: swaps.secrets.len().max(1) })
    }

    fn allow(&self, creates: Creates) -> bool {
        self.used.iter().filter(|secret| secret.minting.contains(&creates)).count() >= self.needed
    }

    fn denial(&self, what: &str, creates: Creates, swaps: &Swaps) -> CredentialDenial {
        let switch = format!("`minting = [\"{}\"]`", creates.name());
        let remedy = match self.used.iter().find(|secret| !secret.minting.contains(&creates)) {
            Some(secret) => {
                format!(
                    "if it should be let through, add {switch} to secret `{}` ({})",
                    secret.name, secret.place
                )
            }
            None => {
                format!("if it should be let through, add {switch} to a secret that the container is granted")
            }
        };
        CredentialDenial {
            reason: Reason::CredentialMinting,
            secret: swaps.secrets.first().cloned(),
            place: format!("{what}, which creates {}", creates.phrase()),
            remedy,
        }
    }
}

/// Refuses what a server could take for a request that mints a long-lived credential, and we do not: the container would
/// get the credential itself.
fn plainly(
    vault: &Vault,
    head: &RequestHead<'_>,
    methods: &[Method],
    readings: &impl Deref<Target = Readings>,
    likes: &[&str],
) -> Result<(), CredentialDenial> {
    let surely = |minted: &Minted| {
        RequestPath::parse(head.uri.path()).is_ok_and(|path| minted.is_made_by(head.method, &path))
    };
    let mut wrapped = vault.catalogue().minted_at(head.host, likes).filter(|minted| minted.wrap);
    let Some(minted) = wrapped.find(|minted| minted.could_be_made_by(methods, readings) && !surely(minted))
    else {
        return Ok(());
    };
    let paths: Vec<String> = minted.paths.iter().map(|path| format!("`{} {path}`", minted.method)).collect();
    Err(CredentialDenial {
        reason: Reason::CredentialMinting,
        secret: None,
        place: format!("a request that could be for {}", minted.label),
        remedy: format!("write it plainly, as {}, without another method in a header", paths.join(" or ")),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::{HeaderMap, Method, Uri};

    use super::super::Catalogue;
    use super::*;
    use crate::credentials::fixture::{Values, declared, vault};

    const KEYS: &str = "/repos/o/r/keys";

    /// A secret for the API of GitHub, and one that is like a token of GitLab for another host.
    fn stand(minting: &str) -> Vault {
        let github = declared("github", minting).replace("api.example.com", "api.github.com");
        let gitlab =
            declared("gitlab", "like = \"gitlab-pat\"").replace("api.example.com", "git.example.com");
        vault(
            &format!("{github}{gitlab}"),
            &Values::from([("github", "some-value-of-github"), ("gitlab", "glpat-0123456789abcdefghij")]),
        )
    }

    fn checked(
        vault: &Vault,
        granted: &[&str],
        swapped: &[&str],
        (method, host, path): (&str, &str, &str),
    ) -> Result<(), CredentialDenial> {
        let (uri, host) = (path.parse::<Uri>().unwrap(), host.parse().unwrap());
        let (method, headers) = (Method::from_bytes(method.as_bytes()).unwrap(), HeaderMap::new());
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        let swaps =
            Swaps { secrets: swapped.iter().map(|&name| name.to_owned()).collect(), ..Swaps::default() };
        check(vault, &granted.iter().copied().collect(), &head, &swaps)
    }

    #[test]
    fn an_endpoint_that_creates_credentials_is_refused_where_a_secret_is_bound() {
        let vault = stand("");
        for (method, host, path, refused) in [
            ("POST", "api.github.com", KEYS, true),
            ("POST", "api.github.com", "/repos/o/r/%6beys?x=1", true),
            ("POST", "api.github.com", "/x/..//repos/o/r/keys/", true),
            ("GET", "api.github.com", KEYS, false),
            ("POST", "api.github.com", "/repos/o/r/pulls", false),
            ("PUT", "api.github.com", "/repos/o/r/actions/secrets/NAME", true),
            ("PATCH", "api.github.com", "/repos/o/r/hooks/1", true),
            ("POST", "git.example.com", "/api/v4/projects/group%2Fproject/deploy_keys", true),
            ("POST", "git.example.com", "/api/v4/projects/1/issues", false),
            // Of nobody's secrets.
            ("POST", "gitlab.com", "/api/v4/projects/1/deploy_keys", false),
            ("POST", "api.openai.com", "/v1/organization/admin_api_keys", false),
        ] {
            let denial = checked(&vault, &[], &[], (method, host, path)).err();
            assert_eq!(denial.is_some(), refused, "{method} {host}{path}: {denial:?}");
            assert!(denial.is_none_or(|denial| denial.reason == Reason::CredentialMinting));
        }
    }

    /// The provider's own host is looked after by `proxy::token_endpoint`.
    #[test]
    fn a_key_of_an_account_is_made_at_no_gateway() {
        let text = "[gateway]\nlike = \"claude-account\"\naccount = \"work\"\nhosts = [\"gateway.example\"]\ngrant-to = { harnesses = [\"claude-code\"] }\n";
        let key = ("POST", "gateway.example", "/api/oauth/claude_cli/create_api_key");
        let refused = |text: &str, asked| {
            checked(&vault(text, &Values::new()), &["gateway"], &["gateway"], asked).err()
        };
        assert_eq!(refused(text, key).map(|denial| denial.reason), Some(Reason::CredentialMinting));
        assert_eq!(refused(text, ("POST", "gateway.example", "/v1/messages")), None);
        assert_eq!(refused(&format!("{text}minting = [\"api-key\"]\n"), key), None);
    }

    #[test]
    fn the_denial_names_the_endpoint_what_it_creates_and_the_switch() {
        let vault = stand("");
        let denial = checked(&vault, &["github"], &["github"], ("POST", "api.github.com", KEYS)).unwrap_err();
        assert_eq!(denial.secret.as_deref(), Some("github"));
        assert_eq!(denial.place, "a request to POST /repos/*/*/keys, which creates a deploy key");
        assert!(
            denial.remedy.contains("`minting = [\"deploy-key\"]` to secret `github` (secrets.toml:1)"),
            "{denial:?}"
        );
        let denial = checked(&vault, &[], &[], ("POST", "api.github.com", KEYS)).unwrap_err();
        assert!(denial.remedy.contains("a secret that the container is granted"), "{denial:?}");
    }

    #[test]
    fn the_secret_that_is_used_can_allow_it() {
        let vault = stand("minting = [\"deploy-key\", \"webhook\"]");
        let request = ("POST", "api.github.com", KEYS);
        assert!(checked(&vault, &["github"], &["github"], request).is_ok());
        assert!(checked(&vault, &["github"], &[], request).is_ok());
        // Neither for another thing, nor for a container or request without it.
        let secret = ("PUT", "api.github.com", "/repos/o/r/actions/secrets/NAME");
        assert!(checked(&vault, &["github"], &["github"], secret).is_err());
        assert!(checked(&vault, &[], &[], request).is_err());
        assert!(checked(&vault, &["github", "other"], &["other"], request).is_err());
    }

    #[test]
    fn a_secret_that_may_not_is_not_helped_by_one_that_may() {
        let own = |name, minting| declared(name, minting).replace("api.example.com", "api.github.com");
        let vault = vault(
            &[own("github", "minting = [\"deploy-key\"]"), own("other", "")].concat(),
            &Values::from([("github", "some-value-of-github"), ("other", "another-value-of-github")]),
        );
        let request = ("POST", "api.github.com", KEYS);
        let both = ["github", "other"];
        assert!(checked(&vault, &both, &["github"], request).is_ok());
        let denial = checked(&vault, &both, &both, request).unwrap_err();
        assert!(denial.remedy.contains("to secret `other`"), "{denial:?}");
    }

    /// Each of them, by each of its methods, with a secret of each kind of its provider; and each is let through by its switch.
    #[test]
    fn every_endpoint_of_the_catalogue_is_refused_at_its_hosts_and_has_a_switch() {
        let catalogue = Catalogue::new([]).unwrap();
        let plain = |pattern: &str| pattern.replace("**", "x").replace('*', "x");
        let (mut tried, mut vaults) = (0, HashMap::new());
        for provider in catalogue.providers() {
            for endpoint in &provider.endpoints {
                let hosts = if endpoint.hosts.is_empty() { &provider.hosts } else { &endpoint.hosts };
                let host = hosts.first().map_or("api.example.com".to_owned(), ToString::to_string);
                let host = plain(&host);
                let path = plain(&endpoint.path.to_string());
                let all = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
                let methods = if endpoint.methods.is_empty() { &all[..] } else { &endpoint.methods };
                for kind in &provider.kinds {
                    for (switch, refused) in [("", true), (endpoint.creates.name(), false)] {
                        let more = format!("like = \"{}\"\nminting = [{switch:?}]", kind.name);
                        let more = more.replace("\nminting = [\"\"]", "");
                        let text = declared("own", &more).replace("api.example.com", &host);
                        let values = Values::from([("own", "a-value-of-some-length")]);
                        let vault = vaults.entry(text).or_insert_with_key(|text| vault(text, &values));
                        for method in methods {
                            let found = checked(vault, &["own"], &["own"], (method.as_str(), &host, &path));
                            let of_it = found.as_ref().err().is_some_and(|denial| {
                                denial.place.contains(endpoint.creates.phrase())
                                    || denial.place.contains("could be for")
                            });
                            assert_eq!(of_it, refused, "{endpoint} at {host} for {}: {found:?}", kind.name);
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert!(tried > 500, "{tried}");
    }
}
