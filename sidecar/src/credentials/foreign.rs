//! Credentials that are not ours, at hosts that are: an agent that brings its own key to an allowed API has a way to
//! carry data out that no policy of hosts can see.

mod known;

use http::HeaderName;
use http::uri::PathAndQuery;
use understudy_policies::HostName;

use self::known::Known;
use super::declaration::{Declaration, Foreign};
use super::examine::{CredentialDenial, Place, RequestHead, Rests};
use super::placement::Placement;
use super::slots::Part;
use super::vault::Vault;
use crate::reason::Reason;

/// Headers that carry credentials whatever the service; the headers of the placements at a host come on top.
const CREDENTIAL_HEADERS: [&str; 11] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "x-shopify-access-token",
    "private-token",
    "x-amz-security-token",
];

/// Refuses what looks like a credential and was not swapped, if a secret is bound to the host that does not let it:
/// granted or not, usable or not. `rests` is what stands beside what was swapped, and `is_ours` tells what may be.
pub(super) fn check(
    vault: &Vault,
    head: &RequestHead<'_>,
    rests: &Rests,
    is_ours: impl Fn(&[u8]) -> bool,
) -> Result<(), CredentialDenial> {
    let bound: Vec<&Declaration> =
        vault.bound_to(head.host).filter(|declaration| declaration.foreign == Foreign::Deny).collect();
    if bound.is_empty() {
        return Ok(());
    }
    let placed: Vec<&HeaderName> =
        bound.iter().flat_map(|d| &d.placements).filter_map(Placement::header).collect();
    let known = Known::at(vault.catalogue(), &bound);
    for name in head.headers.keys() {
        let for_credentials = placed.contains(&name) || CREDENTIAL_HEADERS.contains(&name.as_str());
        for (index, value) in head.headers.get_all(name).iter().enumerate() {
            let rest = rests.header(name, index);
            let text = rest.unwrap_or(value.as_bytes());
            let empty = text.trim_ascii().is_empty();
            let unswapped = rest.is_none() && !empty && for_credentials;
            let part = Part::header(name, value.as_bytes());
            if unswapped || known.holds_credential(text) || holds_another(&is_ours, &bound, &part) {
                return Err(denial(head.host, Place::Header(name)));
            }
        }
    }
    // Some services take a credential as a segment of the path.
    let url = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let text = rests.url.as_deref().unwrap_or(url.as_bytes());
    if known.holds_credential(text) || holds_another(&is_ours, &bound, &Part::url(url)) {
        return Err(denial(head.host, Place::Url));
    }
    Ok(())
}

/// Whether something other than a stand-in stands where a placement at this host means a credential to stand.
fn holds_another(is_ours: impl Fn(&[u8]) -> bool, bound: &[&Declaration], part: &Part<'_>) -> bool {
    let says_what_it_is = |placement: &&Placement| match placement {
        // Its other half is a user name, or nothing. What is in no half swapped, `for_credentials` says.
        Placement::Basic(_) => false,
        // Without a prefix, every item would be one.
        Placement::WebSocketProtocol { prefix } => !prefix.is_empty(),
        _ => true,
    };
    let placements = bound.iter().flat_map(|declaration| &declaration.placements).filter(says_what_it_is);
    placements.flat_map(|placement| part.slots(placement)).any(|slot| {
        let value = slot.value(part.inner());
        !value.is_empty() && !is_ours(&value)
    })
}

fn denial(host: &HostName, place: Place<'_>) -> CredentialDenial {
    CredentialDenial {
        reason: Reason::ForeignCredential,
        secret: None,
        place: place.to_string(),
        remedy: format!(
            "only stand-ins are sent to {host}; declare the credential in secrets.toml and use its stand-in"
        ),
    }
}
