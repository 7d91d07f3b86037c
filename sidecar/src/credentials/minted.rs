//! Credentials that an upstream minted for this container: taken from the answers to declared requests that carried a
//! swapped stand-in ([`Minting`]), and let through afterwards, in their places, at their hosts. Nothing else counts as minted:
//! an agent can have any word said to it.

mod answer;
mod beside;
mod found;

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::examine::{CredentialDenial, Place, RequestHead, outside_values};
use super::finder::decoded_forms;
use super::grants::Grants;
use super::holdings::{MintedCredential, MintedNow};
use super::slots::Part;
use crate::reason::Reason;

pub use answer::{MintError, Minting};

/// A header that holds one, in its place.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) name: HeaderName,
    pub(super) index: usize,
    /// What it holds beside it.
    pub(super) rest: Vec<u8>,
    /// The label, and what goes upstream, if the container had a stand-in.
    pub(super) swapped: Option<(String, HeaderValue)>,
}

/// The headers with minted credentials. A stand-in of one that stands anywhere else, and the value of one that the
/// container was never told, end the request.
pub(super) fn check(
    minted: &MintedNow,
    grants: &Grants,
    head: &RequestHead<'_>,
) -> Result<Vec<Accepted>, CredentialDenial> {
    if minted.all().next().is_none() {
        return Ok(Vec::new());
    }
    let mut accepted = Vec::new();
    for name in head.headers.keys() {
        for (index, value) in head.headers.get_all(name).iter().enumerate() {
            let place = Place::Header(name);
            let found = in_place(minted, grants, head, name, value)?;
            let text = found.as_ref().map_or(Cow::Borrowed(value.as_bytes()), |(rest, _)| rest.into());
            nothing_else(minted, place, &text)?;
            let Some((rest, swapped)) = found else { continue };
            if head.headers.get_all(name).iter().count() > 1 {
                return Err(denial(Reason::Malformed, None, place, "send it once"));
            }
            if swapped.is_some() && !head.verified_tls {
                let remedy = format!("use https://{}", head.host);
                return Err(denial(Reason::CredentialInClear, None, place, &remedy));
            }
            accepted.push(Accepted { name: name.clone(), index, rest, swapped });
        }
    }
    outside_values(head).iter().try_for_each(|(place, text)| nothing_else(minted, *place, text))?;
    Ok(accepted)
}

type InPlace = (Vec<u8>, Option<(String, HeaderValue)>);

fn in_place(
    minted: &MintedNow,
    grants: &Grants,
    head: &RequestHead<'_>,
    name: &HeaderName,
    value: &HeaderValue,
) -> Result<Option<InPlace>, CredentialDenial> {
    let part = Part::header(name, value.as_bytes());
    for credential in minted.usable(grants, head.host) {
        let mut slots = credential.placements.iter().flat_map(|placement| part.slots(placement));
        let Some(slot) = slots.find(|slot| slot.exact && credential.answers_to(&slot.value(part.inner())))
        else {
            continue;
        };
        let inner = part.inner();
        let before = inner.get(..slot.range.start).unwrap_or_default();
        let behind = inner.get(slot.range.end..).unwrap_or_default();
        let rest = [before, &[0], behind].concat();
        if credential.stand_in.is_none() {
            return Ok(Some((rest, None)));
        }
        let real = credential.value.expose().as_bytes();
        let whole = part.wrapped(&Zeroizing::new([before, real, behind].concat()));
        let mut whole = HeaderValue::from_bytes(&whole).map_err(|_| {
            let remedy = "what stands around the stand-in cannot be sent";
            denial(Reason::Malformed, Some(credential), Place::Header(name), remedy)
        })?;
        whole.set_sensitive(true);
        return Ok(Some((rest, Some((credential.label.clone(), whole)))));
    }
    Ok(None)
}

fn nothing_else(minted: &MintedNow, place: Place<'_>, text: &[u8]) -> Result<(), CredentialDenial> {
    let forms: Vec<_> = decoded_forms(text).collect();
    let holds = |word: &str| forms.iter().any(|form| contains(form, word.as_bytes()));
    for credential in minted.all() {
        let Some(stand_in) = &credential.stand_in else { continue };
        if holds(credential.value.expose()) {
            let remedy = "the container was never given this value: find out how it got there";
            return Err(denial(Reason::RealCredential, Some(credential), place, remedy));
        }
        if holds(stand_in) {
            let hosts: Vec<String> = credential.hosts.iter().map(ToString::to_string).collect();
            let remedy = format!("it was made for {}, and stands in a header there", hosts.join(", "));
            return Err(denial(Reason::CredentialMisdirected, Some(credential), place, &remedy));
        }
    }
    Ok(())
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn denial(
    reason: Reason,
    credential: Option<&MintedCredential>,
    place: Place<'_>,
    remedy: &str,
) -> CredentialDenial {
    let secret = credential.map(|credential| credential.label.clone());
    CredentialDenial { reason, secret, place: place.to_string(), remedy: remedy.to_owned() }
}

impl MintedCredential {
    /// Whether `text` is what the container has of it.
    fn answers_to(&self, text: &[u8]) -> bool {
        match &self.stand_in {
            Some(stand_in) => stand_in.as_bytes() == text,
            None => self.value.is(text),
        }
    }
}

impl MintedNow {
    /// Whether `text` is one that may be sent to this host.
    pub(super) fn accepts(&self, grants: &Grants, head: &RequestHead<'_>, text: &[u8]) -> bool {
        self.usable(grants, head.host).any(|credential| credential.answers_to(text))
    }

    /// Whether a stand-in of one is in `text`.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let stand_ins = self.all().filter_map(|credential| credential.stand_in.as_deref());
        let forms: Vec<_> = decoded_forms(text).collect();
        stand_ins.into_iter().any(|word| forms.iter().any(|form| contains(form, word.as_bytes())))
    }
}

#[cfg(test)]
mod tests;
