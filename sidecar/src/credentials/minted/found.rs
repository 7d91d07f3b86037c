//! Where a credential is in an answer's body: a field of its JSON, or a field of a JSON object that stands there as base64url.

use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::answer::MintError;
use crate::credentials::body::{FieldError, json};
use crate::credentials::catalogue::minted::Minted;

pub(super) struct Found {
    /// Of the body.
    range: Range<usize>,
    pub(super) text: Zeroizing<String>,
    /// What is encoded there, and where in that the credential is.
    around: Option<(Zeroizing<Vec<u8>>, Range<usize>)>,
}

impl Found {
    /// None if the body has no such field.
    pub(super) fn of(body: &[u8], declared: &Minted) -> Result<Option<Self>, MintError> {
        let Some(field) = json::find(body, &declared.field).map_err(MintError::Body)? else {
            return Ok(None);
        };
        let text = Zeroizing::new(field.value.ok_or(MintError::NoText)?);
        let range = field.range;
        let Some(inside) = declared.inside.as_ref().filter(|_| !text.is_empty()) else {
            return Ok(Some(Self { range, text, around: None }));
        };
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        let decoded = Zeroizing::new(decoded.map_err(|_| MintError::Body(FieldError::Malformed))?);
        let Some(field) = json::find(&decoded, inside).map_err(MintError::Body)? else { return Ok(None) };
        let text = Zeroizing::new(field.value.ok_or(MintError::NoText)?);
        Ok(Some(Self { range, text, around: Some((decoded, field.range)) }))
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
