//! Where a credential is in an answer's body: a field of its JSON, or a field of a JSON object that stands there as base64url.

use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::answer::MintError;
use super::beside::opened;
use crate::credentials::body::json;
use crate::credentials::catalogue::Catalogue;
use crate::credentials::catalogue::minted::Minted;
use crate::credentials::placement::Pointer;

pub(super) struct Found {
    /// Of the body.
    range: Range<usize>,
    pub(super) text: Zeroizing<String>,
    /// What is encoded there, and where in that the credential is.
    around: Option<(Zeroizing<Vec<u8>>, Range<usize>)>,
}

impl Found {
    /// None if the body has no such field. `known` are all that is declared for this answer.
    pub(super) fn of(
        body: &[u8],
        declared: &Minted,
        known: &[Minted],
        catalogue: &Catalogue,
    ) -> Result<Option<Self>, MintError> {
        let Some(field) = json::find(body, &declared.field).map_err(MintError::Body)? else {
            return Ok(None);
        };
        let text = Zeroizing::new(field.value.ok_or(MintError::NoText)?);
        let range = field.range;
        let Some(inside) = declared.inside.as_ref().filter(|_| !text.is_empty()) else {
            return Ok(Some(Self { range, text, around: None }));
        };
        let same = known.iter().filter(|other| other.field == declared.field);
        let places: Vec<&Pointer> = same.filter_map(|other| Some(&other.inside.as_ref()?.at)).collect();
        let opened = opened(&text, inside, &places, catalogue)?;
        let field = json::find(&opened, &inside.at).map_err(MintError::Body)?.ok_or(MintError::Absent)?;
        let text = Zeroizing::new(field.value.ok_or(MintError::NoText)?);
        if text.is_empty() {
            return Err(MintError::Absent);
        }
        Ok(Some(Self { range, text, around: Some((opened, field.range)) }))
    }

    /// The body with a stand-in of the credential.
    pub(super) fn replaced(&self, body: &[u8], stand_in: &str) -> Zeroizing<Vec<u8>> {
        let spelled = match &self.around {
            None => json::spelled(stand_in),
            Some((decoded, range)) => {
                let whole = between(decoded, range, json::spelled(stand_in).as_bytes());
                json::spelled(&Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(&*whole)))
            }
        };
        between(body, &self.range, spelled.as_bytes())
    }
}

fn between(around: &[u8], range: &Range<usize>, what: &[u8]) -> Zeroizing<Vec<u8>> {
    let before = around.get(..range.start).unwrap_or_default();
    let behind = around.get(range.end..).unwrap_or_default();
    Zeroizing::new([before, what, behind].concat())
}
