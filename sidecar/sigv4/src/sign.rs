//! The same signature with another key, over the request as it goes on.

use http::HeaderName;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use zeroize::Zeroizing;

use crate::canonical::{self, decoded, encoded, parameters};
use crate::claim::{CREDENTIAL, EXPIRES, Form, QUERY_TOKEN, SIGNATURE, SIGNED_HEADERS};
use crate::key::{ALGORITHM, SigningKey, string_to_sign};
use crate::verify::Verified;
use crate::{Request, TOKEN};

/// An access key. Does not print.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    pub key_id: &'a str,
    pub secret: &'a str,
    /// Of a session.
    pub token: Option<&'a str>,
}

/// What is written into the request. Does not print.
pub enum Signed {
    /// Each header as it must be: that value and no other, or not at all. The values are marked sensitive.
    Headers(Vec<(HeaderName, Option<HeaderValue>)>),
    /// The whole query.
    Query(Zeroizing<String>),
}

/// An id or a token with characters that a header cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of the key, or the session's token, cannot be sent in a header")]
pub struct SignError;

/// In seconds: what a server's clock may be off, and a request may wait.
const LATER: u64 = 300;

impl Verified {
    /// Day, region, service, time, and how the client writes paths stay as they were. Of the headers that were signed, those
    /// that `request` still has are.
    ///
    /// A presigned URL is made for this one request, so it is good for [`LATER`] from `now` (in seconds since 1970) at most,
    /// however long the client wants its own to be.
    pub fn sign(&self, request: &Request<'_>, with: &Credentials<'_>, now: i64) -> Result<Signed, SignError> {
        match self.claim.form {
            Form::Header => self.sign_headers(request, with),
            Form::Query { expires } => {
                let age = u64::try_from(now.saturating_sub(self.claim.time.seconds())).unwrap_or(0);
                let expires = expires.min(age.saturating_add(LATER));
                Ok(Signed::Query(self.sign_query(request, with, expires)))
            }
        }
    }

    fn sign_headers(&self, request: &Request<'_>, with: &Credentials<'_>) -> Result<Signed, SignError> {
        let mut headers = self.headers(request);
        headers.retain(|(name, _)| name != TOKEN);
        if let Some(token) = with.token {
            headers.push((TOKEN.to_owned(), token.as_bytes().to_vec()));
            headers.sort();
        }
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let query = self.query.of(request.query, None);
        let signature = self.signature(request, &query, &headers, with);
        let (id, scope) = (with.key_id, &self.claim.scope);
        let authorization = Zeroizing::new(format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        ));
        Ok(Signed::Headers(vec![
            (AUTHORIZATION, Some(sensitive(&authorization)?)),
            (HeaderName::from_static(TOKEN), with.token.map(sensitive).transpose()?),
        ]))
    }

    fn sign_query(&self, request: &Request<'_>, with: &Credentials<'_>, expires: u64) -> Zeroizing<String> {
        let headers = self.headers(request);
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let credential = format!("{}/{}", with.key_id, self.claim.scope);
        let mut query = Zeroizing::new(String::new());
        let mut push = |name: &str, value: &str| {
            let between = if query.is_empty() { "" } else { "&" };
            query.push_str(between);
            query.push_str(name);
            query.push('=');
            query.push_str(value);
        };
        for (name, value) in parameters(request.query) {
            match decoded(name).as_slice() {
                name if name == SIGNATURE.as_bytes() || name == QUERY_TOKEN.as_bytes() => {}
                name if name == CREDENTIAL.as_bytes() => push(CREDENTIAL, &encoded(credential.as_bytes())),
                name if name == SIGNED_HEADERS.as_bytes() => push(SIGNED_HEADERS, &encoded(names.as_bytes())),
                name if name == EXPIRES.as_bytes() => push(EXPIRES, &expires.to_string()),
                _ => push(name, value),
            }
        }
        if let Some(token) = with.token {
            push(QUERY_TOKEN, &encoded(token.as_bytes()));
        }
        let signature = self.signature(request, &self.query.of(&query, None), &headers, with);
        query.push_str(&format!("&{SIGNATURE}={signature}"));
        query
    }

    /// Those that were signed and are there.
    fn headers(&self, request: &Request<'_>) -> Vec<(String, Vec<u8>)> {
        let value = |name: &String| match name.as_str() {
            "host" => Some((name.clone(), canonical::trimmed(request.host.as_bytes()))),
            _ => Some((name.clone(), canonical::header(request.headers, name)?)),
        };
        self.claim.signed_headers.iter().filter_map(value).collect()
    }

    fn signature(
        &self,
        request: &Request<'_>,
        query: &str,
        headers: &[(String, Vec<u8>)],
        with: &Credentials<'_>,
    ) -> String {
        let path = self.path.of(request.path);
        let canonical = canonical::request(request.method, &path, query, headers, &self.payload);
        let key = SigningKey::new(with.secret, &self.claim.scope);
        key.sign(&string_to_sign(&self.claim.time, &self.claim.scope, &canonical))
    }
}

fn sensitive(text: impl AsRef<str>) -> Result<HeaderValue, SignError> {
    let mut value = HeaderValue::from_str(text.as_ref()).map_err(|_| SignError)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
