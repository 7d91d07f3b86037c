//! One request's head: what is to be swapped in it, or why it must not leave. Pure.
//!
//! The order is fixed: a real value anywhere ends it; then every stand-in must be granted, at a host of its secret, in
//! a place of its secret, over verified TLS; then nothing else may look like a credential where secrets are bound.
//! Only what is a stand-in is replaced, only where one may stand; nothing is ever added.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use understudy_policies::HostName;

use super::foreign;
use super::grants::Grants;
use super::placement::Placement;
use super::rewrite;
use super::vault::{Secret, Vault};
use crate::reason::Reason;

/// The head of a request as far as credentials can be in it.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    pub host: &'a HostName,
    /// Any token may be one (RFC 9110 section 9.1), a credential too.
    pub method: &'a Method,
    /// Whether the way to the upstream is verified TLS.
    pub verified_tls: bool,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

/// What to write into the request that goes upstream.
#[derive(Debug, Default)]
pub struct Swaps {
    /// Header, which of its values (0 for the first), the new value (marked sensitive).
    pub headers: Vec<(HeaderName, usize, HeaderValue)>,
    /// Names of the secrets that are swapped in, for the audit and the pool key; sorted, each once.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialDenial {
    pub reason: Reason,
    /// The secret that it is about, if it is known.
    pub secret: Option<String>,
    /// Where: `header x-api-key`, `URL`.
    pub place: String,
    pub remedy: String,
}

/// What is to be swapped in this request, or why it must not leave. Pure.
pub fn examine(vault: &Vault, grants: &Grants, head: RequestHead<'_>) -> Result<Swaps, CredentialDenial> {
    no_real_value(vault, &head)?;
    no_retired_stand_in(vault, &head)?;
    let swaps = swaps(vault, grants, &head)?;
    foreign::check(vault, &head, &swaps)?;
    Ok(swaps)
}

/// A part of the head, as messages name it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    Method,
    Url,
    Host,
    /// Not quoted: it may be what must not be repeated.
    HeaderName,
    Header(&'a HeaderName),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("method"),
            Self::Url => f.write_str("URL"),
            Self::Host => f.write_str("host name"),
            Self::HeaderName => f.write_str("the name of a header"),
            Self::Header(name) => write!(f, "header {name}"),
        }
    }
}

fn no_real_value(vault: &Vault, head: &RequestHead<'_>) -> Result<(), CredentialDenial> {
    let check = |place: Place<'_>, text: &[u8]| match vault.real_value_in(text) {
        None => Ok(()),
        Some(name) => Err(CredentialDenial {
            reason: Reason::RealCredential,
            secret: Some(name.to_owned()),
            place: place.to_string(),
            remedy: format!(
                "the real value of secret `{name}` must not be in a container: find out how it got there, and replace it at its provider"
            ),
        }),
    };
    outside_values(head).iter().try_for_each(|(place, text)| check(*place, text))?;
    // Names were searched just now, so from here on they can be told.
    head.headers.iter().try_for_each(|(name, value)| check(Place::Header(name), value.as_bytes()))
}

/// One of a secret that a running container was given, and that is gone since.
fn no_retired_stand_in(vault: &Vault, head: &RequestHead<'_>) -> Result<(), CredentialDenial> {
    if !vault.has_retired() {
        return Ok(());
    }
    let check = |place: Place<'_>, text: &[u8]| match vault.retired_in(text) {
        None => Ok(()),
        Some(name) => Err(CredentialDenial {
            reason: Reason::CredentialNotGranted,
            secret: Some(name.to_owned()),
            place: place.to_string(),
            remedy: format!(
                "secret `{name}` is no longer there: look for it in secrets.toml and in `understudy status`"
            ),
        }),
    };
    outside_values(head).iter().try_for_each(|(place, text)| check(*place, text))?;
    head.headers.iter().try_for_each(|(name, value)| check(Place::Header(name), value.as_bytes()))
}

/// Every part of the head where no credential may stand.
fn outside_values<'a>(head: &RequestHead<'a>) -> Vec<(Place<'a>, Vec<u8>)> {
    let mut parts = vec![
        (Place::Host, head.host.as_str().as_bytes().to_vec()),
        (Place::Method, head.method.as_str().as_bytes().to_vec()),
        (Place::Url, head.uri.to_string().into_bytes()),
    ];
    parts.extend(head.headers.keys().map(|name| (Place::HeaderName, name.as_str().as_bytes().to_vec())));
    parts
}

fn swaps(vault: &Vault, grants: &Grants, head: &RequestHead<'_>) -> Result<Swaps, CredentialDenial> {
    let judge = Judge { grants, head };
    for (place, text) in outside_values(head) {
        if let Some(secret) = vault.stand_ins_in(&text).next() {
            judge.placed(secret, None, place)?;
        }
    }
    let mut swaps = Swaps::default();
    for name in head.headers.keys() {
        for (index, value) in head.headers.get_all(name).iter().enumerate() {
            for secret in vault.stand_ins_in(value.as_bytes()) {
                let placement = exact_placement(secret, name, value);
                let placement = judge.placed(secret, placement, Place::Header(name))?;
                let replaced = rewrite::replace(placement, name, value.as_bytes(), secret.value().expose())
                    .ok_or_else(|| {
                    judge.denial(Reason::CredentialMisplaced, secret, Place::Header(name))
                })?;
                swaps.headers.push((name.clone(), index, replaced));
                swaps.secrets.push(secret.name().to_owned());
            }
        }
    }
    swaps.secrets.sort_unstable();
    swaps.secrets.dedup();
    Ok(swaps)
}

/// The placement of which the value is exactly this secret's stand-in, with nothing before, behind or around it.
fn exact_placement<'s>(secret: &'s Secret, name: &HeaderName, value: &HeaderValue) -> Option<&'s Placement> {
    let exact = |placement: &&Placement| {
        rewrite::credential(placement, name, value.as_bytes()).is_some_and(|found| secret.answers_to(found))
    };
    secret.declaration().placements.iter().find(exact)
}

struct Judge<'a> {
    grants: &'a Grants,
    head: &'a RequestHead<'a>,
}

impl Judge<'_> {
    /// The placement again, if the stand-in may be swapped there.
    fn placed<'p>(
        &self,
        secret: &Secret,
        placement: Option<&'p Placement>,
        place: Place<'_>,
    ) -> Result<&'p Placement, CredentialDenial> {
        let reason = if !self.grants.contains(secret.name()) {
            Reason::CredentialNotGranted
        } else if !secret.declaration().is_bound_to(self.head.host) {
            Reason::CredentialMisdirected
        } else {
            match placement {
                None => Reason::CredentialMisplaced,
                Some(_) if !self.head.verified_tls => Reason::CredentialInClear,
                Some(placement) => return Ok(placement),
            }
        };
        Err(self.denial(reason, secret, place))
    }

    fn denial(&self, reason: Reason, secret: &Secret, place: Place<'_>) -> CredentialDenial {
        let (name, host, declaration) = (secret.name(), self.head.host, secret.declaration());
        let remedy = match reason {
            Reason::CredentialNotGranted => {
                format!(
                    "start the container with --annotation understudy.secrets={name} if it should have `{name}`"
                )
            }
            Reason::CredentialMisdirected => format!(
                "secret `{name}` is for {}; if {host} should get it, add it to `hosts` ({})",
                list(&declaration.hosts),
                declaration.place
            ),
            Reason::CredentialInClear => format!("use https://{host}"),
            _ => format!(
                "secret `{name}` may stand in {}; if it should stand elsewhere, add that to `placements` ({})",
                list(&declaration.placements),
                declaration.place
            ),
        };
        CredentialDenial { reason, secret: Some(name.to_owned()), place: place.to_string(), remedy }
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "examine/tests.rs"]
mod tests;
