//! What a client's Accept-Encoding (RFC 9110 section 12.5.3) becomes where an answer must be read.

use http::{HeaderMap, HeaderValue, header};

use super::Coding;

/// The client's own codings without those that cannot be undone; `identity` if none is left, or none was named: without
/// this header, any would do.
pub(in crate::proxy) fn narrowed(headers: &HeaderMap) -> HeaderValue {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let known = |item: &&str| {
        let name = item.split(';').next().unwrap_or_default().trim();
        Coding::from_name(name).is_some()
    };
    let items: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).filter(known).collect();
    let joined = HeaderValue::from_str(&items.join(", ")).ok().filter(|_| !items.is_empty());
    joined.unwrap_or(HeaderValue::from_static("identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_stays_as_the_client_wrote_it() {
        for (asked, wanted) in [
            ("gzip, deflate, br, zstd", "gzip, deflate, br, zstd"),
            ("gzip;q=1.0, compress;q=0.5, *;q=0", "gzip;q=1.0"),
            ("BR, dcb, dcz", "BR"),
            ("*", "identity"),
            ("", "identity"),
            ("identity;q=0", "identity"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(asked));
            assert_eq!(narrowed(&headers), wanted, "{asked}");
        }
        assert_eq!(narrowed(&HeaderMap::new()), "identity");
    }
}
