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
        Some(name) => Err(gone(name, place)),
        None if is_unknown(vault, text) => {
            let remedy = "it is a stand-in of a secret that is gone or has another name now; start the container again";
            Err(denial(None, place, remedy.to_owned()))
        }
        None => Ok(()),
    };
    outside_values(head).iter().try_for_each(|(place, text)| check(*place, text))?;
    head.headers.iter().try_for_each(|(name, value)| check(Place::Header(name), value.as_bytes()))
}

pub(super) fn gone(name: &str, place: Place<'_>) -> CredentialDenial {
    let remedy =
        format!("secret `{name}` is no longer there: look for it in secrets.toml and in `understudy status`");
    denial(Some(name.to_owned()), place, remedy)
}

fn denial(secret: Option<String>, place: Place<'_>, remedy: String) -> CredentialDenial {
    CredentialDenial { reason: Reason::CredentialNotGranted, secret, place: place.to_string(), remedy }
}

/// Whether a stand-in of this installation is in it of which there is no record.
fn is_unknown(vault: &Vault, text: &[u8]) -> bool {
    decoded_forms(text).iter().any(|text| vault.is_marked(text)) && vault.stand_ins_in(text).next().is_none()
}
