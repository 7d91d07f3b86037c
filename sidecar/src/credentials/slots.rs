//! The parts of a request's head that can hold a credential, and where in a part each placement means. Pure.

use std::borrow::Cow;
use std::ops::Range;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use understudy_policies::RequestPath;
use zeroize::Zeroizing;

use super::path_template::PathTemplate;
use super::placement::{BasicHalf, Placement, token};

/// Padding or none: clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_encode_padding(false),
);

/// All but the unreserved characters of RFC 3986 section 2.3.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What a segment of a path may hold as it is (RFC 3986 section 3.3), but `;`.
const SEGMENT: &AsciiSet = &QUERY
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The value of a header, or path and query.
#[derive(Debug)]
pub(super) struct Part<'a> {
    source: Source<'a>,
    /// Scheme and white space, where what follows is encoded.
    before: &'a [u8],
    /// Decoded.
    inner: Cow<'a, [u8]>,
    wrap: Wrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source<'a> {
    Header(&'a HeaderName),
    Url,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrap {
    Plain,
    /// What the scheme `Basic` holds.
    Basic,
    /// Metadata of gRPC in a header whose name ends with `-bin`.
    Binary,
}

/// Where a placement means a credential to stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// In what [`Part::inner`] gives.
    pub(super) range: Range<usize>,
    /// Whether all around it is spelled as in the placement: servers undo percent-encoding, some ignore letter case, and
    /// nothing is swapped by a guess.
    pub(super) exact: bool,
    spelling: Spelling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Plain,
    User,
    Cookie,
    Token,
    Query,
    Segment,
}

impl<'a> Part<'a> {
    pub(super) fn header(name: &'a HeaderName, value: &'a [u8]) -> Self {
        let source = Source::Header(name);
        let plain = Self { source, before: &[], inner: Cow::Borrowed(value), wrap: Wrap::Plain };
        if name == AUTHORIZATION
            && let Some(Some((before, inner))) = basic(value)
        {
            return Self { before, inner: Cow::Owned(inner), wrap: Wrap::Basic, ..plain };
        }
        if name.as_str().ends_with("-bin")
            && let Ok(inner) = BASE64.decode(value.trim_ascii())
        {
            return Self { inner: Cow::Owned(inner), wrap: Wrap::Binary, ..plain };
        }
        plain
    }

    pub(super) fn url(path_and_query: &'a str) -> Self {
        let inner = Cow::Borrowed(path_and_query.as_bytes());
        Self { source: Source::Url, before: &[], inner, wrap: Wrap::Plain }
    }

    /// What ranges count in: decoded, if the part is encoded as a whole.
    pub(super) fn inner(&self) -> &[u8] {
        &self.inner
    }

    /// The part with other things in it, encoded again.
    pub(super) fn wrapped(&self, inner: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut whole = Zeroizing::new(self.before.to_vec());
        match self.wrap {
            Wrap::Plain => whole.extend_from_slice(inner),
            Wrap::Basic => whole.extend_from_slice(Zeroizing::new(BASE64_STANDARD.encode(inner)).as_bytes()),
            Wrap::Binary => whole.extend_from_slice(Zeroizing::new(BASE64.encode(inner)).as_bytes()),
        }
        whole
    }

    pub(super) fn slots(&self, placement: &Placement) -> Vec<Slot> {
        match (placement, self.source) {
            (Placement::Header { name, scheme }, Source::Header(own)) if own == name => {
                if self.wrap == Wrap::Basic || (name.as_str().ends_with("-bin") && self.wrap == Wrap::Plain) {
                    return Vec::new();
                }
                let range = after_scheme(&self.inner, scheme.as_deref());
                range.map(|range| Slot::new(range, Spelling::Plain)).into_iter().collect()
            }
            (Placement::Basic(half), Source::Header(_)) if self.wrap == Wrap::Basic => {
                half_of(&self.inner, *half).into_iter().collect()
            }
            (Placement::Cookie(name), Source::Header(own)) if own == COOKIE => cookies(&self.inner, name),
            (Placement::WebSocketProtocol { prefix }, Source::Header(own))
                if own == SEC_WEBSOCKET_PROTOCOL =>
            {
                items(&self.inner, prefix)
            }
            (Placement::Query(key), Source::Url) => parameters(&self.inner, key),
            (Placement::Path(template), Source::Url) => segment(&self.inner, template).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Slot {
    fn new(range: Range<usize>, spelling: Spelling) -> Self {
        Self { range, exact: true, spelling }
    }

    /// What stands there, as the server reads it.
    pub(super) fn value<'i>(&self, inner: &'i [u8]) -> Cow<'i, [u8]> {
        let raw = inner.get(self.range.clone()).unwrap_or_default();
        match self.spelling {
            Spelling::Query | Spelling::Segment => percent_decode(raw).into(),
            _ => Cow::Borrowed(raw),
        }
    }

    /// A credential as it must be written there; None if it cannot stand there.
    pub(super) fn spelled(&self, credential: &str) -> Option<Zeroizing<String>> {
        let encoded = |set| Zeroizing::new(utf8_percent_encode(credential, set).to_string());
        let as_it_is = |fits: bool| fits.then(|| Zeroizing::new(credential.to_owned()));
        match self.spelling {
            Spelling::Plain => as_it_is(true),
            Spelling::User => as_it_is(!credential.contains(':')),
            Spelling::Cookie => as_it_is(credential.bytes().all(cookie_octet)),
            Spelling::Token => as_it_is(credential.bytes().all(token)),
            Spelling::Query => Some(encoded(QUERY)),
            Spelling::Segment => Some(encoded(SEGMENT)),
        }
    }
}

/// For a value of the scheme `Basic`: scheme and white space, and what it holds, `user:password`. The inner None: it
/// is of that scheme, and not as RFC 7617 section 2 says.
pub(super) fn basic(value: &[u8]) -> Option<Option<(&[u8], Vec<u8>)>> {
    let range = after_scheme(value, Some("Basic"))?;
    let (before, encoded) = (value.get(..range.start)?, value.get(range)?);
    let inner = BASE64.decode(encoded).ok().filter(|inner| inner.contains(&b':'));
    Some(inner.map(|inner| (before, inner)))
}

/// What follows the scheme and white space, without white space around it; all of it without a scheme.
fn after_scheme(value: &[u8], scheme: Option<&str>) -> Option<Range<usize>> {
    let start = value.len() - value.trim_ascii_start().len();
    let end = value.trim_ascii_end().len();
    let Some(scheme) = scheme else { return Some(start..end.max(start)) };
    let (found, rest) = value.get(start..end)?.split_at_checked(scheme.len())?;
    let credential = rest.trim_ascii_start();
    // Without white space between them it is another, longer word.
    if !found.eq_ignore_ascii_case(scheme.as_bytes()) || credential.len() == rest.len() {
        return None;
    }
    Some(end - credential.len()..end)
}

fn half_of(inner: &[u8], half: BasicHalf) -> Option<Slot> {
    let colon = inner.iter().position(|b| *b == b':')?;
    Some(match half {
        BasicHalf::User => Slot::new(0..colon, Spelling::User),
        BasicHalf::Password => Slot::new(colon + 1..inner.len(), Spelling::Plain),
    })
}

/// Whether a quote is left open in one of the cookies: some servers then take the `;` behind it, and the next cookies,
/// for letters of its value (RFC 2109 section 4.1).
pub(super) fn has_open_quote(cookies: &[u8]) -> bool {
    cookies.split(|b| *b == b';').any(|pair| {
        let quotes = pair.iter().filter(|b| **b == b'"').count();
        quotes % 2 == 1 || pair.windows(2).any(|two| two == b"\\\"")
    })
}

/// RFC 6265 section 4.2.1; a value may stand in quotes.
fn cookies(value: &[u8], name: &str) -> Vec<Slot> {
    let of_pair = |pair: Range<usize>| {
        let text = value.get(pair.clone())?;
        let equals = text.iter().position(|b| *b == b'=')?;
        let (own, content) = (text.get(..equals)?.trim_ascii(), text.get(equals + 1..)?);
        if own != name.as_bytes() {
            return None;
        }
        let mut range = trimmed(value, pair.start + equals + 1..pair.end);
        let quoted = content.trim_ascii();
        if quoted.len() > 1 && quoted.starts_with(b"\"") && quoted.ends_with(b"\"") {
            range = range.start + 1..range.end - 1;
        }
        Some(Slot::new(range, Spelling::Cookie))
    };
    pieces(value, 0, b';').filter_map(of_pair).collect()
}

/// RFC 6265 section 4.1.1.
fn cookie_octet(b: u8) -> bool {
    b.is_ascii_graphic() && !b"\",;\\".contains(&b)
}

/// RFC 6455 section 11.3.4.
fn items(value: &[u8], prefix: &str) -> Vec<Slot> {
    let of_item = |item: Range<usize>| {
        let range = trimmed(value, item);
        let matches = value.get(range.clone())?.starts_with(prefix.as_bytes());
        matches.then(|| Slot::new(range.start + prefix.len()..range.end, Spelling::Token))
    };
    pieces(value, 0, b',').filter_map(of_item).collect()
}

fn parameters(url: &[u8], key: &str) -> Vec<Slot> {
    let Some(question) = url.iter().position(|b| *b == b'?') else { return Vec::new() };
    let of_pair = |pair: Range<usize>| {
        let text = url.get(pair.clone())?;
        let equals = text.iter().position(|b| *b == b'=')?;
        let own = key_of(text.get(..equals)?);
        let slot = Slot::new(pair.start + equals + 1..pair.end, Spelling::Query);
        let exact = own == key.as_bytes();
        own.eq_ignore_ascii_case(key.as_bytes()).then_some(Slot { exact, ..slot })
    };
    pieces(url, question + 1, b'&').filter_map(of_pair).collect()
}

/// As forms are decoded: <https://url.spec.whatwg.org/#urlencoded-parsing>.
fn key_of(raw: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).collect()
}

fn segment(url: &[u8], template: &PathTemplate) -> Option<Slot> {
    let path = url.split(|b| *b == b'?').next()?;
    let plain = RequestPath::parse(std::str::from_utf8(path).ok()?).ok()?;
    let (number, before, behind) = template.slot(&plain)?;
    let range = pieces(path, 1, b'/').nth(number)?;
    let raw = path.get(range.clone())?;
    if raw == [before, behind].concat().as_bytes() {
        return None;
    }
    // Whoever takes a `%2F` before it for a `/` counts other segments.
    let counted = !path.get(..range.start)?.to_ascii_lowercase().windows(3).any(|three| three == b"%2f");
    let literal = counted
        && raw.len() > before.len() + behind.len()
        && raw.starts_with(before.as_bytes())
        && raw.ends_with(behind.as_bytes());
    Some(if literal {
        Slot::new(range.start + before.len()..range.end - behind.len(), Spelling::Segment)
    } else {
        Slot { exact: false, ..Slot::new(range, Spelling::Segment) }
    })
}

/// The ranges between separators, from an offset on.
fn pieces(text: &[u8], from: usize, separator: u8) -> impl Iterator<Item = Range<usize>> {
    let mut start = from;
    text.get(from..).unwrap_or_default().split(move |b| *b == separator).map(move |piece| {
        let range = start..start + piece.len();
        start = range.end + 1;
        range
    })
}

fn trimmed(text: &[u8], range: Range<usize>) -> Range<usize> {
    let piece = text.get(range.clone()).unwrap_or_default();
    let start = range.start + (piece.len() - piece.trim_ascii_start().len());
    start..start + piece.trim_ascii().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_header(placement: &str, header: &str, value: &str) -> Vec<String> {
        let name = header.parse().unwrap();
        let part = Part::header(&name, value.as_bytes());
        values(&part, placement)
    }

    fn in_url(placement: &str, url: &str) -> Vec<String> {
        values(&Part::url(url), placement)
    }

    fn values(part: &Part<'_>, placement: &str) -> Vec<String> {
        let slots = part.slots(&placement.parse().unwrap());
        let text = |slot: &Slot| {
            let value = String::from_utf8(slot.value(part.inner()).into_owned()).unwrap();
            if slot.exact { value } else { format!("~{value}") }
        };
        slots.iter().map(text).collect()
    }

    fn encoded(text: &str) -> String {
        BASE64_STANDARD.encode(text)
    }

    #[test]
    fn headers_alone_or_after_a_scheme() {
        for (placement, header, value, found) in [
            ("header x-api-key", "x-api-key", "abc", Some("abc")),
            ("header x-api-key", "x-api-key", " abc ", Some("abc")),
            ("header x-api-key", "x-api-key", "", Some("")),
            ("header x-api-key", "x-other", "abc", None),
            ("header authorization Bearer", "authorization", "Bearer abc", Some("abc")),
            ("header authorization Bearer", "authorization", "bearer  abc ", Some("abc")),
            ("header authorization token", "authorization", "TOKEN\tabc", Some("abc")),
            ("header authorization Bearer", "authorization", "Bearerabc", None),
            ("header authorization Bearer", "authorization", "Basic abc", None),
            ("header authorization Bearer", "authorization", "abc", None),
            ("header authorization Bearer", "authorization", "", None),
            ("header x-token-bin", "x-token-bin", "YWJj", Some("abc")),
            ("header x-token-bin", "x-token-bin", "a-b", None),
        ] {
            let expected: Vec<&str> = found.into_iter().collect();
            assert_eq!(in_header(placement, header, value), expected, "{placement} {value:?}");
        }
    }

    #[test]
    fn either_half_of_basic() {
        let both = |value: &str| {
            let of = |placement| in_header(placement, "authorization", value).pop();
            (of("basic user"), of("basic password"))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(both(&format!("Basic {}", encoded("u:p:q"))), (some("u"), some("p:q")));
        assert_eq!(both(&format!("bASIC  {}", encoded("u:"))), (some("u"), some("")));
        assert_eq!(both("Basic dTo"), (some("u"), some("")), "no padding");
        for value in ["Basic dTo!", "Basic", "Basic ", "Bearer dTo=", &format!("Basic {}", encoded("up"))] {
            assert_eq!(both(value), (None, None), "{value}");
        }
        assert_eq!(basic(b"Basic dTo!"), Some(None));
        assert_eq!(basic(b"Bearer dTo!"), None);
        let name = AUTHORIZATION;
        let value = format!("basic  {}", encoded("u:p"));
        let part = Part::header(&name, value.as_bytes());
        assert_eq!(part.wrapped(b"u:other").as_slice(), format!("basic  {}", encoded("u:other")).as_bytes());
    }

    #[test]
    fn cookies_by_name() {
        for (value, found) in [
            ("a=1; sid=abc; b=2", vec!["abc"]),
            ("sid=abc;sid = \"def\" ;sid=", vec!["abc", "def", ""]),
            ("SID=abc; xsid=abc; sid", vec![]),
            ("sid=a=b", vec!["a=b"]),
            ("sid=\"", vec!["\""]),
        ] {
            assert_eq!(in_header("cookie sid", "cookie", value), found, "{value}");
        }
    }

    #[test]
    fn parameters_of_the_query_in_all_spellings_of_their_key() {
        for (url, found) in [
            ("/a?key=abc", vec!["abc"]),
            ("/a?x=1&k%65y=a%62c&key=d&key=", vec!["abc", "d", ""]),
            ("/a?KEY=abc&Ke%59=d", vec!["~abc", "~d"]),
            ("/a?key&xkey=1&key%20=2&key[]=3", vec![]),
            ("/key=abc", vec![]),
            ("/?key=a?key=b", vec!["a?key=b"]),
        ] {
            assert_eq!(in_url("query key", url), found, "{url}");
        }
    }

    #[test]
    fn a_segment_of_the_path() {
        for (url, found) in [
            ("/bot123%3Aabc/send?x=/botno/", Some("123:abc")),
            ("/bot123:abc/send", Some("123:abc")),
            ("/%62ot123/send", Some("~bot123")),
            ("/bot123/a%2Fb", Some("123")),
            ("/x/../bot123/send", None),
            ("/bot/send", None),
        ] {
            let expected: Vec<&str> = found.into_iter().collect();
            assert_eq!(in_url("path /bot{}/**", url), expected, "{url}");
        }
        assert_eq!(in_url("path /*/{}/**", "/a/123/b"), ["123"]);
        assert_eq!(in_url("path /*/{}/**", "/a%2fb/123/b"), ["~123"]);
    }

    #[test]
    fn items_of_the_websocket_protocol() {
        let header = "sec-websocket-protocol";
        assert_eq!(in_header("websocket-protocol key.", header, "realtime, key.abc,x.key.d"), ["abc"]);
        assert_eq!(in_header("websocket-protocol", header, "realtime , abc"), ["realtime", "abc"]);
    }

    #[test]
    fn a_credential_is_spelled_for_its_place_or_does_not_fit() {
        let spelled = |spelling, text| Slot::new(0..0, spelling).spelled(text).map(|text| text.to_string());
        for (spelling, text, expected) in [
            (Spelling::Plain, "a:b;c", Some("a:b;c")),
            (Spelling::User, "a:b", None),
            (Spelling::Cookie, "a:b=", Some("a:b=")),
            (Spelling::Cookie, "a;b", None),
            (Spelling::Token, "a-b.c", Some("a-b.c")),
            (Spelling::Token, "a/b", None),
            (Spelling::Query, "a+b&c=d/e:f~", Some("a%2Bb%26c%3Dd%2Fe%3Af~")),
            (Spelling::Segment, "a:b/c;d%", Some("a:b%2Fc%3Bd%25")),
        ] {
            assert_eq!(spelled(spelling, text).as_deref(), expected, "{spelling:?} {text}");
        }
    }
}
