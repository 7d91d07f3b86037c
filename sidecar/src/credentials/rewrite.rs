//! The credential in a part of a request, and the same part with another one in it. Pure.

use http::{HeaderName, HeaderValue};

use super::placement::Placement;

/// The credential in a value of this header, without the white space around it; None if the placement is another, or
/// the value has another form.
pub(super) fn credential<'v>(placement: &Placement, name: &HeaderName, value: &'v [u8]) -> Option<&'v [u8]> {
    split(placement, name, value).map(|(_, credential)| credential)
}

/// The same value with another credential in it; the scheme stays as the client spelled it.
pub(super) fn replace(
    placement: &Placement,
    name: &HeaderName,
    value: &[u8],
    credential: &str,
) -> Option<HeaderValue> {
    let (before, _) = split(placement, name, value)?;
    let mut bytes = before.to_vec();
    bytes.extend_from_slice(credential.as_bytes());
    let mut replaced = HeaderValue::from_bytes(&bytes).ok()?;
    replaced.set_sensitive(true);
    Some(replaced)
}

/// What stands before the credential, and the credential.
fn split<'v>(placement: &Placement, name: &HeaderName, value: &'v [u8]) -> Option<(&'v [u8], &'v [u8])> {
    let Placement::Header { name: own, scheme } = placement else { return None };
    if own != name {
        return None;
    }
    let value = value.trim_ascii();
    let Some(scheme) = scheme else { return Some((&[], value)) };
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let credential = rest.trim_ascii_start();
    // Without white space between them it is another, longer word.
    if !found.eq_ignore_ascii_case(scheme.as_bytes()) || credential.len() == rest.len() {
        return None;
    }
    Some((value.get(..value.len() - credential.len())?, credential))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_found_in_its_place_and_replaced_there() {
        for (placement, value, replaced) in [
            ("header x-api-key", "abc", Some("REAL")),
            ("header X-Api-Key", " abc ", Some("REAL")),
            ("header authorization Bearer", "Bearer abc", Some("Bearer REAL")),
            ("header authorization Bearer", "bearer  abc ", Some("bearer  REAL")),
            ("header authorization token", "TOKEN\tabc", Some("TOKEN\tREAL")),
            ("header authorization Bearer", "Bearerabc", None),
            ("header authorization Bearer", "Basic abc", None),
            ("header authorization Bearer", "abc", None),
            ("header authorization Bearer", "", None),
        ] {
            let placement: Placement = placement.parse().unwrap();
            let name = placement.header().unwrap();
            let found = credential(&placement, name, value.as_bytes());
            assert_eq!(found, replaced.map(|_| b"abc".as_slice()), "{placement} {value:?}");
            let value = replace(&placement, name, value.as_bytes(), "REAL");
            assert_eq!(value.as_ref().map(|value| value.to_str().unwrap()), replaced);
            assert!(value.is_none_or(|value| value.is_sensitive()));
        }
    }
}
