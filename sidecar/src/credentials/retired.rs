//! Stand-ins that running containers were given, of secrets that are gone or have another name since. They are worth
//! nothing, but nobody would understand what the upstream says of them.

use super::examine::{CredentialDenial, Place, RequestHead, outside_values};
use super::finder::decoded_forms;
use super::vault::Vault;
use crate::reason::Reason;

/// Refuses a request with such a stand-in in its head, wherever it goes. Those of secrets that there are are judged by
/// their own rules.
pub(super) fn check(vault: &Vault, head: &RequestHead<'_>) -> Result<(), CredentialDenial> {
    let check = |place: Place<'_>, text: &[u8]| match vault.retired_in(text) {
        Some(name) => Err(denial(Some(name), place)),
        None if is_unknown(vault, text) => Err(denial(None, place)),
        None => Ok(()),
    };
    outside_values(head).iter().try_for_each(|(place, text)| check(*place, text))?;
    head.headers.iter().try_for_each(|(name, value)| check(Place::Header(name), value.as_bytes()))
}

/// `secret` is its name, if there is a record of it.
pub(super) fn denial(secret: Option<&str>, place: Place<'_>) -> CredentialDenial {
    let remedy = match secret {
        Some(name) => {
            format!(
                "secret `{name}` is no longer there: look for it in secrets.toml and in `understudy status`"
            )
        }
        None => {
            "it is a stand-in of a secret that is gone or has another name now; start the container again"
                .to_owned()
        }
    };
    CredentialDenial {
        reason: Reason::CredentialNotGranted,
        secret: secret.map(str::to_owned),
        place: place.to_string(),
        remedy,
    }
}

/// Whether a stand-in of this installation is in it of which there is no record.
fn is_unknown(vault: &Vault, text: &[u8]) -> bool {
    decoded_forms(text).iter().any(|text| vault.is_marked(text)) && vault.stand_ins_in(text).next().is_none()
}
