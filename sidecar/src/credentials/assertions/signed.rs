//! One token: whether it is signed with a stand-in, by whom, and the token that goes on instead.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use zeroize::Zeroizing;

use super::super::catalogue::Minted;
use super::super::examine::{CredentialDenial, Place, RequestHead};
use super::super::holdings::HeldValue;
use super::super::secret::SecretValue;
use super::super::vault::{Secret, Vault};
use super::AssertionKey;
use super::jws::{Jws, JwsError, claimed_issuer};
use crate::reason::Reason;

/// What is wrong with a token that is, or says to be, of one of our keys.
pub(super) struct Wrong {
    pub(super) reason: Reason,
    pub(super) secret: Option<String>,
    pub(super) remedy: String,
}

impl Wrong {
    pub(super) fn at(self, place: Place<'_>) -> CredentialDenial {
        let Self { reason, secret, remedy } = self;
        CredentialDenial { reason, secret, place: place.to_string(), remedy }
    }
}

/// A token that was signed with the stand-in of a secret.
pub(super) struct Held<'v, 't> {
    pub(super) secret: &'v Secret,
    pub(super) key: &'v AssertionKey,
    pub(super) token: Jws<'t>,
}

/// None: it is nobody's of ours. `bound`: whether what only says to be ours is refused, too.
pub(super) fn held<'v, 't>(
    vault: &'v Vault,
    text: &'t str,
    bound: bool,
) -> Result<Option<Held<'v, 't>>, Wrong> {
    let Some(issuer) = claimed_issuer(text) else { return Ok(None) };
    let of = |secret: &'v Secret| Some((secret, secret.assertion_key()?));
    let ours: Vec<_> = vault.secrets().iter().filter_map(of).filter(|(_, key)| key.is_of(&issuer)).collect();
    let Some((first, _)) = ours.first() else { return Ok(None) };
    let wrong = |reason, remedy: String| Wrong { reason, secret: Some(first.name().to_owned()), remedy };
    let token = match Jws::parse(text) {
        Ok(token) => token,
        Err(_) if !bound => return Ok(None),
        Err(error) => {
            let reason = match error {
                JwsError::Header(_) | JwsError::Algorithm => Reason::SigningUnsupported,
                _ => Reason::NotSigned,
            };
            return Err(wrong(
                reason,
                format!("the token is not well-formed, or not as it must be: {error}"),
            ));
        }
    };
    if ours.iter().any(|(_, key)| key.is_by_real(&token)) {
        let remedy = "the real key must not be in a container: find out how it got there, and replace it at its provider";
        return Err(wrong(Reason::RealCredential, remedy.to_owned()));
    }
    match ours.iter().find(|(_, key)| key.is_by_stand_in(&token)) {
        Some(&(secret, key)) => Ok(Some(Held { secret, key, token })),
        None if bound => Err(wrong(
            Reason::NotSigned,
            "the token's signature is not by the key that the container was given".to_owned(),
        )),
        None => Ok(None),
    }
}

/// What goes on instead of a token, and what must not come back.
pub(super) struct Resigned {
    pub(super) token: Zeroizing<String>,
    pub(super) signature: HeldValue,
}

impl Held<'_, '_> {
    pub(super) fn resigned(&self) -> Result<Resigned, Wrong> {
        let failed = || Wrong {
            reason: Reason::Internal,
            secret: Some(self.secret.name().to_owned()),
            remedy: "the token could not be signed".to_owned(),
        };
        let (signed, signature) = self.key.sign(&self.token).ok_or_else(failed)?;
        let token = Zeroizing::new(format!("{signed}.{}", *signature));
        let value = SecretValue::from_bytes(signature.as_bytes()).map_err(|_| failed())?;
        let stand_in = self.token.signature_text().to_owned();
        Ok(Resigned { token, signature: HeldValue { value: Arc::new(value), stand_in } })
    }

    /// What an answer has for the container, at `fields`.
    pub(super) fn minted(&self, fields: &[&str]) -> Vec<Minted> {
        let declaration = self.secret.declaration();
        let placements =
            declaration.assertion.as_ref().map(|binding| binding.placements()).unwrap_or_default();
        let one = |field: &&str| {
            Some(Minted {
                inside: None,
                // It is the secret that is used with it.
                label: declaration.name.clone(),
                hosts: Vec::new(),
                method: http::Method::POST,
                paths: Vec::new(),
                field: field.parse().ok()?,
                used_at: declaration.hosts.clone(),
                placements: placements.clone(),
                wrap: true,
                confirmed: true,
            })
        };
        fields.iter().filter_map(one).collect()
    }
}

/// In seconds since 1970.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// Servers that believe a header could take the request for another one.
pub(super) fn plain_method(head: &RequestHead<'_>) -> bool {
    super::super::catalogue::endpoint::methods(&http::Method::GET, head.headers).len() == 1
}
