//! What a service sends beside a credential that is declared, in an object that it encodes: no other credential goes on to the
//! container. Pure.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use understudy_policies::unique;
use zeroize::Zeroizing;

use super::answer::MintError;
use crate::accounts::token::{telling_name, telling_value};
use crate::credentials::assertions::unique::Members;
use crate::credentials::body::FieldError;
use crate::credentials::catalogue::Catalogue;
use crate::credentials::catalogue::minted::{Inside, Minted};
use crate::credentials::finder::decoded_forms;
use crate::credentials::placement::Pointer;

/// How often one text may hold another, encoded.
const DEEPEST: usize = 4;
const LONGEST_NAME: usize = 64;

/// The decoded object, without what clients do not read. `places` are those of declared credentials.
pub(super) fn opened(
    text: &str,
    inside: &Inside,
    places: &[&Pointer],
    catalogue: &Catalogue,
) -> Result<Zeroizing<Vec<u8>>, MintError> {
    let malformed = |_| MintError::Body(FieldError::Malformed);
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
    let decoded = Zeroizing::new(decoded.map_err(|_| MintError::Body(FieldError::Malformed))?);
    let Members(mut members) = Members::parse(&decoded).map_err(malformed)?;
    let before = members.len();
    members.retain(|name, _| !inside.left_out.contains(name));
    let mut path = Vec::new();
    for (name, value) in &members {
        let harmless = inside.harmless.contains(name);
        let search = Search { places, catalogue, harmless, depth: 0 };
        if let Some(at) = search.member(&mut path, name, value) {
            return Err(MintError::Beside(at));
        }
    }
    if members.len() == before {
        return Ok(decoded);
    }
    let out = serde_json::to_vec(&members).map_err(|_| MintError::Body(FieldError::Malformed))?;
    Ok(Zeroizing::new(out))
}

/// Looks at the rest of an answer that holds such an object: there, only names and known shapes tell, as it is full of identifiers.
pub(super) fn around(body: &[u8], declared: &[Minted], catalogue: &Catalogue) -> Result<(), MintError> {
    let Ok(value) = unique::parse(body) else { return Err(MintError::Body(FieldError::Malformed)) };
    let places: Vec<&Pointer> = declared.iter().map(|declared| &declared.field).collect();
    let search = Search { places: &places, catalogue, harmless: true, depth: 0 };
    search.value(&mut Vec::new(), "", &value).map_or(Ok(()), |at| Err(MintError::Beside(at)))
}

#[derive(Clone, Copy)]
struct Search<'s> {
    places: &'s [&'s Pointer],
    catalogue: &'s Catalogue,
    /// Whether long words tell nothing here.
    harmless: bool,
    depth: usize,
}

impl Search<'_> {
    /// Where the first one is: the names on the way to it.
    fn member(self, path: &mut Vec<String>, name: &str, value: &Value) -> Option<String> {
        path.push(name.to_owned());
        if self.places.iter().any(|place| place.tokens() == path.as_slice()) && self.depth == 0 {
            path.pop();
            return None;
        }
        // A name can be one, too.
        let found = self.is_one(name, false).then(|| shown(path.split_last().map_or(&[], |(_, rest)| rest)));
        let found = found.or_else(|| self.value(path, name, value));
        path.pop();
        found
    }

    fn value(self, path: &mut Vec<String>, name: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => self.text(path, name, text),
            Value::Array(items) => items.iter().find_map(|item| self.value(path, name, item)),
            Value::Object(members) => {
                if names_one(members) {
                    return Some(shown(path));
                }
                members.iter().find_map(|(name, value)| self.member(path, name, value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn text(self, path: &mut Vec<String>, name: &str, text: &str) -> Option<String> {
        if text.trim().is_empty() {
            return None;
        }
        if let Some(value) = encoded(text) {
            let deeper = Search { depth: self.depth + 1, ..self };
            return match self.depth < DEEPEST {
                true => deeper.value(path, name, &value),
                false => Some(shown(path)),
            };
        }
        (says_so(name) && !is_plain(text) || self.is_one(text, true)).then(|| shown(path))
    }

    fn is_one(self, text: &str, value: bool) -> bool {
        let known = decoded_forms(text.as_bytes()).any(|text| self.catalogue.credential_in(&text).is_some());
        known
            || match text.split_once("://") {
                Some((_, rest)) if value => url_holds_one(rest),
                _ => !self.harmless && telling_value(text),
            }
    }
}

/// What a text holds that is JSON, as it is or as base64.
fn encoded(text: &str) -> Option<Value> {
    let text = text.trim();
    let json = |bytes: &[u8]| unique::parse(bytes).ok().filter(|value| value.is_object() || value.is_array());
    let bare = text.trim_end_matches('=');
    json(text.as_bytes())
        .or_else(|| json(&BASE64_URL_SAFE_NO_PAD.decode(bare).ok()?))
        .or_else(|| json(&BASE64_STANDARD_NO_PAD.decode(bare).ok()?))
}

/// `{"name": "GITHUB_TOKEN", "value": …}`.
fn names_one(members: &Map<String, Value>) -> bool {
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    ["name", "key", "header"].iter().any(|name| says_so(text(name))) && !is_plain(text("value"))
}

fn says_so(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    telling_name(&name)
        || ["key", "auth", "pat", "pass"].iter().any(|word| name.split('_').any(|part| part == *word))
        || ["authorization", "passwd", "passphrase", "privatekey"].iter().any(|word| name.contains(word))
}

/// A number, or yes and no, whatever it is called: `max_tokens`.
fn is_plain(text: &str) -> bool {
    text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit()) || matches!(text, "true" | "false")
}

/// Of a URL without its scheme: somebody's name and password, or a parameter that says what it is.
fn url_holds_one(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let parameters = rest.split(['?', '#', '&', ';']).skip(1).filter_map(|pair| pair.split_once('='));
    authority.contains('@')
        || parameters
            .into_iter()
            .any(|(name, value)| says_so(name) && !is_plain(value) || telling_value(value))
}

/// The names are of whoever answered.
fn shown(path: &[String]) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
    let short = |name: &String| match name.len() <= LONGEST_NAME && name.bytes().all(plain) {
        true if !telling_value(name) => name.clone(),
        _ => "…".to_owned(),
    };
    path.iter().map(short).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
