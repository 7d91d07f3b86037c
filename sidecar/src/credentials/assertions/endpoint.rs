//! A request to a token endpoint: an assertion for an access or ID token (RFC 7523 section 2.1). Its body is read whole.

use std::sync::LazyLock;

use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use understudy_policies::HostName;
use zeroize::Zeroizing;

use super::super::body::form;
use super::super::catalogue::{Minted, TokenEndpoint};
use super::super::declaration::{Declaration, Foreign};
use super::super::examine::{CredentialDenial, Judge, Place, RequestHead};
use super::super::grants::Grants;
use super::super::holdings::HeldValue;
use super::super::vault::Vault;
use super::binding::Binding;
use super::google::{Limits, USUAL_ENDPOINT};
use super::header::of_google;
use super::key::Issuer;
use super::signed::{self, Held, Wrong};
use crate::reason::Reason;

/// The only one that is exchanged (RFC 7523 section 8.1).
pub(crate) const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Of every service account but those of other universes.
static USUAL: LazyLock<Option<TokenEndpoint>> = LazyLock::new(|| TokenEndpoint::parse(USUAL_ENDPOINT).ok());

/// What goes upstream instead of the body.
pub struct Exchanged {
    pub bytes: Zeroizing<Vec<u8>>,
    /// The name of the secret.
    pub secret: String,
    /// The real signature, which must not come back.
    pub signature: HeldValue,
    pub minted: Vec<Minted>,
}

/// The token endpoints at `host` that matter, of the keys that are declared.
fn endpoints<'v>(vault: &'v Vault, host: &'v HostName) -> impl Iterator<Item = &'v TokenEndpoint> {
    let usual = declared(vault).next().and_then(|_| USUAL.as_ref());
    let own = vault.secrets().iter().filter_map(|secret| secret.assertion_key()?.endpoint());
    usual.into_iter().chain(own).filter(|endpoint| endpoint.host == *host)
}

/// Of service accounts, also of those that cannot be used.
fn declared(vault: &Vault) -> impl Iterator<Item = &Declaration> {
    vault.declarations().filter(|declaration| matches!(declaration.assertion, Some(Binding::Google { .. })))
}

/// Whether one of them is at `host`.
pub(crate) fn is_at(vault: &Vault, host: &HostName) -> bool {
    endpoints(vault, host).next().is_some()
}

/// Whether the request asks for a token with an assertion, so that its body must be read.
pub fn is_asked(vault: &Vault, head: &RequestHead<'_>) -> Result<bool, CredentialDenial> {
    let path = head.uri.path();
    if !endpoints(vault, head.host).any(|endpoint| endpoint.is_at(head.host, path)) {
        return Ok(false);
    }
    let stated: Vec<_> = head.headers.get_all(CONTENT_TYPE).iter().collect();
    let form = match stated.as_slice() {
        [one] => one.to_str().is_ok_and(is_form),
        _ => false,
    };
    let plain =
        endpoints(vault, head.host).any(|endpoint| endpoint.path == path) && head.uri.query().is_none();
    let right = *head.method == Method::POST
        && form
        && plain
        && signed::plain_method(head)
        && !head.headers.contains_key(CONTENT_ENCODING);
    match right {
        true => Ok(true),
        // Whatever it is, it is none of ours.
        false if lets_others(vault) => Ok(false),
        false => Err(Wrong {
            reason: Reason::Malformed,
            secret: None,
            remedy: "send a POST of a form to the token endpoint as it is documented".to_owned(),
        }
        .at(Place::Url)),
    }
}

fn is_form(stated: &str) -> bool {
    let essence = stated.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn lets_others(vault: &Vault) -> bool {
    declared(vault).all(|declaration| declaration.foreign == Foreign::Allow)
}

/// The body with a token by the real key. None: it is none of ours, and may go on.
pub fn exchange(
    vault: &Vault,
    grants: &Grants,
    head: RequestHead<'_>,
    body: &[u8],
) -> Result<Option<Exchanged>, CredentialDenial> {
    let place = Place::AnyBody;
    let wrong = |reason, remedy: String| Wrong { reason, secret: None, remedy };
    let field = |name: &str| {
        form::find(body, name).map_err(|error| wrong(Reason::Malformed, error.to_string()).at(place))
    };
    let (grant, assertion) = (field("grant_type")?, field("assertion")?);
    let granted = grant.and_then(|grant| grant.value).is_some_and(|grant| grant == GRANT);
    let text = assertion.as_ref().and_then(|assertion| assertion.value.as_deref());
    let held = match text.filter(|_| granted) {
        Some(text) => signed::held(vault, text, true).map_err(|wrong| wrong.at(place))?,
        None => None,
    };
    let (Some(held), Some(assertion)) = (held, &assertion) else {
        if lets_others(vault) {
            return Ok(None);
        }
        let remedy = format!(
            "only the grant `{GRANT}` is taken here, with an assertion that is signed with the key that the container was given"
        );
        return Err(wrong(Reason::ForeignCredential, remedy).at(place));
    };
    let judge = Judge { grants, head: &head };
    if !grants.contains(held.secret.name()) {
        return Err(judge.denial(Reason::CredentialNotGranted, held.secret, place));
    }
    if !held
        .key
        .endpoint()
        .is_some_and(|endpoint| endpoint.host == *head.host && endpoint.path == head.uri.path())
    {
        return Err(judge.denial(Reason::CredentialMisdirected, held.secret, place));
    }
    judge.may_leave(held.secret, place)?;
    // Another credential beside it could be the one that counts.
    if body.split(|byte| *byte == b'&').count() != 2 {
        let remedy = "send `grant_type` and `assertion`, and nothing else".to_owned();
        return Err(wrong(Reason::Malformed, remedy).at(place));
    }
    allowed(&held).map_err(|wrong| wrong.at(place))?;
    let resigned = held.resigned().map_err(|wrong| wrong.at(place))?;
    let range = assertion.range.clone();
    let mut bytes = Zeroizing::new(Vec::with_capacity(body.len() + resigned.token.len()));
    bytes.extend_from_slice(body.get(..range.start).unwrap_or_default());
    // Of characters that forms leave as they are.
    bytes.extend_from_slice(resigned.token.as_bytes());
    bytes.extend_from_slice(body.get(range.end..).unwrap_or_default());
    Ok(Some(Exchanged {
        bytes,
        secret: held.secret.name().to_owned(),
        signature: resigned.signature,
        minted: held.minted(&["/access_token", "/id_token"]),
    }))
}

fn allowed(held: &Held<'_, '_>) -> Result<(), Wrong> {
    let declaration = held.secret.declaration();
    let wrong = |reason, what: String| Wrong {
        reason,
        secret: Some(held.secret.name().to_owned()),
        remedy: format!("secret `{}` ({}): {what}", held.secret.name(), declaration.place),
    };
    match (&declaration.assertion, held.key.issuer()) {
        (Some(Binding::Google { scopes, subjects }), Issuer::Google { email, endpoint }) => {
            let limits = Limits { email, scopes, subjects };
            let checked = limits.assertion(held.token.claims(), &endpoint.to_string(), signed::now());
            checked.map_err(|refused| of_google(refused, wrong))
        }
        _ => Err(wrong(Reason::Internal, String::new())),
    }
}
