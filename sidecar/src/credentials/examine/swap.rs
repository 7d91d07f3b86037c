//! Writes real values where stand-ins stand in their places.
//!
//! In each part that holds a stand-in, in whatever form, the slots of its secret's placements are replaced, and what is
//! left of the part is searched again: a stand-in that is still there ends the request.

use http::HeaderValue;
use http::header::{COOKIE, HeaderName, SEC_WEBSOCKET_PROTOCOL};
use http::uri::PathAndQuery;
use zeroize::Zeroizing;

use super::super::slots::{Part, Slot, has_open_quote};
use super::super::vault::{Secret, Vault};
use super::{CredentialDenial, Judge, Place, Rests, SwappedPath, Swaps, outside_values};
use crate::reason::Reason;

/// Headers that hold several values, each its own. Any other that holds a credential is sent once: of two, an upstream
/// could take the one that was not swapped.
const LISTS: [HeaderName; 2] = [COOKIE, SEC_WEBSOCKET_PROTOCOL];

pub(super) struct Swapper<'a> {
    vault: &'a Vault,
    judge: Judge<'a>,
    swaps: Swaps,
    rests: Rests,
}

/// A part with real values in it, and what it holds beside them.
struct Written {
    whole: Zeroizing<Vec<u8>>,
    rest: Vec<u8>,
}

impl<'a> Swapper<'a> {
    pub(super) fn new(vault: &'a Vault, judge: Judge<'a>) -> Self {
        Self { vault, judge, swaps: Swaps::default(), rests: Rests::default() }
    }

    pub(super) fn run(mut self) -> Result<(Swaps, Rests), CredentialDenial> {
        let head = self.judge.head;
        for (place, text) in outside_values(head) {
            let part = match place {
                Place::Url => head.uri.path_and_query().map(|url| Part::url(url.as_str())),
                _ => None,
            };
            let Some(written) = self.part(part.as_ref(), &text, place)? else { continue };
            self.swaps.path = Some(SwappedPath(self.path(&written, place)?));
            self.rests.url = Some(written.rest);
        }
        for name in head.headers.keys() {
            for (index, value) in head.headers.get_all(name).iter().enumerate() {
                let (place, value) = (Place::Header(name), value.as_bytes());
                let part = Part::header(name, value);
                let Some(written) = self.part(Some(&part), value, place)? else { continue };
                if !LISTS.contains(name) && head.headers.get_all(name).iter().count() > 1 {
                    return Err(malformed(place, "send it once"));
                }
                // Of HTTP/2's cookies, each in a header of its own, one can be made of all.
                let mut cookies = head.headers.get_all(COOKIE).iter();
                if name == COOKIE && cookies.any(|value| has_open_quote(value.as_bytes())) {
                    return Err(malformed(place, "close every quote of a cookie, and escape none in it"));
                }
                let mut value = HeaderValue::from_bytes(&written.whole)
                    .map_err(|_| malformed(place, "what stands around the stand-in cannot be sent"))?;
                value.set_sensitive(true);
                self.swaps.headers.push((name.clone(), index, value));
                self.rests.headers.push((name.clone(), index, written.rest));
            }
        }
        self.swaps.secrets.sort_unstable();
        self.swaps.secrets.dedup();
        Ok((self.swaps, self.rests))
    }

    /// None if no stand-in is in it. `part` is None for what can hold no credential; `raw` is what is searched.
    fn part(
        &mut self,
        part: Option<&Part<'_>>,
        raw: &[u8],
        place: Place<'_>,
    ) -> Result<Option<Written>, CredentialDenial> {
        let found: Vec<&Secret> = self.vault.stand_ins_in(raw).collect();
        let [first, ..] = found.as_slice() else { return Ok(None) };
        for secret in &found {
            self.judge.may_use(secret).map_err(|reason| self.judge.denial(reason, secret, place))?;
        }
        let misplaced = |secret| self.judge.denial(Reason::CredentialMisplaced, secret, place);
        let Some(part) = part else { return Err(misplaced(first)) };
        let mut hits: Vec<(&Secret, Slot)> = Vec::new();
        for secret in found {
            let slots = slots_of(secret, part);
            if slots.is_empty() {
                return Err(misplaced(secret));
            }
            hits.extend(slots.into_iter().map(|slot| (secret, slot)));
        }
        hits.sort_by_key(|(_, slot)| slot.range.start);

        let inner = part.inner();
        let (mut whole, mut rest) = (Zeroizing::new(Vec::with_capacity(inner.len())), Vec::new());
        let mut at = 0;
        for (secret, slot) in &hits {
            self.judge.may_leave(secret, place)?;
            let value = secret.value().and_then(|value| slot.spelled(value.expose()));
            let value = value.ok_or_else(|| unwritable(secret, place))?;
            let between = inner.get(at..slot.range.start).unwrap_or_default();
            whole.extend_from_slice(between);
            whole.extend_from_slice(value.as_bytes());
            rest.extend_from_slice(between);
            // So that what stood on both sides does not become one word.
            rest.push(0);
            at = slot.range.end;
            self.swaps.secrets.push(secret.name().to_owned());
        }
        let end = inner.get(at..).unwrap_or_default();
        whole.extend_from_slice(end);
        rest.extend_from_slice(end);
        for left in [rest.as_slice(), &part.wrapped(&rest)] {
            if let Some(secret) = self.vault.stand_ins_in(left).next() {
                return Err(misplaced(secret));
            }
        }
        Ok(Some(Written { whole: part.wrapped(&whole), rest }))
    }

    fn path(&self, written: &Written, place: Place<'_>) -> Result<PathAndQuery, CredentialDenial> {
        PathAndQuery::try_from(written.whole.as_slice())
            .map_err(|_| malformed(place, "what stands around the stand-in cannot be sent"))
    }
}

/// The slots that hold exactly this secret's stand-in; each once, even if two placements mean it.
fn slots_of(secret: &Secret, part: &Part<'_>) -> Vec<Slot> {
    let placements = secret.declaration().placements.iter();
    let mut slots: Vec<Slot> = placements.flat_map(|placement| part.slots(placement)).collect();
    slots.retain(|slot| slot.exact && secret.answers_to(&slot.value(part.inner())));
    slots.sort_by_key(|slot| slot.range.start);
    slots.dedup_by_key(|slot| slot.range.start);
    slots
}

fn unwritable(secret: &Secret, place: Place<'_>) -> CredentialDenial {
    let name = secret.name();
    CredentialDenial {
        reason: Reason::CredentialMisplaced,
        secret: Some(name.to_owned()),
        place: place.to_string(),
        remedy: format!(
            "the value of secret `{name}` has a character that cannot stand there; use another of its `placements` ({})",
            secret.declaration().place
        ),
    }
}

fn malformed(place: Place<'_>, remedy: &str) -> CredentialDenial {
    CredentialDenial {
        reason: Reason::Malformed,
        secret: None,
        place: place.to_string(),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests;
