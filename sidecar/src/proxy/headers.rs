//! What changes in the heads that pass through. Pure.

use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Uri, Version};
use pingora_error::{ErrorType, OkOrErr, OrErr, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use understudy_policies::document::number;
use understudy_sigv4::Signed;
use zeroize::Zeroizing;

use super::record::Plan;
use super::request::{Target, Upgrade};
use super::{coding, grpc};
use crate::credentials::{SwappedPath, Swaps};

/// Origin-form and one Host, whatever form the client chose (RFC 9112 section 3.2.2 asks this of gateways), with the
/// swapped path if there is one.
pub(super) fn normalise(request: &mut RequestHeader, target: &Target, swaps: &Swaps) -> Result<()> {
    let path = swaps.path.as_ref().map_or(&target.path, SwappedPath::path_and_query);
    let uri = if request.version == Version::HTTP_2 && request.uri.authority().is_some() {
        let builder = Uri::builder().scheme(target.scheme.clone()).authority(target.authority.as_str());
        builder.path_and_query(path.clone()).build()
    } else {
        Uri::builder().path_and_query(path.clone()).build()
    };
    let uri = uri.or_err(ErrorType::InvalidHTTPHeader, "target that cannot be written in origin-form")?;
    request.set_uri(uri);
    request.insert_header(header::HOST, target.authority.as_str())?;
    for name in proxy_headers(&request.headers) {
        request.remove_header(&name);
    }
    Ok(())
}

/// Writes the swaps. The values come from `downstream`, the head as the container sent it: a `Connection: authorization`
/// has taken the header out of `request` by now.
pub(super) fn swap(request: &mut RequestHeader, downstream: &HeaderMap, swaps: &Swaps) -> Result<()> {
    let mut names: Vec<&HeaderName> = swaps.headers.iter().map(|(name, _, _)| name).collect();
    names.sort_unstable_by_key(|name| name.as_str());
    names.dedup();
    for name in names {
        let mut values: Vec<HeaderValue> = downstream.get_all(name).iter().cloned().collect();
        for (_, index, value) in swaps.headers.iter().filter(|(swapped, _, _)| swapped == name) {
            let Some(slot) = values.get_mut(*index) else {
                return pingora_error::Error::e_explain(
                    ErrorType::InternalError,
                    "swap of a header that is not there",
                );
            };
            *slot = value.clone();
            slot.set_sensitive(true);
        }
        request.remove_header(name);
        for value in values {
            request.append_header(name.clone(), value)?;
        }
    }
    if !swaps.secrets.is_empty() && !swaps.download {
        // In a part of an answer, part of a value could come back, which no search finds.
        for name in RANGES {
            request.remove_header(name);
        }
    }
    if request.version != Version::HTTP_2 {
        join_cookies(request)?;
    }
    Ok(())
}

/// Makes the signature anew, over the head as it is now.
pub(super) fn sign(request: &mut RequestHeader, swaps: &Swaps) -> Result<()> {
    let Some(signing) = &swaps.signing else { return Ok(()) };
    let signed = signing.sign(&request.method, &request.uri, &request.headers);
    let signed = signed.or_err(ErrorType::InternalError, "a signature that nobody checked")?;
    match signed.or_err(ErrorType::InternalError, "a key that cannot be sent")? {
        Signed::Headers(headers) => {
            for (name, value) in headers {
                request.remove_header(&name);
                if let Some(value) = value {
                    request.insert_header(name, value)?;
                }
            }
        }
        Signed::Query(query) => {
            let path = Zeroizing::new(format!("{}?{}", request.uri.path(), *query));
            let path = PathAndQuery::try_from(path.as_str());
            let mut parts = request.uri.clone().into_parts();
            parts.path_and_query = Some(path.or_err(ErrorType::InvalidHTTPHeader, "a signed URL")?);
            let uri = Uri::from_parts(parts).or_err(ErrorType::InvalidHTTPHeader, "a signed URL")?;
            request.set_uri(uri);
        }
    }
    Ok(())
}

/// `request-range` is a spelling of Netscape's that some servers still read.
const RANGES: [&str; 3] = ["range", "if-range", "request-range"];

/// HTTP/2 clients may send each cookie on its own, HTTP/1.1 upstreams read one header (RFC 9113 section 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let cookies: Vec<&[u8]> =
        request.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() < 2 {
        return Ok(());
    }
    let joined = Zeroizing::new(cookies.join(b"; ".as_slice()));
    let mut joined = HeaderValue::from_bytes(&joined)
        .or_err(ErrorType::InvalidHTTPHeader, "cookies that cannot be sent as one header")?;
    joined.set_sensitive(true);
    request.insert_header(header::COOKIE, joined)
}

/// Asks for an answer that can be searched, from a host that gets a secret of the container; for WebSockets without
/// extensions, whose frames could not be read; and for another protocol, if policy lets the request ask for one.
pub(super) fn readable(request: &mut RequestHeader, plan: &Plan) -> Result<()> {
    ask_for(request, &plan.target.upgrade, plan.searches.of_frames())?;
    if !plan.searches.bound {
        return Ok(());
    }
    let codings = match plan.swaps.secrets.is_empty() {
        true => coding::narrowed(&request.headers),
        false => HeaderValue::from_static("identity"),
    };
    request.insert_header(header::ACCEPT_ENCODING, codings)?;
    if grpc::is_grpc(&request.headers) {
        request.insert_header(grpc::ACCEPT_ENCODING, "identity")?;
    }
    Ok(())
}

/// What the connection is to become, and nothing else, whatever pingora made of the header: by its word alone, it would ask for
/// a WebSocket that nobody looks into, and it leaves no other protocol in.
fn ask_for(request: &mut RequestHeader, upgrade: &Upgrade, of_frames: bool) -> Result<()> {
    let asked = request.remove_header(&header::UPGRADE).is_some();
    let name = match upgrade {
        Upgrade::WebSocket => "websocket",
        Upgrade::Other(protocol) => protocol.as_str(),
        Upgrade::None | Upgrade::Ignored => {
            if asked {
                request.remove_header(&header::CONNECTION);
            }
            return Ok(());
        }
    };
    if *upgrade == Upgrade::WebSocket && of_frames {
        request.remove_header(&header::SEC_WEBSOCKET_EXTENSIONS);
    }
    request.insert_header(header::CONNECTION, "Upgrade")?;
    request.insert_header(header::UPGRADE, name)
}

/// The length of the body, where one is stated: digits, once. What is repeated or a list is refused, though all of it be equal: the next
/// reader may take it for another (RFC 9110 section 8.6).
///
/// # Errors
/// If it can be read otherwise.
pub(super) fn content_length(headers: &HeaderMap) -> std::result::Result<Option<u64>, DoubtfulLength> {
    let mut stated = headers.get_all(header::CONTENT_LENGTH).iter();
    let (first, None) = (stated.next(), stated.next()) else { return Err(DoubtfulLength) };
    let read = |value: &HeaderValue| value.to_str().ok().and_then(number).ok_or(DoubtfulLength);
    first.map(read).transpose()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DoubtfulLength;

/// Bytes of names, values and what is between them in HTTP/1.1: HTTP/2 packs them, and they carry as much.
pub(super) fn length(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Takes out what would lead the client around the sidecar (RFC 7838), or what speaks of a proxy.
pub(super) fn clean_response(response: &mut ResponseHeader) {
    response.remove_header(&header::ALT_SVC);
    for name in proxy_headers(&response.headers) {
        response.remove_header(&name);
    }
}

fn proxy_headers(headers: &HeaderMap) -> Vec<HeaderName> {
    headers.keys().filter(|name| name.as_str().starts_with("proxy-")).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            host: "api.example.com".parse().unwrap(),
            port: 443,
            by_proxy: false,
            authority: "api.example.com".to_owned(),
            path: "/a?b".parse().unwrap(),
            scheme: http::uri::Scheme::HTTPS,
            upgrade: Upgrade::None,
        }
    }

    fn swaps(index: usize) -> Swaps {
        let value = HeaderValue::from_static("Bearer real");
        Swaps {
            headers: vec![(header::AUTHORIZATION, index, value)],
            secrets: vec!["key".to_owned()],
            ..Swaps::default()
        }
    }

    #[test]
    fn absolute_form_becomes_origin_form() {
        let mut request = RequestHeader::build("GET", b"http://api.example.com/a?b", None).unwrap();
        request.insert_header("Host", "API.example.com.").unwrap();
        request.insert_header("Proxy-Authorization", "Basic eA==").unwrap();
        request.insert_header("Proxy-Connection", "close").unwrap();
        normalise(&mut request, &target(), &Swaps::default()).unwrap();
        assert_eq!(request.raw_path(), b"/a?b");
        assert_eq!(request.headers.get("host").unwrap(), "api.example.com");
        assert_eq!(request.headers.len(), 1);
    }

    #[test]
    fn the_scheme_is_that_of_the_connection() {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        request.set_version(Version::HTTP_2);
        request.set_uri(Uri::from_static("gopher://api.example.com/a?b"));
        normalise(&mut request, &target(), &Swaps::default()).unwrap();
        assert_eq!(request.uri, Uri::from_static("https://api.example.com/a?b"));
    }

    #[test]
    fn a_swap_reaches_the_right_value_and_brings_back_a_header_that_was_taken_out() {
        let mut downstream = HeaderMap::new();
        downstream.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        downstream.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer stand-in"));
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        swap(&mut request, &downstream, &swaps(1)).unwrap();
        let values: Vec<_> = request.headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["Bearer other", "Bearer real"]);
        assert!(values[1].is_sensitive());
        assert!(swap(&mut request, &downstream, &swaps(2)).is_err());
    }

    #[test]
    fn a_range_is_not_asked_for_beside_a_swap() {
        for (swaps, left) in [(swaps(0), 0), (Swaps::default(), 3)] {
            let mut downstream = HeaderMap::new();
            downstream.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer stand-in"));
            let mut request = RequestHeader::build("GET", b"/", None).unwrap();
            for name in RANGES {
                request.insert_header(name, "bytes=0-1").unwrap();
            }
            swap(&mut request, &downstream, &swaps).unwrap();
            assert_eq!(RANGES.iter().filter(|name| request.headers.contains_key(**name)).count(), left);
        }
    }

    #[test]
    fn cookies_are_one_header_for_http1() {
        for (version, expected) in
            [(Version::HTTP_11, vec!["a=1; b=2"]), (Version::HTTP_2, vec!["a=1", "b=2"])]
        {
            let mut request = RequestHeader::build("GET", b"/", None).unwrap();
            request.set_version(version);
            request.append_header("cookie", "a=1").unwrap();
            request.append_header("cookie", "b=2").unwrap();
            swap(&mut request, &HeaderMap::new(), &Swaps::default()).unwrap();
            assert_eq!(request.headers.get_all("cookie").iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn only_what_was_judged_is_asked_for() {
        let other = || Upgrade::Other("SPDY/3.1".parse().unwrap());
        for (upgrade, asked) in [
            (Upgrade::None, None),
            (Upgrade::Ignored, None),
            (Upgrade::WebSocket, Some("websocket")),
            (other(), Some("SPDY/3.1")),
        ] {
            for found in [&[][..], &["websocket"], &["websocket", "h2c"], &["SPDY/3.1"]] {
                let mut request = RequestHeader::build("GET", b"/", None).unwrap();
                for protocol in found {
                    request.append_header("upgrade", *protocol).unwrap();
                    request.append_header("connection", "Upgrade").unwrap();
                }
                request.insert_header("sec-websocket-extensions", "permessage-deflate").unwrap();
                ask_for(&mut request, &upgrade, true).unwrap();
                let all: Vec<_> = request.headers.get_all("upgrade").iter().collect();
                assert_eq!(all, asked.iter().collect::<Vec<_>>(), "{upgrade:?} {found:?}");
                assert_eq!(
                    request.headers.contains_key("connection"),
                    asked.is_some(),
                    "{upgrade:?} {found:?}"
                );
                let extensions = request.headers.contains_key("sec-websocket-extensions");
                assert_eq!(extensions, upgrade != Upgrade::WebSocket);
            }
        }
    }

    #[test]
    fn responses_lose_what_leads_around() {
        let mut response = ResponseHeader::build(200, None).unwrap();
        for name in ["Alt-Svc", "Proxy-Authenticate", "Proxy-Status", "Content-Type"] {
            response.insert_header(name, "x").unwrap();
        }
        clean_response(&mut response);
        let left: Vec<_> = response.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["content-type"]);
    }
}
