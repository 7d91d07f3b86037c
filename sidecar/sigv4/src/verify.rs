//! Whether a request was signed with a key.

use crate::Request;
use crate::canonical::{self, PathForm, QueryForm};
use crate::claim::{Claim, Form, Payload, SIGNATURE};
use crate::key::{SigningKey, sha256, string_to_sign};

/// The signature is not one of that key over that request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not signed with the stand-in's secret key, or was changed after it was signed")]
pub struct NotVerified;

/// A claim that holds, and how its client writes what it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub(crate) claim: Claim,
    pub(crate) path: PathForm,
    pub(crate) query: QueryForm,
    /// The last line of the canonical request.
    pub(crate) payload: String,
}

impl Claim {
    /// `body` is the whole one if [`Claim::needs_body`], and not looked at otherwise. The time is [`Claim::check_time`]'s.
    pub fn verify(&self, request: &Request<'_>, secret: &str, body: &[u8]) -> Result<Verified, NotVerified> {
        let headers = self.signed_headers.iter().map(|name| {
            let value = match name.as_str() {
                "host" => Some(canonical::trimmed(request.host.as_bytes())),
                name => canonical::header(request.headers, name),
            };
            Some((name.clone(), value?))
        });
        let headers: Vec<_> = headers.collect::<Option<_>>().ok_or(NotVerified)?;
        let payload = match &self.payload {
            Payload::Stated(stated) => stated.clone(),
            Payload::OfBody => sha256(body),
        };
        let without = match self.form {
            Form::Header => None,
            Form::Query { .. } => Some(SIGNATURE),
        };
        let key = SigningKey::new(secret, &self.scope);
        let mut tried: Vec<(String, String)> = Vec::new();
        for path in PathForm::ALL {
            for query in QueryForm::ALL {
                let written = (path.of(request.path), query.of(request.query, without));
                if tried.contains(&written) {
                    continue;
                }
                let canonical =
                    canonical::request(request.method, &written.0, &written.1, &headers, &payload);
                if key.made(&string_to_sign(&self.time, &self.scope, &canonical), &self.signature) {
                    return Ok(Verified { claim: self.clone(), path, query, payload });
                }
                tried.push(written);
            }
        }
        Err(NotVerified)
    }
}
