//! Credentials in the body of a request: the fields that `form` and `json` placements name, and no others. Pure.

pub(super) mod form;
pub(super) mod json;
mod multipart;

use std::ops::Range;

use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use understudy_policies::{HostName, PathPattern, Readings, RequestPath};
use zeroize::Zeroizing;

use super::declaration::{Declaration, Foreign};
use super::examine::{CredentialDenial, Judge, Place, RequestHead, Swaps, plainly};
use super::grants::Grants;
use super::minting;
use super::placement::Placement;
use super::retired;
use super::scope::OVERRIDING_KEY;
use super::vault::Vault;
use crate::reason::Reason;

/// What the fields of a body are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// `application/x-www-form-urlencoded`.
    Form,
    Json,
    /// `multipart/form-data`.
    Multipart,
    /// Nothing says what it is.
    Unstated,
    /// None of them is for a credential.
    Other,
}

/// What goes upstream instead of the body.
pub struct SwappedBody {
    pub bytes: Zeroizing<Vec<u8>>,
    /// Sorted, each once; empty if nothing was swapped.
    pub secrets: Vec<String>,
}

/// Why the fields of a body cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the body is not what its Content-Type says")]
    Malformed,
    #[error("the body is nested deeper than 128 levels")]
    Deep,
    #[error("the field stands in the body twice")]
    Twice,
}

/// A field of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// As it is written, with quotes or escapes.
    pub(super) range: Range<usize>,
    /// None: it is no text.
    pub(super) value: Option<String>,
}

impl Fields {
    fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "multipart/form-data" => Some(Self::Multipart),
            "application/json" | "text/json" => Some(Self::Json),
            other if other.ends_with("+json") => Some(Self::Json),
            _ => None,
        }
    }

    fn mean(self, placement: &Placement) -> bool {
        matches!(
            (self, placement),
            (Self::Form, Placement::Form { .. })
                | (Self::Json, Placement::Json { .. })
                | (Self::Multipart, Placement::Multipart { .. })
        )
    }

    fn find(
        self,
        head: &RequestHead<'_>,
        body: &[u8],
        placement: &Placement,
    ) -> Result<Option<Field>, FieldError> {
        match placement {
            Placement::Form { field, .. } => self.named(head, body, field),
            Placement::Json { pointer, .. } => json::find(body, pointer),
            Placement::Multipart { field, .. } => self.named(head, body, field),
            _ => Ok(None),
        }
    }

    /// A field of a form, in either encoding.
    fn named(self, head: &RequestHead<'_>, body: &[u8], name: &str) -> Result<Option<Field>, FieldError> {
        match self {
            Self::Form => form::find(body, name),
            Self::Multipart => {
                let stated = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
                multipart::find(body, stated, name)
            }
            Self::Json | Self::Unstated | Self::Other => Ok(None),
        }
    }

    fn spelled(self, credential: &str) -> Zeroizing<String> {
        match self {
            Self::Form => form::spelled(credential),
            Self::Json => json::spelled(credential),
            Self::Multipart | Self::Unstated | Self::Other => multipart::spelled(credential),
        }
    }
}

/// Whether the body of this request may hold a credential in a field, so that it must be read before anything is sent.
/// Where one is declared, a body that no placement is about is refused: the server may read it all the same.
pub fn fields(vault: &Vault, head: &RequestHead<'_>) -> Result<Option<Fields>, CredentialDenial> {
    if body_placements(vault, head.host).next().is_none() || !may_have_body(head) {
        return Ok(None);
    }
    plain_path(head)?;
    let path = Readings::of(head.uri.path());
    let here: Vec<(&Declaration, &Placement)> =
        body_placements(vault, head.host).filter(|(_, placement)| may_be_for(placement, &path)).collect();
    let Some((_, first)) = here.first() else { return Ok(None) };
    let types: Vec<_> = head.headers.get_all(CONTENT_TYPE).iter().collect();
    let stated = types.iter().filter_map(|value| value.to_str().ok().and_then(Fields::of)).next();
    let meant = stated.and_then(|fields| {
        here.iter().find(|(_, placement)| fields.mean(placement)).map(|(_, p)| (fields, p))
    });
    let Some((fields, placement)) = meant else {
        // A service that reads none of ours can be told anything.
        return match here.iter().any(|(declaration, _)| declaration.foreign == Foreign::Deny) {
            false => Ok(None),
            true if types.is_empty() => Ok(Some(Fields::Unstated)),
            true => Err(undeclared(first)),
        };
    };
    if types.len() > 1 {
        return Err(denial(Reason::Malformed, Place::Header(&CONTENT_TYPE), "send it once"));
    }
    if is_encoded(head) {
        let remedy = "send the body without Content-Encoding: it has a field for a credential";
        return Err(denial(Reason::BodyEncoded, Place::Body(placement), remedy));
    }
    Ok(Some(fields))
}

/// What the body must be read as, to see whether it names another method than the request's own: some frameworks believe
/// a field of a form, and secrets that are for some methods only were swapped.
pub fn overriding(
    vault: &Vault,
    head: &RequestHead<'_>,
    swaps: &Swaps,
) -> Result<Option<Fields>, CredentialDenial> {
    if !may_have_body(head) || !is_limited(vault, swaps) {
        return Ok(None);
    }
    let types = head.headers.get_all(CONTENT_TYPE).iter();
    let form = |fields: &Fields| matches!(fields, Fields::Form | Fields::Multipart);
    let fields = types.filter_map(|value| value.to_str().ok().and_then(Fields::of)).find(form);
    if fields.is_some() && is_encoded(head) {
        let remedy = "send the form without Content-Encoding: the secret is for some methods only";
        return Err(denial(Reason::BodyEncoded, Place::AnyBody, remedy));
    }
    Ok(fields)
}

/// Refuses a form that names another method.
pub fn no_override(
    vault: &Vault,
    head: &RequestHead<'_>,
    swaps: &Swaps,
    fields: Fields,
    body: &[u8],
) -> Result<(), CredentialDenial> {
    if !is_limited(vault, swaps) {
        return Ok(());
    }
    let found = fields.named(head, body, OVERRIDING_KEY);
    match found.map_err(|error| denial(Reason::Malformed, Place::AnyBody, &error.to_string()))? {
        None => Ok(()),
        Some(_) => {
            let remedy = format!(
                "it may be used with some methods or paths only; send no `{OVERRIDING_KEY}` in a form"
            );
            let secret = swaps.secrets.first().cloned();
            Err(CredentialDenial { secret, ..denial(Reason::CredentialRestricted, Place::AnyBody, &remedy) })
        }
    }
}

fn is_limited(vault: &Vault, swaps: &Swaps) -> bool {
    let used = swaps.secrets.iter().filter_map(|name| vault.secret(name));
    used.into_iter().any(|secret| !secret.declaration().scope.methods.is_empty())
}

pub(super) fn is_encoded(head: &RequestHead<'_>) -> bool {
    let plain = |value: &http::HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    !head.headers.get_all(CONTENT_ENCODING).iter().all(plain)
}

/// As far as the head says: HTTP/2 need not state a length.
pub(super) fn may_have_body(head: &RequestHead<'_>) -> bool {
    let stated = |name| head.headers.get_all(name).iter().any(|value| value.as_bytes() != b"0");
    let bodiless = matches!(*head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    !bodiless || stated(CONTENT_TYPE) || stated(CONTENT_LENGTH) || stated(TRANSFER_ENCODING)
}

fn undeclared(placement: &Placement) -> CredentialDenial {
    let remedy = "this endpoint reads credentials, and what it may read in a body of that type is not declared; send the \
                  type that is, or add a placement for this one to the secret";
    denial(Reason::BodyUndeclared, Place::Body(placement), remedy)
}

/// The body with real values where stand-ins stand in its fields, or why it must not leave.
pub fn examine_body(
    vault: &Vault,
    grants: &Grants,
    head: RequestHead<'_>,
    fields: Fields,
    body: &[u8],
) -> Result<SwappedBody, CredentialDenial> {
    if let Some(name) = vault.real_value_in(body) {
        let remedy = format!(
            "the real value of secret `{name}` must not be in a container: find out how it got there, and replace it at its provider"
        );
        let denial = denial(Reason::RealCredential, Place::AnyBody, &remedy);
        return Err(CredentialDenial { secret: Some(name.to_owned()), ..denial });
    }
    let judge = Judge { grants, head: &head };
    let (path, readings) = (plain_path(&head)?, Readings::of(head.uri.path()));
    if fields == Fields::Unstated
        && let Some((_, placement)) =
            body_placements(vault, head.host).find(|(_, p)| may_be_for(p, &readings))
        && !body.is_empty()
    {
        return Err(undeclared(placement));
    }
    let mut hits: Vec<(Range<usize>, Zeroizing<String>)> = Vec::new();
    let mut secrets = Vec::new();
    let here = |(_, placement): &(&Declaration, &Placement)| may_be_for(placement, &readings);
    for (declaration, placement) in placements(vault, head.host, fields).filter(here) {
        let place = Place::Body(placement);
        let found = fields.find(&head, body, placement);
        let found = found.map_err(|error| denial(Reason::Malformed, place, &error.to_string()))?;
        let Some(field) = found else { continue };
        let value = field.value.as_deref().unwrap_or_default();
        if field.value.is_some() && value.is_empty() {
            continue;
        }
        if let Some(name) = vault.retired_in(value.as_bytes()) {
            return Err(retired::denial(Some(name), place));
        }
        for secret in vault.stand_ins_in(value.as_bytes()) {
            judge.may_use(secret).map_err(|reason| judge.denial(reason, secret, place))?;
            let mut own = secret.declaration().placements.iter();
            let own = own.any(|own| is_for(own, &path) && same_field(own, placement));
            if !own || !secret.answers_to(value.as_bytes()) {
                return Err(judge.denial(Reason::CredentialMisplaced, secret, place));
            }
            judge.may_leave(secret, place)?;
            let Some(real) = secret.value() else {
                return Err(judge.denial(Reason::CredentialMisplaced, secret, place));
            };
            hits.push((field.range.clone(), fields.spelled(real.expose())));
            secrets.push(secret.name().to_owned());
        }
        if declaration.foreign == Foreign::Deny && !vault.is_stand_in(value) {
            let remedy = format!(
                "only stand-ins are sent to {}; declare the credential in secrets.toml and use its stand-in",
                head.host
            );
            return Err(denial(Reason::ForeignCredential, place, &remedy));
        }
    }
    hits.sort_by_key(|(range, _)| range.start);
    hits.dedup_by_key(|(range, _)| range.start);
    let mut bytes = Zeroizing::new(Vec::with_capacity(body.len()));
    let mut at = 0;
    for (range, value) in &hits {
        bytes.extend_from_slice(body.get(at..range.start).unwrap_or_default());
        bytes.extend_from_slice(value.as_bytes());
        at = range.end;
    }
    bytes.extend_from_slice(body.get(at..).unwrap_or_default());
    secrets.sort_unstable();
    secrets.dedup();
    let swaps = Swaps { secrets, ..Swaps::default() };
    if !swaps.secrets.is_empty() {
        minting::check(vault, grants, &head, &swaps)?;
    }
    let secrets = swaps.secrets;
    Ok(SwappedBody { bytes, secrets })
}

fn placements<'v>(
    vault: &'v Vault,
    host: &'v HostName,
    fields: Fields,
) -> impl Iterator<Item = (&'v Declaration, &'v Placement)> {
    body_placements(vault, host).filter(move |(_, placement)| fields.mean(placement))
}

/// With a path.
fn body_placements<'v>(
    vault: &'v Vault,
    host: &'v HostName,
) -> impl Iterator<Item = (&'v Declaration, &'v Placement)> {
    let of_one = |declaration: &'v Declaration| {
        declaration.placements.iter().map(move |placement| (declaration, placement))
    };
    vault.bound_to(host).flat_map(of_one).filter(|(_, placement)| pattern(placement).is_some())
}

/// Whether a credential may be written there.
fn is_for(placement: &Placement, path: &RequestPath) -> bool {
    pattern(placement).is_some_and(|pattern| pattern.matches_surely(path))
}

/// Whether a server could read a credential there.
fn may_be_for(placement: &Placement, path: &Readings) -> bool {
    pattern(placement).is_some_and(|pattern| pattern.matches_possibly(path))
}

fn pattern(placement: &Placement) -> Option<&PathPattern> {
    match placement {
        Placement::Form { path, .. } | Placement::Json { path, .. } | Placement::Multipart { path, .. } => {
            Some(path)
        }
        _ => None,
    }
}

fn same_field(one: &Placement, other: &Placement) -> bool {
    match (one, other) {
        (Placement::Form { field: one, .. }, Placement::Form { field: other, .. })
        | (Placement::Multipart { field: one, .. }, Placement::Multipart { field: other, .. }) => {
            one == other
        }
        (Placement::Json { pointer: one, .. }, Placement::Json { pointer: other, .. }) => one == other,
        _ => false,
    }
}

fn plain_path(head: &RequestHead<'_>) -> Result<RequestPath, CredentialDenial> {
    RequestPath::parse(head.uri.path())
        .map_err(|error| denial(Reason::Malformed, Place::Url, &plainly(error)))
}

fn denial(reason: Reason, place: Place<'_>, remedy: &str) -> CredentialDenial {
    CredentialDenial { reason, secret: None, place: place.to_string(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests;
