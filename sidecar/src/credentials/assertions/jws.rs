//! A signed JSON Web Token in its compact form (RFC 7515 section 7.1, RFC 7519), read strictly: where servers could read it
//! in two ways it is none. Pure.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::unique::{Members, NotUnique};

/// Without padding, and bits that say nothing must be zero.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Of the whole token; what clients make has 800 letters.
pub const MOST: usize = 8192;

/// What a header may say; all else could change what the signature is over, or by which key it is held good.
const HEADER: [&str; 3] = ["alg", "typ", "kid"];

#[derive(Debug, Clone, PartialEq)]
pub struct Jws<'t> {
    /// What is signed: header, dot, claims, as they were written.
    signed: &'t str,
    claims_text: &'t str,
    signature_text: &'t str,
    claims: Members,
    signature: Vec<u8>,
}

/// Nothing of the token is repeated but names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    #[error("it is longer than {MOST} characters")]
    TooLong,
    #[error("it is not three parts with dots between them")]
    Parts,
    #[error("its {0} is not plain base64url (RFC 7515 section 2: no padding, no white space)")]
    Base64(&'static str),
    #[error("its {0}: {1}")]
    Json(&'static str, NotUnique),
    #[error("its header names `{0}`, which is not understood; only alg, typ and kid are")]
    Header(String),
    #[error("it must be signed with RS256")]
    Algorithm,
    #[error("its header's `{0}` is not as it should be")]
    HeaderValue(&'static str),
    #[error("it has no signature")]
    Unsigned,
}

impl<'t> Jws<'t> {
    pub fn parse(text: &'t str) -> Result<Self, JwsError> {
        if text.len() > MOST {
            return Err(JwsError::TooLong);
        }
        let parts: Vec<&str> = text.split('.').collect();
        let [header_text, claims_text, signature_text] = parts.as_slice() else {
            return Err(JwsError::Parts);
        };
        let header = object("header", header_text)?;
        for (name, value) in header.all() {
            if !HEADER.contains(&name) {
                return Err(JwsError::Header(shown(name)));
            }
            if !value.is_string() {
                return Err(JwsError::HeaderValue(if name == "alg" { "alg" } else { "typ` or `kid" }));
            }
        }
        if header.text("alg") != Some("RS256") {
            return Err(JwsError::Algorithm);
        }
        if header.text("typ").is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT")) {
            return Err(JwsError::HeaderValue("typ"));
        }
        let claims = object("claims", claims_text)?;
        let signature = BASE64.decode(signature_text).map_err(|_| JwsError::Base64("signature"))?;
        if signature.is_empty() {
            return Err(JwsError::Unsigned);
        }
        let signed = text.get(..header_text.len() + 1 + claims_text.len()).unwrap_or_default();
        Ok(Self { signed, claims_text, signature_text, claims, signature })
    }

    pub fn signed(&self) -> &'t str {
        self.signed
    }

    /// As they were written.
    pub fn claims_text(&self) -> &'t str {
        self.claims_text
    }

    /// As it was written.
    pub fn signature_text(&self) -> &'t str {
        self.signature_text
    }

    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    pub fn claims(&self) -> &Members {
        &self.claims
    }
}

/// Who says to have made a token, however it is written and signed: so that one that claims to be ours is told from any
/// other word.
pub fn claimed_issuer(text: &str) -> Option<String> {
    let mut parts = text.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    // As tolerant as any server.
    let plain: String = claims
        .chars()
        .filter(|c| *c != '=')
        .map(|c| match c {
            '+' => '-',
            '/' => '_',
            other => other,
        })
        .collect();
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let bytes = GeneralPurpose::new(&URL_SAFE, config).decode(plain).ok()?;
    match serde_json::from_slice::<Value>(&bytes).ok()?.get("iss")? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn object(what: &'static str, text: &str) -> Result<Members, JwsError> {
    let bytes = BASE64.decode(text).map_err(|_| JwsError::Base64(what))?;
    Members::parse(&bytes).map_err(|error| JwsError::Json(what, error))
}

/// At most 32 plain characters of a name.
pub(super) fn shown(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '#') { c } else { '?' }
    };
    name.chars().take(32).map(plain).collect()
}

#[cfg(test)]
#[path = "jws/tests.rs"]
mod tests;
