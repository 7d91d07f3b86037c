//! A token in `Authorization`: a service account's own at an API, or an App's.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use zeroize::Zeroizing;

use super::super::catalogue::Minted;
use super::super::examine::{CredentialDenial, Judge, Place, RequestHead};
use super::super::grants::Grants;
use super::super::holdings::HeldValue;
use super::super::vault::Vault;
use super::binding::Binding;
use super::github::{self, Asks};
use super::google::{Limits, Refused};
use super::key::Issuer;
use super::signed::{self, Held, Wrong};
use crate::reason::Reason;

/// A request whose token is signed again.
pub(in crate::credentials) struct Authorized {
    pub(in crate::credentials) secret: String,
    pub(in crate::credentials) value: HeaderValue,
    /// The real signature, which must not come back.
    pub(in crate::credentials) signature: HeldValue,
    /// What the answer has for the container.
    pub(in crate::credentials) minted: Vec<Minted>,
}

/// None: there is none, or it is not ours and at none of our hosts.
pub(in crate::credentials) fn check(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
) -> Result<Option<Authorized>, CredentialDenial> {
    if !vault.secrets().iter().any(|secret| secret.assertion_key().is_some()) {
        return Ok(None);
    }
    let mut bound = vault.bound_to(head.host);
    let bound = bound.any(|declaration| declaration.assertion.is_some());
    let place = Place::Header(&AUTHORIZATION);
    for value in head.headers.get_all(AUTHORIZATION) {
        let Some((scheme, token)) = bearer(value) else { continue };
        let held = signed::held(vault, token, bound).map_err(|wrong| wrong.at(place))?;
        let Some(held) = held else { continue };
        let judge = Judge { grants, head };
        judge.may_use(held.secret).map_err(|reason| judge.denial(reason, held.secret, place))?;
        if head.headers.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(Wrong { reason: Reason::Malformed, secret: None, remedy: "send it once".to_owned() }
                .at(place));
        }
        judge.may_leave(held.secret, place)?;
        let asks = allowed(&held, head).map_err(|wrong| wrong.at(place))?;
        let resigned = held.resigned().map_err(|wrong| wrong.at(place))?;
        let value = Zeroizing::new(format!("{scheme} {}", *resigned.token));
        let mut value =
            HeaderValue::from_str(&value).map_err(|_| judge.denial(Reason::Internal, held.secret, place))?;
        value.set_sensitive(true);
        let minted = if asks == Asks::Token { held.minted(&["/token"]) } else { Vec::new() };
        let secret = held.secret.name().to_owned();
        return Ok(Some(Authorized { secret, value, signature: resigned.signature, minted }));
    }
    Ok(None)
}

fn allowed(held: &Held<'_, '_>, head: &RequestHead<'_>) -> Result<Asks, Wrong> {
    let declaration = held.secret.declaration();
    let wrong = |reason, what: String| Wrong {
        reason,
        secret: Some(held.secret.name().to_owned()),
        remedy: format!("secret `{}` ({}): {what}", held.secret.name(), declaration.place),
    };
    let now = signed::now();
    match (&declaration.assertion, held.key.issuer()) {
        (Some(Binding::Google { scopes, subjects }), Issuer::Google { email, endpoint }) => {
            let limits = Limits { email, scopes, subjects };
            let checked = limits.bearer(held.token.claims(), &declaration.hosts, &endpoint.host, now);
            checked.map(|()| Asks::About).map_err(|refused| of_google(refused, wrong))
        }
        (Some(Binding::GitHub { installations, .. }), Issuer::GitHub { ids }) => {
            github::check(held.token.claims(), ids, now)
                .map_err(|error| wrong(Reason::NotSigned, error.to_string()))?;
            if !signed::plain_method(head) {
                return Err(wrong(
                    Reason::Malformed,
                    "leave out the header that names another method".to_owned(),
                ));
            }
            github::asks(head.method, head.uri.path(), installations)
                .map_err(|what| wrong(Reason::CredentialRestricted, what))
        }
        _ => Err(wrong(Reason::Internal, String::new())),
    }
}

pub(super) fn of_google(refused: Refused, wrong: impl Fn(Reason, String) -> Wrong) -> Wrong {
    match refused {
        Refused::Restricted(what) => wrong(Reason::CredentialRestricted, what),
        other => wrong(Reason::NotSigned, other.to_string()),
    }
}

/// Its scheme as it is written, and the token.
fn bearer(value: &HeaderValue) -> Option<(&str, &str)> {
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some((scheme, token.trim()))
}

impl Authorized {
    /// The head without what is replaced.
    pub(in crate::credentials) fn without(uri: &Uri, headers: &HeaderMap) -> (Uri, HeaderMap) {
        let mut headers = headers.clone();
        headers.remove(AUTHORIZATION);
        (uri.clone(), headers)
    }

    pub(in crate::credentials) fn header(&self) -> (HeaderName, usize, HeaderValue) {
        (AUTHORIZATION, 0, self.value.clone())
    }
}
