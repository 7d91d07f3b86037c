//! Credentials that are not ours, at hosts that are: an agent that brings its own key to an allowed API has a way to
//! carry data out that no policy of hosts can see.

use http::HeaderName;
use http::uri::PathAndQuery;
use understudy_policies::HostName;

use super::declaration::{Declaration, Foreign};
use super::examine::{CredentialDenial, Place, RequestHead, Rests};
use super::finder::decoded_forms;
use super::placement::Placement;
use super::slots::Part;
use super::stand_in::KNOWN_PREFIXES;
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

/// The fewest characters after a prefix that make a credential of a word.
fn shortest_rest(prefix: &str) -> usize {
    match prefix {
        // An access key id is as long as this, and stands in the query of a signed URL.
        "AKIA" => 16,
        // The start of too many harmless words.
        short if short.len() < 4 => 32,
        _ => 20,
    }
}

/// Refuses what looks like a credential and was not swapped, if a secret is bound to the host that does not let it:
/// granted or not, usable or not. `rests` is what stands beside what was swapped.
pub(super) fn check(vault: &Vault, head: &RequestHead<'_>, rests: &Rests) -> Result<(), CredentialDenial> {
    let bound: Vec<&Declaration> =
        vault.bound_to(head.host).filter(|declaration| declaration.foreign == Foreign::Deny).collect();
    if bound.is_empty() {
        return Ok(());
    }
    let placed: Vec<&HeaderName> =
        bound.iter().flat_map(|d| &d.placements).filter_map(Placement::header).collect();
    // A prefix that was declared says what this host's own credentials look like.
    let declared = bound.iter().filter_map(|d| d.prefix.as_deref());
    // One or two characters tell nothing.
    let prefixes: Vec<&str> =
        KNOWN_PREFIXES.into_iter().chain(declared).filter(|prefix| prefix.len() >= 3).collect();
    for name in head.headers.keys() {
        let for_credentials = placed.contains(&name) || CREDENTIAL_HEADERS.contains(&name.as_str());
        for (index, value) in head.headers.get_all(name).iter().enumerate() {
            let rest = rests.header(name, index);
            let text = rest.unwrap_or(value.as_bytes());
            let empty = text.trim_ascii().is_empty();
            let unswapped = rest.is_none() && !empty && for_credentials;
            let part = Part::header(name, value.as_bytes());
            if unswapped || holds_credential(text, &prefixes) || holds_another(vault, &bound, &part) {
                return Err(denial(head.host, Place::Header(name)));
            }
        }
    }
    // Some services take a credential as a segment of the path.
    let url = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let text = rests.url.as_deref().unwrap_or(url.as_bytes());
    if holds_credential(text, &prefixes) || holds_another(vault, &bound, &Part::url(url)) {
        return Err(denial(head.host, Place::Url));
    }
    Ok(())
}

/// Whether something other than a stand-in stands where a placement at this host means a credential to stand.
fn holds_another(vault: &Vault, bound: &[&Declaration], part: &Part<'_>) -> bool {
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
        !value.is_empty() && !std::str::from_utf8(&value).is_ok_and(|text| vault.is_stand_in(text))
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

/// A word that starts with one of the prefixes of long-lived credentials, and goes on as long as one.
fn holds_credential(text: &[u8], prefixes: &[&str]) -> bool {
    decoded_forms(text).iter().any(|text| prefixes.iter().any(|prefix| occurs(text, prefix)))
}

fn occurs(text: &[u8], prefix: &str) -> bool {
    let letter = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    text.windows(prefix.len()).enumerate().any(|(at, window)| {
        if window != prefix.as_bytes()
            || at.checked_sub(1).and_then(|before| text.get(before)).is_some_and(letter)
        {
            return false;
        }
        let rest = text.get(at + prefix.len()..).unwrap_or_default();
        let word: Vec<&u8> = rest.iter().take_while(|b| letter(b)).collect();
        word.len() >= shortest_rest(prefix) && word.iter().any(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_known_services_are_told_from_words() {
        for (text, expected) in [
            ("sk-ant-api03-abcdefghij0123456789", true),
            ("key=AIzaSyA0123456789abcdefghijklmnop", true),
            ("Bearer ghp_0123456789abcdefghijABCDEFGHIJ", true),
            ("sk%2Dant%2Dapi03%2Dabcdefghij0123456789", true),
            ("realtime, insecure-api-key.sk-abcdefghij0123456789ABCDEFGHIJ0123456789", true),
            ("?X-Amz-Credential=AKIA0123456789ABCDEF/20260101/us-east-1", true),
            ("/blog/sk-and-a-few-more-words-2024", false),
            ("AKIA0123", false),
            ("task-ant-api03-abcdefghij0123456789", false),
            ("sk-ant-api03-short1", false),
            ("npm_package_config_without_digits", false),
            ("claude-cli/2.1.332 (external, sdk-cli)", false),
            ("oauth-2025-04-20,prompt-caching-2024-07-31", false),
            ("", false),
        ] {
            assert_eq!(holds_credential(text.as_bytes(), &KNOWN_PREFIXES), expected, "{text}");
        }
    }
}
