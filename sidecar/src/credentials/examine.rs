//! One request's head: what is to be swapped in it, or why it must not leave. Pure.
//!
//! The order is fixed: a real value anywhere ends it; then every stand-in must be granted, at a host of its secret, in
//! a place of its secret, with a method and path of its secret, over verified TLS; then nothing else may look like a
//! credential where secrets are bound. Only what is a stand-in is replaced, only where one may stand; nothing is ever
//! added, and every other byte stays.

mod swap;

use std::fmt;

use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use understudy_policies::{HostName, PathError, RequestPath};

use super::assertions::{self, Authorized};
use super::aws::{self, Signing};
use super::catalogue::Minted;
use super::foreign;
use super::grants::Grants;
use super::holdings::{HeldValue, MintedNow};
use super::minted;
use super::minting;
use super::placement::Placement;
use super::retired;
use super::slots;
use super::vault::{Secret, Vault};
use crate::reason::Reason;
use swap::Swapper;

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
    /// What goes upstream instead of the client's path and query.
    pub path: Option<SwappedPath>,
    /// Names of the secrets that are swapped in, for the audit and the pool key; sorted, each once.
    pub secrets: Vec<String>,
    /// Whether all of these secrets let parts of what is downloaded here be asked for.
    pub download: bool,
    /// The signature that is made anew for what goes upstream.
    pub signing: Option<Signing>,
    /// What the answer has for the container, beside what is declared of the endpoint.
    pub minted: Vec<Minted>,
    /// The signature of a token that was signed again: an answer must not repeat it.
    pub signature: Option<HeldValue>,
}

impl Swaps {
    /// Adds the names of secrets that are swapped in elsewhere in the request.
    pub fn add(&mut self, secrets: Vec<String>) {
        self.download &= secrets.is_empty();
        self.secrets.extend(secrets);
        self.secrets.sort_unstable();
        self.secrets.dedup();
    }

    /// A token that is signed again in the head.
    fn authorize(&mut self, authorized: Option<Authorized>) {
        let Some(authorized) = authorized else { return };
        self.headers.push(authorized.header());
        (self.minted, self.signature) = (authorized.minted, Some(authorized.signature));
        self.add(vec![authorized.secret]);
    }

    /// What is signed must not be changed by a swap.
    fn sign(&mut self, signing: Option<Signing>) -> Result<(), CredentialDenial> {
        let Some(signing) = signing else { return Ok(()) };
        if let Some(other) = self.secrets.first() {
            return Err(CredentialDenial {
                reason: Reason::CredentialMisplaced,
                secret: Some(other.clone()),
                place: "a signed request".to_owned(),
                remedy: format!(
                    "a request that is signed can carry no other stand-in; send `{other}` in one of its own"
                ),
            });
        }
        self.secrets.push(signing.secret().to_owned());
        self.signing = Some(signing);
        Ok(())
    }
}

/// Path and query with a real value in it. Does not print.
pub struct SwappedPath(PathAndQuery);

impl SwappedPath {
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.0
    }
}

impl fmt::Debug for SwappedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SwappedPath(..)")
    }
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
///
/// `minted` is what upstreams made for this container.
pub fn examine(
    vault: &Vault,
    grants: &Grants,
    minted: &MintedNow,
    head: RequestHead<'_>,
) -> Result<Swaps, CredentialDenial> {
    no_real_value(vault, &head)?;
    let accepted = minted::check(minted, grants, &head)?;
    retired::check(vault, minted, &head)?;
    let signing = aws::check(vault, grants, &head)?;
    let authorized = assertions::check(vault, grants, &head)?;
    let left = match (&signing, &authorized) {
        (Some(signing), _) => Some(signing.without(head.uri, head.headers)),
        (None, Some(_)) => Some(Authorized::without(head.uri, head.headers)),
        (None, None) => None,
    };
    let head = match &left {
        Some((uri, headers)) => RequestHead { uri, headers, ..head },
        None => head,
    };
    let (mut swaps, mut rests) = Swapper::new(vault, Judge { grants, head: &head }).run()?;
    for header in accepted {
        if let Some((label, value)) = header.swapped {
            swaps.headers.push((header.name.clone(), header.index, value));
            swaps.add(vec![label]);
        }
        rests.headers.push((header.name, header.index, header.rest));
    }
    if vault.bound_to(head.host).next().is_some() {
        unmistakable(vault, &head)?;
        let stand_in = |text: &[u8]| std::str::from_utf8(text).is_ok_and(|text| vault.is_stand_in(text));
        foreign::check(vault, &head, &rests, |text| stand_in(text) || minted.accepts(grants, &head, text))?;
    }
    swaps.authorize(authorized);
    swaps.sign(signing)?;
    minting::check(vault, grants, &head, &swaps)?;
    // A secret key is not sent, so no part of it can come back.
    swaps.download = swaps.signing.is_some() || is_download(vault, &head, &swaps);
    Ok(swaps)
}

fn is_download(vault: &Vault, head: &RequestHead<'_>, swaps: &Swaps) -> bool {
    let Ok(path) = RequestPath::parse(head.uri.path()) else { return false };
    let declared = |name: &String| {
        let secret = vault.secret(name);
        secret.is_some_and(|secret| secret.declaration().downloads.iter().any(|p| p.matches_surely(&path)))
    };
    *head.method == Method::GET && swaps.secrets.iter().all(declared)
}

/// What each part that was swapped holds beside its credentials.
#[derive(Debug, Default)]
pub(super) struct Rests {
    headers: Vec<(HeaderName, usize, Vec<u8>)>,
    pub(super) url: Option<Vec<u8>>,
}

impl Rests {
    pub(super) fn header(&self, name: &HeaderName, index: usize) -> Option<&[u8]> {
        let own = self.headers.iter().find(|(own, number, _)| own == name && *number == index);
        own.map(|(_, _, rest)| rest.as_slice())
    }
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
    Body(&'a Placement),
    AnyBody,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("method"),
            Self::Url => f.write_str("URL"),
            Self::Host => f.write_str("host name"),
            Self::HeaderName => f.write_str("the name of a header"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Body(placement) => write!(f, "`{placement}`"),
            Self::AnyBody => f.write_str("body"),
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

/// Every part of the head that is not the value of a header.
pub(super) fn outside_values<'a>(head: &RequestHead<'a>) -> Vec<(Place<'a>, Vec<u8>)> {
    let mut parts = vec![
        (Place::Host, head.host.as_str().as_bytes().to_vec()),
        (Place::Method, head.method.as_str().as_bytes().to_vec()),
        (Place::Url, head.uri.to_string().into_bytes()),
    ];
    parts.extend(head.headers.keys().map(|name| (Place::HeaderName, name.as_str().as_bytes().to_vec())));
    parts
}

/// What to do about a path that servers read differently, where one matters.
pub(super) fn plainly(error: PathError) -> String {
    format!(
        "at this host, credentials are in some paths or in what is sent to them, and {error}: write it plainly"
    )
}

/// Refuses what could be one credential for us and another for the upstream.
fn unmistakable(vault: &Vault, head: &RequestHead<'_>) -> Result<(), CredentialDenial> {
    let malformed = |place: Place<'_>, remedy: &str| CredentialDenial {
        reason: Reason::Malformed,
        secret: None,
        place: place.to_string(),
        remedy: remedy.to_owned(),
    };
    let authorizations = head.headers.get_all(AUTHORIZATION).iter();
    if authorizations.map(|value| slots::basic(value.as_bytes())).any(|basic| basic == Some(None)) {
        let remedy = "after `Basic`, send the Base64 of `user:password` (RFC 7617)";
        return Err(malformed(Place::Header(&AUTHORIZATION), remedy));
    }
    let mut placements = vault.bound_to(head.host).flat_map(|declaration| &declaration.placements);
    if placements.any(|placement| matches!(placement, Placement::Path(_)))
        && head.uri.path() != "*"
        && let Err(error) = RequestPath::parse(head.uri.path())
    {
        return Err(malformed(Place::Url, &plainly(error)));
    }
    // Servers that hand headers on as variables (RFC 3875 section 4.1.18) read both in one.
    let placed = |dashed: &str| {
        let mut placements = vault.bound_to(head.host).flat_map(|declaration| &declaration.placements);
        placements.any(|placement| placement.header().is_some_and(|header| header == dashed))
    };
    let twin = |name: &&HeaderName| name.as_str().contains('_') && placed(&name.as_str().replace('_', "-"));
    match head.headers.keys().find(twin) {
        Some(name) => Err(malformed(Place::Header(name), "write the header's name with `-`")),
        None => Ok(()),
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) grants: &'a Grants,
    pub(super) head: &'a RequestHead<'a>,
}

impl Judge<'_> {
    /// Whether this container may use the secret at this host at all.
    pub(super) fn may_use(&self, secret: &Secret) -> Result<(), Reason> {
        if !self.grants.contains(secret.name()) {
            Err(Reason::CredentialNotGranted)
        } else if !secret.declaration().is_bound_to(self.head.host) {
            Err(Reason::CredentialMisdirected)
        } else {
            Ok(())
        }
    }

    /// Whether a secret that stands in its place may leave with this request.
    pub(super) fn may_leave(&self, secret: &Secret, place: Place<'_>) -> Result<(), CredentialDenial> {
        let declaration = secret.declaration();
        if let Err(remedy) = declaration.scope.check(self.head.method, self.head.uri, self.head.headers) {
            let name = secret.name();
            let remedy = format!("secret `{name}` ({}): {remedy}", declaration.place);
            let denial = self.denial(Reason::CredentialRestricted, secret, place);
            return Err(CredentialDenial { remedy, ..denial });
        }
        if !self.head.verified_tls {
            return Err(self.denial(Reason::CredentialInClear, secret, place));
        }
        Ok(())
    }

    pub(super) fn denial(&self, reason: Reason, secret: &Secret, place: Place<'_>) -> CredentialDenial {
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
            _ if declaration.aws.is_some() => {
                format!("`{name}` signs requests, and stands in none but in their signature")
            }
            _ if declaration.assertion.is_some() => {
                format!(
                    "`{name}` signs tokens, and is never sent itself; where it signs, it is for a token endpoint or an API of its own"
                )
            }
            _ if declaration.placements.is_empty() => {
                format!("`{name}` is a token of an account that the sidecar renews itself: it is never sent")
            }
            _ => format!(
                "secret `{name}` may stand in {}; if it should stand elsewhere, add that to `placements` ({})",
                list(&declaration.placements),
                declaration.place
            ),
        };
        CredentialDenial { reason, secret: Some(name.to_owned()), place: place.to_string(), remedy }
    }
}

pub(super) fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "examine/tests.rs"]
mod tests;
