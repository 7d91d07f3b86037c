//! Stand-ins that running containers were given, of secrets that are gone or have another name since. They are worth
//! nothing, but nobody would understand what the upstream says of them.

use super::examine::{CredentialDenial, Place, RequestHead, outside_values};
use super::finder::decoded_forms;
use super::holdings::MintedNow;
use super::vault::Vault;
use crate::reason::Reason;

/// Refuses a request with such a stand-in in its head, wherever it goes. Those of secrets that there are are judged by
/// their own rules.
/// What was `minted` for the container was judged before.
pub(super) fn check(
    vault: &Vault,
    minted: &MintedNow,
    head: &RequestHead<'_>,
) -> Result<(), CredentialDenial> {
    let mut left = MOST_WORDS;
    let mut check = |place: Place<'_>, text: &[u8]| match vault.retired_in(text) {
        Some(name) => Err(denial(Some(name), place)),
        None if is_unknown(vault, text, &mut left) && !minted.is_in(text) => Err(denial(None, place)),
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

/// Of a request. A mark is told by hashing, and a container could keep the sidecar busy for everybody with words that
/// might end with one; what is overlooked is worth nothing.
const MOST_WORDS: usize = 200;
/// The shortest word with a mark, in letters.
const SHORTEST: usize = 16;

/// Whether a stand-in of this installation is in it of which there is no record. The words of `text` are taken off `left`;
/// without enough left, it is not looked for.
fn is_unknown(vault: &Vault, text: &[u8], left: &mut usize) -> bool {
    let words = |text: &[u8]| {
        let words = text.split(|letter| !letter.is_ascii_alphanumeric());
        words.filter(|word| word.len() >= SHORTEST).count()
    };
    // The mark of one that is known would be told, too, but that costs far more than to find it.
    if decoded_forms(text).all(|text| words(&text) == 0) || vault.stand_ins_in(text).next().is_some() {
        return false;
    }
    decoded_forms(text).any(|text| {
        let words = words(&text);
        let fits = words <= *left;
        *left = left.saturating_sub(words);
        fits && vault.is_marked(&text)
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Values, declared, vault};
    use super::*;

    #[test]
    fn a_flood_of_words_is_not_hashed() {
        let vault = |name| vault(&declared(name, ""), &Values::from([(name, "sk-0123456789abcdefghij")]));
        let (before, now) = (vault("before"), vault("now"));
        let stand_in = before.secrets()[0].stand_in();
        let found = |words: usize| {
            let mut left = MOST_WORDS;
            is_unknown(&now, format!("{}{stand_in}", "0123456789abcdef ".repeat(words)).as_bytes(), &mut left)
        };
        assert!(found(0) && found(MOST_WORDS - 1));
        assert!(!found(MOST_WORDS));
        let mut left = MOST_WORDS;
        assert!(!is_unknown(&now, "0123456789abcdef%20".repeat(150).as_bytes(), &mut left));
        assert!(!is_unknown(&now, stand_in.as_bytes(), &mut left));
    }
}
