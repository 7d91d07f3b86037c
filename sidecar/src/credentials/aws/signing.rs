//! One request that is signed: whether with a stand-in, for what its secret may sign, and the signature that goes on.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use understudy_sigv4::{
    Claim, ClaimError, Credentials, Form, Request, SignError, Signed, TOKEN, Verified, claim,
};

use super::super::declaration::{Declaration, Foreign};
use super::super::examine::{CredentialDenial, Judge, Place, RequestHead};
use super::super::grants::Grants;
use super::super::secret::SecretValue;
use super::super::vault::{Secret, Vault};
use super::AwsKey;
use crate::reason::Reason;

/// What of a signed request is not looked at again, as it is replaced.
const OURS: [&[u8]; 3] = [b"X-Amz-Credential", b"X-Amz-Signature", b"X-Amz-Security-Token"];

/// A request that claims to be signed with the stand-in of a secret which it may use. Does not print.
pub struct Signing {
    secret: String,
    key: Arc<AwsKey>,
    value: Arc<SecretValue>,
    /// The secret access keys that containers have or had.
    stand_ins: Vec<String>,
    claim: Claim,
    /// None: the body must be known first.
    verified: Option<Verified>,
}

/// None: it is not signed, or not with anything of ours and at a host of none of ours.
pub(in crate::credentials) fn check(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
) -> Result<Option<Signing>, CredentialDenial> {
    let request = request(head.method, head.uri, head.headers);
    let claimed = claim(&request);
    let place =
        if head.headers.contains_key(AUTHORIZATION) { Place::Header(&AUTHORIZATION) } else { Place::Url };
    let key_id = claimed.as_ref().ok().and_then(Option::as_ref).map(Claim::key_id);
    let of_key = |secret: &&Secret| secret.aws_key().is_some_and(|key| Some(key.id().1) == key_id);
    match (claimed.clone(), vault.secrets().iter().find(of_key)) {
        (Ok(Some(claim)), Some(secret)) => of_secret(grants, head, secret, claim, place).map(Some),
        (claimed, _) => unsigned(vault, head, claimed, place).map(|()| None),
    }
}

fn of_secret(
    grants: &Grants,
    head: &RequestHead<'_>,
    secret: &Secret,
    claim: Claim,
    place: Place<'_>,
) -> Result<Signing, CredentialDenial> {
    let (judge, declaration) = (Judge { grants, head }, secret.declaration());
    judge.may_use(secret).map_err(|reason| judge.denial(reason, secret, place))?;
    let denial = |reason, remedy: String| CredentialDenial {
        reason,
        secret: Some(secret.name().to_owned()),
        place: place.to_string(),
        remedy,
    };
    let (Some(key), Some(value), Some(binding)) =
        (secret.aws_key_shared(), secret.value_shared(), &declaration.aws)
    else {
        return Err(denial(Reason::Internal, String::new()));
    };
    // Servers that make variables of headers take one for the other, and only the other is looked at.
    let twin = |name: &&HeaderName| {
        name.as_str().contains('_') && name.as_str().replace('_', "-").starts_with("x-amz-")
    };
    if let Some(name) = head.headers.keys().find(twin) {
        return Err(denial(Reason::Malformed, format!("write `-` for `_` in the name of header `{name}`")));
    }
    if claim.token().is_some_and(|token| token != key.stand_in_token()) {
        return Err(denial(
            Reason::ForeignCredential,
            "send the session token that the container was given".to_owned(),
        ));
    }
    if let Err(untimely) = claim.check_time(now()) {
        return Err(denial(Reason::NotSigned, untimely.to_string()));
    }
    let mut signing = Signing {
        secret: secret.name().to_owned(),
        key,
        value,
        stand_ins: secret.stand_ins().map(str::to_owned).collect(),
        claim,
        verified: None,
    };
    if !signing.claim.needs_body() {
        signing.settle(head, &[])?;
    }
    judge.may_leave(secret, place)?;
    let scope = signing.claim.scope();
    let bound = binding.check(scope, head, &declaration.hosts);
    bound.map_err(|wrong| {
        denial(
            Reason::CredentialRestricted,
            format!("secret `{}` ({}): {wrong}", secret.name(), declaration.place),
        )
    })?;
    let creates = binding.creates(scope, head, &declaration.hosts);
    match creates.filter(|creates| !declaration.minting.contains(creates)) {
        None => Ok(signing),
        Some(creates) => Err(denial(
            Reason::CredentialMinting,
            format!(
                "service `{}` can create {} here, which the container would get; if it should, add `minting = [\"{}\"]` to secret `{}` ({})",
                scope.service,
                creates.phrase(),
                creates.name(),
                secret.name(),
                declaration.place
            ),
        )),
    }
}

/// At a host of keys, only what is signed with one goes on, unless each of them lets others through.
fn unsigned(
    vault: &Vault,
    head: &RequestHead<'_>,
    claimed: Result<Option<Claim>, ClaimError>,
    place: Place<'_>,
) -> Result<(), CredentialDenial> {
    let mut bound: Vec<&Declaration> = vault.bound_to(head.host).collect();
    let others = bound.iter().any(|declaration| declaration.aws.is_none());
    bound.retain(|declaration| declaration.aws.is_some() && declaration.foreign == Foreign::Deny);
    let (reason, remedy) = match claimed {
        _ if bound.is_empty() => return Ok(()),
        // What else it carries is judged as ever.
        Ok(None) if others => return Ok(()),
        Ok(None) if is_form(head) => (
            Reason::SigningUnsupported,
            "the fields of a form are signed with its policy (a POST from a browser), which is not supported; upload with PUT, signed or presigned"
                .to_owned(),
        ),
        Ok(None) => (Reason::NotSigned, "sign it with the key that the container was given".to_owned()),
        Ok(Some(_)) => (
            Reason::ForeignCredential,
            format!("only the stand-in of a key signs for {}: declare the key in secrets.toml", head.host),
        ),
        Err(ClaimError::Unsupported(unsupported)) => (Reason::SigningUnsupported, unsupported.to_string()),
        Err(error) => (Reason::NotSigned, error.to_string()),
    };
    let secret = bound.first().map(|declaration| declaration.name.clone());
    Err(CredentialDenial { reason, secret, place: place.to_string(), remedy })
}

/// An upload as browsers send one.
fn is_form(head: &RequestHead<'_>) -> bool {
    let stated = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = stated.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    *head.method == Method::POST && essence.eq_ignore_ascii_case(b"multipart/form-data")
}

impl Signing {
    /// The name of the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Whether the signature can be told only from the whole body.
    pub fn needs_body(&self) -> bool {
        self.verified.is_none()
    }

    /// Checks the signature.
    pub fn settle(&mut self, head: &RequestHead<'_>, body: &[u8]) -> Result<(), CredentialDenial> {
        let request = request(head.method, head.uri, head.headers);
        let verified =
            self.stand_ins.iter().find_map(|secret| self.claim.verify(&request, secret, body).ok());
        self.verified = verified;
        match self.verified {
            Some(_) => Ok(()),
            None => Err(CredentialDenial {
                reason: Reason::NotSigned,
                secret: Some(self.secret.clone()),
                place: "its signature".to_owned(),
                remedy: understudy_sigv4::NotVerified.to_string(),
            }),
        }
    }

    /// The head without what is replaced, and where no other credential may stand.
    pub(in crate::credentials) fn without(&self, uri: &Uri, headers: &HeaderMap) -> (Uri, HeaderMap) {
        let mut headers = headers.clone();
        if self.claim.form() == Form::Header {
            headers.remove(AUTHORIZATION);
            headers.remove(TOKEN);
            return (uri.clone(), headers);
        }
        let ours = |pair: &&str| {
            let name = pair.split('=').next().unwrap_or_default();
            let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
            OURS.contains(&name.as_slice())
        };
        let kept: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(|pair| !ours(pair)).collect();
        let path = PathAndQuery::try_from(format!("{}?{}", uri.path(), kept.join("&")));
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = path.ok().or(parts.path_and_query);
        (Uri::from_parts(parts).unwrap_or_else(|_| uri.clone()), headers)
    }

    /// Of the request as it goes upstream. None if it was not [settled](Self::settle).
    pub fn sign(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Result<Signed, SignError>> {
        let with = Credentials {
            key_id: self.key.id().0.expose(),
            secret: self.value.expose(),
            token: self.key.token().map(|(token, _)| token.expose()),
        };
        Some(self.verified.as_ref()?.sign(&request(method, uri, headers), &with, now()))
    }
}

/// In seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX)
}

fn request<'r>(method: &'r Method, uri: &'r Uri, headers: &'r HeaderMap) -> Request<'r> {
    let of_uri = uri.authority().map(http::uri::Authority::as_str);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).or(of_uri).unwrap_or_default();
    Request {
        method: method.as_str(),
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        host,
        headers,
    }
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signing(..)")
    }
}
