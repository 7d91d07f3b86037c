//! What a service sends beside a credential that is declared, in an object that it encodes: no other credential goes on to the
//! container. Pure.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
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
/// As clients decode, who mind neither padding nor the last bits.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

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
            Value::Array(items) => {
                if options_name_one(items) {
                    return Some(shown(path));
                }
                items.iter().enumerate().find_map(|(index, item)| {
                    path.push(index.to_string());
                    let found = self.value(path, name, item);
                    path.pop();
                    found
                })
            }
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
        let known =
            |text: &[u8]| decoded_forms(text).any(|text| self.catalogue.credential_in(&text).is_some());
        let decoded = |text: &str| {
            [STANDARD, URL_SAFE].iter().any(|engine| engine.decode(text).is_ok_and(|t| known(&t)))
        };
        let telling = |text: &str| !self.harmless && telling_value(text);
        if known(text.as_bytes()) || !value && telling(text) {
            return true;
        }
        let mut before = "";
        value
            && text
                .split(|c: char| c.is_whitespace() || "\"'`,".contains(c))
                .filter(|word| !word.is_empty())
                .any(|word| {
                    let named = says_so(before.trim_start_matches('-').trim_end_matches([':', '=']))
                        && (before.starts_with('-') || before.ends_with([':', '=']));
                    before = word;
                    // Prose has colons, too.
                    named
                        && !word.starts_with('-')
                        && !is_plain(word)
                        && (!self.harmless || telling_value(word))
                        || decoded(word)
                        || self.word(word)
                })
    }

    /// One without blanks.
    fn word(self, word: &str) -> bool {
        let apart = |word: &str| !self.harmless && word.split(['=', ':', ';', '|', '%']).any(telling_value);
        let says = |word: &str| {
            let pair = word.split_once(['=', ':']);
            pair.is_some_and(|(name, value)| {
                says_so(name.trim_start_matches('-'))
                    && !is_plain(value)
                    && !value.is_empty()
                    && (!self.harmless || telling_value(value))
            })
        };
        match word.split_once("://") {
            // What is before it is a scheme, or has one at its end; what is behind it may hold another one.
            Some((scheme, rest)) => apart(scheme) || rest.split("://").any(url_holds_one),
            None => apart(word) || says(word),
        }
    }
}

/// What a text holds that is JSON, as it is or as base64.
fn encoded(text: &str) -> Option<Value> {
    let text = text.trim();
    let json = |bytes: &[u8]| unique::parse(bytes).ok().filter(|value| value.is_object() || value.is_array());
    json(text.as_bytes())
        .or_else(|| json(&URL_SAFE.decode(text).ok()?))
        .or_else(|| json(&STANDARD.decode(text).ok()?))
}

/// `["--api-key", …]`, `["Authorization", …]`.
fn options_name_one(items: &[Value]) -> bool {
    let text = |item: Option<&Value>| item.and_then(Value::as_str).unwrap_or_default().to_owned();
    items.iter().zip(items.iter().skip(1)).any(|(name, value)| {
        let (name, value) = (text(Some(name)), text(Some(value)));
        let names = name.starts_with('-') || items.len() == 2;
        names
            && !name.contains(char::is_whitespace)
            && says_so(name.trim_start_matches('-'))
            && !value.starts_with('-')
            && !is_plain(&value)
            && !value.is_empty()
    })
}

/// `{"name": "GITHUB_TOKEN", "value": …}`.
fn names_one(members: &Map<String, Value>) -> bool {
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let told = |value: &Value| match value {
        Value::String(text) => !is_plain(text) && !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    ["name", "key", "header"].iter().any(|name| says_so(text(name)))
        && ["value", "values"].iter().any(|name| members.get(*name).is_some_and(told))
}

fn says_so(name: &str) -> bool {
    let name = parted(name);
    telling_name(&name)
        || ["key", "auth", "pat", "pass", "bearer", "signature"]
            .iter()
            .any(|word| name.split('_').any(|part| part == *word))
        || ["authorization", "passwd", "passphrase", "privatekey", "accesskey", "sessionkey"]
            .iter()
            .any(|word| name.contains(word))
}

/// `accessKey`, `X-Access-Key`: `access_key`, `x_access_key`.
fn parted(name: &str) -> String {
    let mut parted = String::with_capacity(name.len());
    let mut lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && lower {
            parted.push('_');
        }
        lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        parted.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    parted
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
    // places in lists say nothing
    let named = path.iter().filter(|name| !name.bytes().all(|b| b.is_ascii_digit()));
    named.map(short).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
