//! What a container sees of an answer: the same steps as an answer of an upstream takes, for the report on secrets.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use pingora_http::ResponseHeader;

use super::headers;
use super::request::Upgrade;
use super::response::Answer;
use super::searches::Searches;
use crate::credentials::{Holdings, MintedNow, RequestHead, Vault};

/// An answer that has `text` in a header and as its body, to a container that was granted the one secret. Names of headers
/// stay as they are, so values and body are all.
pub fn answered(vault: &Arc<Vault>, secret: &str, text: &[u8]) -> Vec<u8> {
    through(vault, secret, text).unwrap_or_else(|| text.to_vec())
}

fn through(vault: &Arc<Vault>, secret: &str, text: &[u8]) -> Option<Vec<u8>> {
    let (host, method, uri) = ("example.com".parse().ok()?, Method::GET, Uri::from_static("/"));
    let headers = HeaderMap::new();
    let request =
        RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
    let (grants, holdings) = ([secret].into_iter().collect(), Holdings::default());
    let searches =
        Searches::new(Arc::clone(vault), &grants, (&holdings, &MintedNow::default()), request, &[]);
    let mut head = ResponseHeader::build(200, Some(1)).ok()?;
    head.insert_header("x-echo", text).ok()?;
    headers::clean_response(&mut head);
    let mut answer = Answer::begin(&mut head, &searches, &method, &Upgrade::None).ok()?;
    let body = answer.body(Bytes::copy_from_slice(text), true).ok()?;
    let values = head.headers.values().flat_map(|value| value.as_bytes().iter().copied());
    Some(values.chain(body).collect())
}
