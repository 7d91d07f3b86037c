//! What every token must say of itself: who made it, and that it is good for a short time from now (RFC 7519 section 4.1). Pure.

use serde_json::Value;

use super::jws::shown;
use super::unique::Members;

/// How far a container's clock may be off; it has the sidecar's kernel's.
const SKEW: i64 = 300;

/// Nothing of a claim is repeated but its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("its claim `{0}` is not one that is understood here; leave it out")]
    Unknown(String),
    #[error("its claim `{0}` is missing")]
    Missing(&'static str),
    #[error("its claim `{0}` is not as it should be")]
    Wrong(&'static str),
    #[error("it has expired")]
    Expired,
    #[error("it was made in the future")]
    Early,
    #[error("it is good for more than {0} minutes")]
    Long(i64),
}

/// That it says nothing but this.
pub(super) fn only(claims: &Members, known: &[&str]) -> Result<(), ClaimError> {
    match claims.all().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(ClaimError::Unknown(shown(name))),
        None => Ok(()),
    }
}

/// `now` in seconds since 1970; `longest` from now on, in seconds.
pub(super) fn times(claims: &Members, now: i64, longest: i64) -> Result<(), ClaimError> {
    let issued = seconds(claims, "iat")?.ok_or(ClaimError::Missing("iat"))?;
    let expires = seconds(claims, "exp")?.ok_or(ClaimError::Missing("exp"))?;
    let not_before = seconds(claims, "nbf")?.unwrap_or(issued);
    if issued.max(not_before) > now + SKEW {
        return Err(ClaimError::Early);
    }
    if expires <= now {
        return Err(ClaimError::Expired);
    }
    if expires > now + longest + SKEW || expires.saturating_sub(issued) > longest + SKEW {
        return Err(ClaimError::Long(longest / 60));
    }
    Ok(())
}

/// A whole number: what providers make of others differs.
fn seconds(claims: &Members, name: &'static str) -> Result<Option<i64>, ClaimError> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => {
            value.as_i64().filter(|seconds| *seconds >= 0).map(Some).ok_or(ClaimError::Wrong(name))
        }
    }
}

/// Who made it: a text, or a number as one.
pub(super) fn issuer(claims: &Members) -> Option<String> {
    match claims.get("iss")? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// None if it is not there.
pub(super) fn text<'c>(claims: &'c Members, name: &'static str) -> Result<Option<&'c str>, ClaimError> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(ClaimError::Wrong(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_a_short_time_from_now() {
        let now = 1_800_000_000_i64;
        let checked = |iat: i64, exp: i64| {
            let claims = format!("{{\"iat\":{},\"exp\":{}}}", now + iat, now + exp);
            times(&Members::parse(claims.as_bytes()).unwrap(), now, 600)
        };
        for (iat, exp, expected) in [
            (0, 600, Ok(())),
            (-60, 540, Ok(())),
            (-600, 1, Ok(())),
            (300, 600, Ok(())),
            (301, 600, Err(ClaimError::Early)),
            (-10, 0, Err(ClaimError::Expired)),
            (-700, -100, Err(ClaimError::Expired)),
            (0, 901, Err(ClaimError::Long(10))),
            (-901, 1, Err(ClaimError::Long(10))),
        ] {
            assert_eq!(checked(iat, exp), expected, "{iat} {exp}");
        }
        for (claims, error) in [
            (r#"{"exp":1800000100}"#, ClaimError::Missing("iat")),
            (r#"{"iat":1800000000}"#, ClaimError::Missing("exp")),
            (r#"{"iat":1800000000,"exp":"1800000100"}"#, ClaimError::Wrong("exp")),
            (r#"{"iat":1800000000.5,"exp":1800000100}"#, ClaimError::Wrong("iat")),
            (r#"{"iat":-1,"exp":1800000100}"#, ClaimError::Wrong("iat")),
            (r#"{"iat":1800000000,"exp":9223372036854775807}"#, ClaimError::Long(10)),
            (r#"{"iat":1800000000,"exp":18000000000000000000}"#, ClaimError::Wrong("exp")),
            (r#"{"iat":1800000000,"exp":1800000100,"nbf":1800000400}"#, ClaimError::Early),
        ] {
            assert_eq!(times(&Members::parse(claims.as_bytes()).unwrap(), now, 600), Err(error), "{claims}");
        }
    }
}
