//! JSON Web Tokens (RFC 7519) in their compact form: three parts of base64url with dots between them.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::plan::Part;
use crate::credentials::catalogue::{Alphabet, MIN_DRAWN};

/// 2100-01-01: clients that look at it renew nothing.
const EXPIRES: u64 = 4_102_444_800;

/// The same header, claims that say nothing of the real ones, a signature as long. None if `text` is no JWT with a
/// signature.
pub(super) fn parts(text: &str) -> Option<Vec<Part<'_>>> {
    let mut dotted = text.split('.');
    let (header, claims, signature) = (dotted.next()?, dotted.next()?, dotted.next()?);
    if dotted.next().is_some() || object(header)?.get("alg")?.as_str().is_none() {
        return None;
    }
    object(claims)?;
    let plain = signature.bytes().all(|letter| Alphabet::Base64Url.holds(letter));
    if !plain || signature.len() <= MIN_DRAWN || signature.len() % 4 == 1 {
        return None;
    }
    let (kept, _) = text.split_at(header.len() + 1);
    Some(vec![
        Part::same(kept),
        Part::Same(Cow::Owned(harmless(claims.len()))),
        Part::same("."),
        Part::Drawn(Alphabet::Base64Url, signature.len() - 1),
        Part::OneOf(last_letters(signature.len())),
    ])
}

/// All but the signature. None if `text` is no JWT with a signature, nor one behind a word, as `sk-ant-si-eyJ…`.
pub(super) fn as_it_is(text: &str) -> Option<Vec<Part<'_>>> {
    parts(text).or_else(|| parts(text.get(text.find("-eyJ")? + 1..)?))?;
    let (kept, signature) = text.split_at(text.rfind('.')? + 1);
    let length = signature.len();
    Some(vec![
        Part::same(kept),
        Part::Drawn(Alphabet::Base64Url, length - 1),
        Part::OneOf(last_letters(length)),
    ])
}

/// The same header and claims but `exp`, which is far off, and a signature that means nothing: for clients that read
/// their own account's claims. Padding is not kept. None if `text` is no JWT.
pub(super) fn with_its_claims(text: &str) -> Option<Vec<Part<'static>>> {
    let mut dotted = text.split('.');
    let (header, claims, signature) = (dotted.next()?, dotted.next()?, dotted.next()?);
    let (header, mut claims) = (tolerantly(header)?, tolerantly(claims)?);
    if dotted.next().is_some() || header.get("alg").is_none() {
        return None;
    }
    if claims.contains_key("exp") {
        claims.insert("exp".to_owned(), Value::from(EXPIRES));
    }
    let encoded =
        |object: Map<String, Value>| BASE64_URL_SAFE_NO_PAD.encode(Value::Object(object).to_string());
    let head = format!("{}.{}.", encoded(header), encoded(claims));
    let length = Some(signature.trim_end_matches('=').len());
    let length = length.filter(|length| *length > MIN_SIGNATURE && length % 4 != 1).unwrap_or(SIGNATURE);
    Some(vec![
        Part::Same(Cow::Owned(head)),
        Part::Drawn(Alphabet::Base64Url, length - 1),
        Part::OneOf(last_letters(length)),
    ])
}

/// The claims of a JWT, whoever signed it; with or without padding.
pub(crate) fn claims(text: &str) -> Option<Map<String, Value>> {
    let mut dotted = text.split('.');
    let (header, claims, _) = (dotted.next()?, dotted.next()?, dotted.next()?);
    tolerantly(header)?;
    tolerantly(claims)
}

/// Room for a mark.
const MIN_SIGNATURE: usize = 24;
/// Of ES256 (RFC 7518 section 3.4), in letters.
const SIGNATURE: usize = 86;

/// RFC 7515 section 2 leaves padding out and some issuers do not.
fn tolerantly(part: &str) -> Option<Map<String, Value>> {
    object(&part.trim_end_matches('=').replace('+', "-").replace('/', "_"))
}

fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Claims that encode to `length` letters; to more if the shortest ones do.
fn harmless(length: usize) -> String {
    let claims = |filler: &str| {
        let mut claims = json!({ "iss": "understudy", "sub": "stand-in", "exp": EXPIRES });
        if let (false, Some(claims)) = (filler.is_empty(), claims.as_object_mut()) {
            claims.insert("filler".to_owned(), Value::from(filler));
        }
        claims.to_string()
    };
    let wanted = length * 3 / 4;
    let missing = wanted.checked_sub(claims("x").len() - 1).filter(|missing| *missing > 0);
    BASE64_URL_SAFE_NO_PAD.encode(claims(&"x".repeat(missing.unwrap_or(0))))
}

/// Those with which so many letters are base64url of whole bytes (RFC 4648 section 3.5).
fn last_letters(length: usize) -> &'static str {
    match length % 4 {
        2 => "AQgw",
        3 => "AEIMQUYcgkosw048",
        _ => Alphabet::Base62.letters(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    #[test]
    fn an_accounts_claims_are_kept_and_do_not_expire() {
        let (header, body) = ("{\"alg\":\"RS256\"}", "{\"email\":\"a@b.example\",\"exp\":1700000000}");
        let padded = base64::prelude::BASE64_URL_SAFE.encode(body);
        for (claimed, signature) in [(encoded(body), "s".repeat(342)), (padded, "sig".to_owned())] {
            let real = format!("{}.{claimed}.{signature}", encoded(header));
            let parts = with_its_claims(&real).unwrap();
            let Part::Same(head) = &parts[0] else { panic!("{parts:?}") };
            let kept = claims(&format!("{head}x")).unwrap();
            assert_eq!((kept["email"].as_str(), kept["exp"].as_u64()), (Some("a@b.example"), Some(EXPIRES)));
            assert!(!head.contains('='));
        }
        assert!(with_its_claims("rt_0123456789.abc").is_none() && claims("a.b.c").is_none());
    }

    #[test]
    fn claims_are_harmless_and_as_long_where_they_can_be() {
        for length in [100, 101, 102, 103, 400, 2000] {
            let claims = encoded(&"x".repeat(length));
            assert_eq!(harmless(claims.len()).len(), claims.len(), "{length}");
        }
        let claims = object(&harmless(0)).unwrap();
        assert_eq!((claims["exp"].as_u64(), claims["sub"].as_str()), (Some(EXPIRES), Some("stand-in")));
        assert_eq!(claims.len(), 3);
    }

    #[test]
    fn what_is_no_jwt_is_told_from_one() {
        let (header, claims, signature) =
            (encoded("{\"alg\":\"HS256\"}"), encoded("{\"sub\":\"x\"}"), encoded(&"s".repeat(32)));
        assert!(parts(&format!("{header}.{claims}.{signature}")).is_some());
        for other in [
            format!("{header}.{claims}"),
            format!("{header}.{claims}."),
            format!("{header}.{claims}.{signature}.{signature}"),
            format!("{claims}.{claims}.{signature}"),
            format!("{header}.{}.{signature}", encoded("[]")),
            format!("{header}.{claims}.{signature}="),
            "a.b.c".to_owned(),
        ] {
            assert_eq!(parts(&other), None, "{other}");
        }
    }
}
