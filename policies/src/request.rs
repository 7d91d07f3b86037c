//! What a rule may be asked about.

use std::sync::OnceLock;

use crate::{HostName, PathError, Readings, RequestPath};

/// One HTTP request. Made once and asked of every rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    pub host: &'a HostName,
    pub port: u16,
    /// As it stands in the request; methods are case-sensitive (RFC 9110 section 9.1).
    pub method: &'a str,
    pub path: Result<RequestPath, PathError>,
    /// The path as it stands in the request.
    raw_path: &'a str,
    /// Of that; made when the first rule asks.
    readings: OnceLock<Readings>,
    /// What follows the first `?`.
    query: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// `target` is in origin-form: path and query (RFC 9112 section 3.2.1).
    pub fn new(host: &'a HostName, port: u16, method: &'a str, target: &'a str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let readings = OnceLock::new();
        Self { host, port, method, path: RequestPath::parse(path), raw_path: path, readings, query }
    }

    pub fn query(&self) -> Option<&'a str> {
        self.query
    }

    /// Every way in which a server may read its path.
    pub(crate) fn readings(&self) -> &Readings {
        self.readings.get_or_init(|| Readings::of(self.raw_path))
    }

    /// The keys of its query, decoded (application/x-www-form-urlencoded); None for one that servers may read
    /// differently.
    pub(crate) fn query_keys(&self) -> impl Iterator<Item = Option<String>> + 'a {
        let pairs = self.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            // Some servers take `;` for `&`.
            if pair.contains(';') {
                return None;
            }
            decoded(pair.split_once('=').map_or(pair, |(key, _)| key))
        })
    }
}

pub(crate) fn decoded(key: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits =
                    std::str::from_utf8(&digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(target: &str) -> Vec<Option<String>> {
        let host = "a.example".parse().unwrap();
        Request::new(&host, 443, "GET", target).query_keys().collect()
    }

    #[test]
    fn keys_are_decoded_and_unclear_ones_are_none() {
        for (target, expected) in [
            ("/a", vec![]),
            ("/a?", vec![]),
            ("/a?x=1&y&&z=2=3", vec![Some("x"), Some("y"), Some("z")]),
            ("/a?%78=1&a+b=", vec![Some("x"), Some("a b")]),
            ("/a?x=1;y=2", vec![None]),
            ("/a?%=1&%zz=1&%ff=1&%00=1&x%2", vec![None, None, None, None, None]),
            ("/a?x?y=1", vec![Some("x?y")]),
        ] {
            let expected: Vec<Option<String>> =
                expected.into_iter().map(|key| key.map(str::to_owned)).collect();
            assert_eq!(keys(target), expected, "{target}");
        }
    }

    #[test]
    fn the_path_ends_at_the_first_question_mark() {
        let host = "a.example".parse().unwrap();
        let request = Request::new(&host, 443, "GET", "/a?/../b");
        assert_eq!((request.path.unwrap().as_str(), request.query), ("/a", Some("/../b")));
        assert_eq!(Request::new(&host, 443, "OPTIONS", "*").path, Err(PathError::Relative));
    }
}
