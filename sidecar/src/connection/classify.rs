//! What a connection is, from its first bytes. Pure, bounded, linear in what arrives.

use std::ops::RangeInclusive;

use rustls::server::Acceptor;

/// At most this many bytes are looked at.
pub const LIMIT: usize = 32 * 1024;
/// A request line that is longer is judged by its beginning.
const LONGEST_LINE: usize = 8 * 1024;
/// More TLS records than a real client splits its hello into; bounds the work on one-byte records.
const MOST_RECORDS: usize = 64;
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// With which version 2 of the PROXY protocol begins (its specification, section 2.2).
const PROXY2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// As a client of SSL 2 sends it (RFC 5246 appendix E.2), which servers of TLS may take: a length of two bytes, the first
/// of which is one of these, its type, and the version that it asks for.
const SSL2_LENGTH: RangeInclusive<u8> = 0x80..=0xcf;
const SSL2_HELLO: u8 = 1;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 section 5.1: the content of a record.
const LONGEST_RECORD: usize = 16 * 1024;

const PROXY: &str = "a PROXY protocol header, behind which anything could follow";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classified {
    /// Ask again once `at_least` bytes are there, counted from the first; more than there were.
    NeedMore { at_least: usize },
    /// A whole ClientHello.
    Tls(Hello),
    /// An HTTP/1.0 or HTTP/1.1 request.
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 section 3.3).
    Http2Preface,
    /// Something else.
    Other,
    /// Begins like one of the above and is not.
    Malformed { why: &'static str },
}

/// What a ClientHello asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// `None` as well if it was an address literal.
    pub sni: Option<Vec<u8>>,
    pub alpn: Vec<Vec<u8>>,
}

/// The first rule that fits: TLS by its record header, HTTP/2 by its preface, HTTP/1 by its request line. What goes before
/// either in front of servers that take that (the PROXY protocol) and older forms of both are `Malformed`.
pub fn classify(bytes: &[u8]) -> Classified {
    match bytes.first() {
        None => Classified::NeedMore { at_least: 1 },
        Some(&HANDSHAKE_RECORD) => tls(bytes),
        Some(_) if HTTP2_PREFACE.starts_with(bytes) && bytes.len() < HTTP2_PREFACE.len() => {
            Classified::NeedMore { at_least: bytes.len() + 1 }
        }
        Some(_) if bytes.starts_with(HTTP2_PREFACE) => Classified::Http2Preface,
        Some(_) if PROXY2.starts_with(bytes) && bytes.len() < PROXY2.len() => {
            Classified::NeedMore { at_least: bytes.len() + 1 }
        }
        Some(_) if bytes.starts_with(PROXY2) => Classified::Malformed { why: PROXY },
        Some(first) if SSL2_LENGTH.contains(first) => ssl2(bytes),
        Some(_) => http1(bytes),
    }
}

/// What else begins with such a byte is another protocol, or white space in front of a request.
fn ssl2(bytes: &[u8]) -> Classified {
    match bytes.get(2..).unwrap_or_default() {
        [] | [SSL2_HELLO] | [SSL2_HELLO, 0] => Classified::NeedMore { at_least: bytes.len() + 1 },
        [SSL2_HELLO, 3, ..] | [SSL2_HELLO, 0, 2, ..] => {
            Classified::Malformed { why: "TLS hello in the form of SSL 2" }
        }
        _ => http1(bytes),
    }
}

/// Walks the records by their lengths; the parser sees a hello once, when all of it is there.
fn tls(bytes: &[u8]) -> Classified {
    let mut at = 0;
    let mut content = 0;
    let mut head: Vec<u8> = Vec::with_capacity(4);
    for _ in 0..MOST_RECORDS {
        let Some(&[kind, major, _, high, low]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
            return need(bytes, at + 5);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE_RECORD {
            return Classified::Malformed { why: "TLS record of another kind inside the hello" };
        }
        if major != 3 || length == 0 || length > LONGEST_RECORD {
            return Classified::Malformed { why: "not a TLS record" };
        }
        let Some(fragment) = bytes.get(at + 5..at + 5 + length) else {
            return need(bytes, at + 5 + length);
        };
        head.extend(fragment.iter().take(4 - head.len().min(4)));
        content += length;
        at += 5 + length;
        if let &[message, a, b, c] = head.as_slice() {
            if message != CLIENT_HELLO {
                return Classified::Malformed { why: "TLS handshake that does not begin with a hello" };
            }
            let whole = 4 + usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
            if whole > LIMIT {
                return Classified::Malformed { why: "TLS hello of more than 32 KiB" };
            }
            if content >= whole {
                return hello(bytes.get(..at).unwrap_or(bytes));
            }
        }
    }
    Classified::Malformed { why: "TLS hello in too many records" }
}

fn hello(mut records: &[u8]) -> Classified {
    let malformed = Classified::Malformed { why: "TLS hello that cannot be parsed" };
    let mut acceptor = Acceptor::default();
    while !records.is_empty() {
        if !matches!(acceptor.read_tls(&mut records), Ok(1..)) {
            return malformed;
        }
    }
    match acceptor.accept() {
        Ok(Some(accepted)) => {
            let hello = accepted.client_hello();
            Classified::Tls(Hello {
                sni: hello.server_name().map(|name| name.as_bytes().to_vec()),
                alpn: hello.alpn().map(|all| all.map(<[u8]>::to_vec).collect()).unwrap_or_default(),
            })
        }
        Err((rustls::Error::PeerIncompatible(_), _)) => {
            Classified::Malformed { why: "TLS hello of a client that is too old for TLS 1.2" }
        }
        Ok(None) | Err(_) => malformed,
    }
}

/// RFC 9112 section 3: method, space, target, space, version; and what servers take for it besides (section 2.2 and 3): empty
/// lines and white space before it, methods in any letters, more than one space, and what else is white. That is no request
/// here, but no other protocol either.
fn http1(bytes: &[u8]) -> Classified {
    let head = bytes.get(..bytes.len().min(LONGEST_LINE)).unwrap_or(bytes);
    let more = match head.len() < LONGEST_LINE {
        true => Classified::NeedMore { at_least: bytes.len() + 1 },
        false => Classified::Http1,
    };
    if is_git(bytes) {
        return Classified::Other;
    }
    let (before, line) = split(head, |byte| is_space(byte) || byte == b'\n');
    let (method, rest) = split(line, is_token);
    if method.is_empty() && !rest.is_empty() {
        return Classified::Other;
    }
    let (spaces, target) = split(rest, is_space);
    let is_graphic = target.first().is_none_or(u8::is_ascii_graphic);
    if !rest.is_empty() && (spaces.is_empty() || !is_graphic) {
        return Classified::Other;
    }
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else { return more };
    let (line, _) = line.split_at(end);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let upper = method.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-');
    let plain = before.is_empty() && upper && spaces == b" " && !line.last().copied().is_some_and(is_space);
    let words = || line.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
    let is_version = |word: &[u8]| word.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"));
    match words().next_back() {
        Some(b"HTTP/1.1" | b"HTTP/1.0") if plain => Classified::Http1,
        Some(b"HTTP/1.1" | b"HTTP/1.0") => {
            Classified::Malformed { why: "HTTP request line that is not well-formed" }
        }
        _ if words().any(is_version) => Classified::Malformed { why: "HTTP version that does not exist" },
        _ if method == b"GET" && target.starts_with(b"/") => Classified::Malformed { why: "HTTP/0.9" },
        _ if method == b"PROXY" => Classified::Malformed { why: PROXY },
        _ => Classified::Other,
    }
}

/// A request of git's own protocol (gitprotocol-pack(5)): its length, and no end of a line.
fn is_git(bytes: &[u8]) -> bool {
    let Some((length, service)) = bytes.split_at_checked(4) else { return false };
    length.iter().all(u8::is_ascii_hexdigit) && service.starts_with(b"git-")
}

fn split(bytes: &[u8], is: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().take_while(|byte| is(**byte)).count())
}

/// What may part the words of a request line (RFC 9112 section 3), and what servers take for it that split a line at all that
/// is white in Latin-1; of it, only the first is well-formed.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn need(bytes: &[u8], at_least: usize) -> Classified {
    if at_least > LIMIT || at_least <= bytes.len() {
        return Classified::Malformed { why: "TLS hello of more than 32 KiB" };
    }
    Classified::NeedMore { at_least }
}

#[cfg(test)]
mod tests;
