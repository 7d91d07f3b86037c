//! What a request says of its signature. Untrusted: parsed strictly, with a bound on everything.

use http::{HeaderMap, HeaderValue};

use crate::canonical::{decoded, header, parameters};
use crate::key::{ALGORITHM, unhex};
use crate::scope::Scope;
use crate::time::{LONGEST, Time, Untimely};
use crate::{Request, TOKEN};

/// How many headers can be signed.
const MOST_HEADERS: usize = 100;
/// In bytes: an Authorization header, and a query that is a signature's.
const LONGEST_TEXT: usize = 32 * 1024;
/// The headers that say when, and what of the payload is signed.
const DATE: &str = "x-amz-date";
const PAYLOAD: &str = "x-amz-content-sha256";

pub(crate) const CREDENTIAL: &str = "X-Amz-Credential";
pub(crate) const SIGNED_HEADERS: &str = "X-Amz-SignedHeaders";
pub(crate) const EXPIRES: &str = "X-Amz-Expires";
pub(crate) const SIGNATURE: &str = "X-Amz-Signature";
pub(crate) const QUERY_TOKEN: &str = "X-Amz-Security-Token";

/// A signature that a request carries, and what it says that it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub(crate) key_id: String,
    pub(crate) scope: Scope,
    pub(crate) time: Time,
    pub(crate) form: Form,
    /// In lower case, sorted, each once; `host` is among them.
    pub(crate) signed_headers: Vec<String>,
    pub(crate) signature: [u8; 32],
    pub(crate) token: Option<String>,
    pub(crate) payload: Payload,
}

/// Where the signature stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Header,
    /// A presigned URL, good for so many seconds.
    Query {
        expires: u64,
    },
}

/// What the last line of the canonical request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    /// A hash, or the word for a payload that is not signed.
    Stated(String),
    /// The hash of the body.
    OfBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("its signature is not well-formed: {0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Unsupported(Unsupported),
}

/// Signatures that nobody can make again without more than a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error(
        "each chunk of the upload is signed (STREAMING-AWS4-…), which is not supported; turn that off in the client: use https, and in the SDK for Java chunkedEncodingEnabled(false)"
    )]
    Chunks,
    #[error(
        "it is signed for several regions (SigV4A), which is not supported; set AWS_AUTH_SCHEME_PREFERENCE=sigv4, and name a bucket of one region instead of a multi-region access point"
    )]
    Asymmetric,
    #[error(
        "it is signed with Signature Version 2, which is not supported; let the client use version 4 (s3v4)"
    )]
    Version2,
    #[error(
        "it is signed in a way that is not known; let the client use Signature Version 4 (AWS4-HMAC-SHA256)"
    )]
    Unknown,
}

const fn malformed(what: &'static str) -> ClaimError {
    ClaimError::Malformed(what)
}

/// The signature of a request. None if it has none of AWS's.
pub fn claim(request: &Request<'_>) -> Result<Option<Claim>, ClaimError> {
    let query = Query::of(request.query)?;
    match (authorization(request.headers)?, query) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(malformed("it is in a header and in the URL")),
        (Some(text), None) => of_header(text, request.headers).map(Some),
        (None, Some(query)) => of_query(&query, request.headers).map(Some),
    }
}

/// Whether a request is one of AWS's clients, as far as that can be told, well-formed or not.
pub fn is_signed(request: &Request<'_>) -> bool {
    !matches!(claim(request), Ok(None))
        || request.headers.keys().any(|name| name.as_str().starts_with("x-amz-"))
}

/// The service that a request is signed for, if that can be told.
pub fn service(request: &Request<'_>) -> Option<String> {
    claim(request).ok().flatten().map(|claim| claim.scope.service)
}

impl Claim {
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// The session's token that was sent along.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether the whole body must be known before the signature can be told.
    pub fn needs_body(&self) -> bool {
        self.payload == Payload::OfBody
    }

    /// `now` in seconds since 1970.
    pub fn check_time(&self, now: i64) -> Result<(), Untimely> {
        let expires = match self.form {
            Form::Header => None,
            Form::Query { expires } => Some(expires),
        };
        self.time.check(expires, now)
    }
}

/// The value of an Authorization header that is AWS's.
fn authorization(headers: &HeaderMap) -> Result<Option<&str>, ClaimError> {
    let values = headers.get_all(http::header::AUTHORIZATION);
    let of_aws = |value: &&HeaderValue| {
        let value = value.as_bytes().trim_ascii_start();
        let starts =
            |with: &[u8]| value.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        starts(b"AWS4") || starts(b"AWS ")
    };
    let Some(found) = values.iter().find(of_aws) else { return Ok(None) };
    if values.iter().count() > 1 {
        return Err(malformed("there are several Authorization headers"));
    }
    let text = found.to_str().map_err(|_| malformed("the Authorization header is not ASCII"))?;
    if text.len() > LONGEST_TEXT {
        return Err(malformed("the Authorization header is too long"));
    }
    Ok(Some(text))
}

/// `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`, in any order.
fn of_header(text: &str, headers: &HeaderMap) -> Result<Claim, ClaimError> {
    let (algorithm, rest) = text.split_once(' ').ok_or(malformed("nothing follows its algorithm"))?;
    is_supported(algorithm)?;
    let (mut credential, mut signed, mut signature) = (None, None, None);
    for part in rest.split(',') {
        let (name, value) = part.trim().split_once('=').ok_or(malformed("a part has no `=`"))?;
        let place = match name {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut signed,
            "Signature" => &mut signature,
            _ => return Err(malformed("a part is none of Credential, SignedHeaders, Signature")),
        };
        if place.replace(value).is_some() {
            return Err(malformed("a part is there twice"));
        }
    }
    let (Some(credential), Some(signed), Some(signature)) = (credential, signed, signature) else {
        return Err(malformed("Credential, SignedHeaders or Signature is missing"));
    };
    let date = single(headers, DATE)?.ok_or(malformed("the header x-amz-date is missing"))?;
    let token = single(headers, TOKEN)?;
    let payload = payload(single(headers, PAYLOAD)?)?.unwrap_or(Payload::OfBody);
    Parts { credential, signed, signature, date: &date, token, form: Form::Header }.claim(|_| payload)
}

fn of_query(query: &Query, headers: &HeaderMap) -> Result<Claim, ClaimError> {
    let needed =
        |value: &Option<String>| value.clone().ok_or(malformed("a parameter of its signature is missing"));
    is_supported(&needed(&query.algorithm)?)?;
    let expires = needed(&query.expires)?;
    let digits = (1..=6).contains(&expires.len()) && expires.bytes().all(|b| b.is_ascii_digit());
    let expires = expires.parse().ok().filter(|seconds| digits && (1..=LONGEST).contains(seconds));
    let expires = expires.ok_or(malformed("X-Amz-Expires must be 1 to 604800"))?;
    if query.token.is_some() && headers.contains_key(TOKEN) {
        return Err(malformed("the session's token is in a header and in the URL"));
    }
    let stated = match single(headers, PAYLOAD)? {
        Some(stated) => Some(stated),
        None => query.payload.clone(),
    };
    let stated = payload(stated)?;
    let parts = Parts {
        credential: &needed(&query.credential)?,
        signed: &needed(&query.signed)?,
        signature: &needed(&query.signature)?,
        date: &needed(&query.date)?,
        token: query.token.clone(),
        form: Form::Query { expires },
    };
    parts.claim(|scope| match stated {
        Some(stated) => stated,
        None if scope.is_s3() => Payload::Stated("UNSIGNED-PAYLOAD".to_owned()),
        None => Payload::OfBody,
    })
}

fn is_supported(algorithm: &str) -> Result<(), ClaimError> {
    match algorithm {
        ALGORITHM => Ok(()),
        "AWS" => Err(ClaimError::Unsupported(Unsupported::Version2)),
        other if other.starts_with("AWS4-ECDSA") => Err(ClaimError::Unsupported(Unsupported::Asymmetric)),
        _ => Err(ClaimError::Unsupported(Unsupported::Unknown)),
    }
}

fn payload(stated: Option<String>) -> Result<Option<Payload>, ClaimError> {
    let Some(stated) = stated else { return Ok(None) };
    match stated.as_str() {
        "UNSIGNED-PAYLOAD" | "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Some(Payload::Stated(stated))),
        // Also of streams of events, each of which is signed with the one before.
        chunks if chunks.starts_with("STREAMING-") => Err(ClaimError::Unsupported(Unsupported::Chunks)),
        hash if unhex(&hash.to_ascii_lowercase()).is_some() => Ok(Some(Payload::Stated(stated))),
        _ => Err(malformed("x-amz-content-sha256 is no SHA-256, and no word that is known")),
    }
}

/// The one value of a header, if it is there.
fn single(headers: &HeaderMap, name: &str) -> Result<Option<String>, ClaimError> {
    if headers.get_all(name).iter().count() > 1 {
        return Err(malformed("a header of its signature is there twice"));
    }
    let value = header(headers, name).map(String::from_utf8).transpose();
    value.map_err(|_| malformed("a header of its signature is not ASCII"))
}

/// As they are written.
struct Parts<'a> {
    credential: &'a str,
    signed: &'a str,
    signature: &'a str,
    date: &'a str,
    token: Option<String>,
    form: Form,
}

impl Parts<'_> {
    fn claim(self, payload: impl FnOnce(&Scope) -> Payload) -> Result<Claim, ClaimError> {
        let (key_id, scope) = Scope::of_credential(self.credential)
            .ok_or(malformed("its credential is not ID/DATE/REGION/SERVICE/aws4_request"))?;
        let time = Time::parse(self.date).ok_or(malformed("its time is not as 20250131T235959Z"))?;
        if !time.as_str().starts_with(&scope.date) {
            return Err(malformed("its time is of another day than its credential"));
        }
        let signature =
            unhex(self.signature).ok_or(malformed("it is not 64 lower-case hexadecimal digits"))?;
        let (form, token, payload) = (self.form, self.token, payload(&scope));
        let signed_headers = signed_headers(self.signed)?;
        Ok(Claim { key_id, scope, time, form, signed_headers, signature, token, payload })
    }
}

fn signed_headers(text: &str) -> Result<Vec<String>, ClaimError> {
    let names: Vec<String> = text.split(';').map(str::to_owned).collect();
    let is_name = |name: &String| {
        let lower = |b: u8| b.is_ascii_graphic() && !b.is_ascii_uppercase();
        !name.is_empty() && name.bytes().all(lower) && http::HeaderName::from_bytes(name.as_bytes()).is_ok()
    };
    if names.len() > MOST_HEADERS || !names.iter().all(is_name) {
        return Err(malformed("its signed headers are not names in lower case"));
    }
    if !names.is_sorted_by(|one, next| one < next) {
        return Err(malformed("its signed headers are not sorted, or one is there twice"));
    }
    if !names.iter().any(|name| name == "host") {
        return Err(malformed("the host is not among its signed headers"));
    }
    Ok(names)
}

/// Parameters of a presigned URL, decoded.
#[derive(Default)]
struct Query {
    algorithm: Option<String>,
    credential: Option<String>,
    date: Option<String>,
    expires: Option<String>,
    signed: Option<String>,
    signature: Option<String>,
    token: Option<String>,
    payload: Option<String>,
}

impl Query {
    /// None if the query has nothing of a signature.
    fn of(query: &str) -> Result<Option<Self>, ClaimError> {
        let mut found = Self::default();
        for (name, value) in parameters(query) {
            let name = decoded(name);
            let place = match name.as_slice() {
                b"X-Amz-Algorithm" => &mut found.algorithm,
                b"X-Amz-Credential" => &mut found.credential,
                b"X-Amz-Date" => &mut found.date,
                b"X-Amz-Expires" => &mut found.expires,
                b"X-Amz-SignedHeaders" => &mut found.signed,
                b"X-Amz-Signature" => &mut found.signature,
                b"X-Amz-Security-Token" => &mut found.token,
                b"X-Amz-Content-Sha256" => &mut found.payload,
                other if other.eq_ignore_ascii_case(b"AWSAccessKeyId") => {
                    return Err(ClaimError::Unsupported(Unsupported::Version2));
                }
                // A service that takes any letter case would read what is not read here.
                other if OF_SIGNATURES.iter().any(|name| other.eq_ignore_ascii_case(name.as_bytes())) => {
                    return Err(malformed("a parameter of its signature is in another letter case"));
                }
                _ => continue,
            };
            if query.len() > LONGEST_TEXT {
                return Err(malformed("the URL is too long"));
            }
            let value =
                String::from_utf8(decoded(value)).map_err(|_| malformed("a parameter is not UTF-8"))?;
            if place.replace(value).is_some() {
                return Err(malformed("a parameter of its signature is there twice"));
            }
        }
        let any = [&found.algorithm, &found.credential, &found.signed, &found.signature, &found.token];
        let signed = any.into_iter().any(Option::is_some);
        Ok(signed.then_some(found))
    }
}

/// Names that only a signature has.
const OF_SIGNATURES: [&str; 5] = ["X-Amz-Algorithm", CREDENTIAL, SIGNED_HEADERS, SIGNATURE, QUERY_TOKEN];

#[cfg(test)]
mod tests;
