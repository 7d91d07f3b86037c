//! The canonical form of a request, which is what a signature is over.
//!
//! Clients differ in how they write paths and queries into it: Amazon S3's take the path as it is sent, all others encode it
//! once more, some after taking dot segments out. Which of these a client did is found by trying; the same is then done
//! for the new signature, so that the service reads what it would have read.

mod encoding;
mod path;
mod query;

pub(crate) use encoding::{decoded, encoded};
pub(crate) use path::PathForm;
pub(crate) use query::{QueryForm, parameters};

use http::HeaderMap;

/// The canonical request, without its payload's hash being checked. `values` gives each signed header's value.
pub(crate) fn request(
    method: &str,
    path: &str,
    query: &str,
    headers: &[(String, Vec<u8>)],
    payload: &str,
) -> Vec<u8> {
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let mut text = format!("{method}\n{path}\n{query}\n").into_bytes();
    for (name, value) in headers {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    text.extend_from_slice(format!("\n{}\n{payload}", names.join(";")).as_bytes());
    text
}

/// All values of a header with commas between them, each trimmed, with one space for several. None if it is not there.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let mut values = headers.get_all(name).iter().map(|value| trimmed(value.as_bytes()));
    let first = values.next()?;
    Some(values.fold(first, |mut all, value| {
        all.push(b',');
        all.extend(value);
        all
    }))
}

pub(crate) fn trimmed(value: &[u8]) -> Vec<u8> {
    let words = value.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(b" ".as_slice())
}
