//! Content codings (RFC 9110 section 8.4) as far as answers must be read to be searched.

mod accept;
mod decoder;

pub(super) use accept::narrowed;
pub(super) use decoder::{Decoder, Undecodable};

use std::borrow::Cow;

use http::{HeaderMap, header};

/// One that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// IANA's names, in any letter case.
    fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// More than one coding, or one that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnknownCoding;

/// The coding of a message. None: it is as it is.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Coding>, UnknownCoding> {
    let mut found = None;
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().map_err(|_| UnknownCoding)?.split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            let coding = Coding::from_name(name).ok_or(UnknownCoding)?;
            if found.replace(coding).is_some() {
                return Err(UnknownCoding);
            }
        }
    }
    Ok(found)
}

/// The coding of a message, if it can be undone, and its headers once it is.
pub(super) fn undone(headers: &HeaderMap) -> (Option<Coding>, Cow<'_, HeaderMap>) {
    match of(headers) {
        Ok(Some(coding)) => {
            let mut plain = headers.clone();
            plain.remove(header::CONTENT_ENCODING);
            (Some(coding), Cow::Owned(plain))
        }
        Ok(None) | Err(UnknownCoding) => (None, Cow::Borrowed(headers)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn one_known_coding_or_none() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            of(&headers)
        };
        for none in [&[][..], &["identity"], &[""], &["identity", "identity"]] {
            assert_eq!(of(none), Ok(None));
        }
        assert_eq!(of(&["GZip"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["x-gzip"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["identity, br"]), Ok(Some(Coding::Brotli)));
        for unknown in [&["compress"][..], &["gzip, gzip"], &["gzip", "br"], &["aws-chunked"], &["gzip; x"]] {
            assert_eq!(of(unknown), Err(UnknownCoding), "{unknown:?}");
        }
    }
}
