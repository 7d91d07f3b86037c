use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::credentials::fixture::{Values, declared, vault};

const REAL: &str = "sk-0123456789abcdefghij";

fn searches(host: &str) -> (Searches, String) {
    let vault = vault(&declared("key", ""), &Values::from([("key", REAL)]));
    let stand_in = vault.secret("key").unwrap().stand_in().to_owned();
    (Searches::of_host(vault, &["key"], host), stand_in)
}

fn head(status: u16, headers: &[(&'static str, &str)]) -> ResponseHeader {
    let mut head = ResponseHeader::build(status, None).unwrap();
    for (name, value) in headers {
        head.append_header(*name, *value).unwrap();
    }
    head
}

fn begin(head: &mut ResponseHeader, host: &str) -> Result<Answer, Failure> {
    Answer::begin(head, &searches(host).0, &Method::GET, &Upgrade::None)
}

fn gzip(text: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap().into()
}

const BOUND: &str = "api.example.com";
const OTHER: &str = "other.example.com";

#[test]
fn an_identity_body_keeps_its_length_at_any_host() {
    for host in [BOUND, OTHER] {
        let (_, stand_in) = searches(host);
        let mut head = head(200, &[("content-length", "23"), ("etag", "\"x\"")]);
        let mut answer = begin(&mut head, host).unwrap();
        assert_eq!(
            (&head.headers["content-length"], &head.headers["etag"]),
            (&"23".parse().unwrap(), &"\"x\"".parse().unwrap())
        );
        let (first, rest) = REAL.split_at(7);
        assert_eq!(answer.body(first.into(), false).unwrap(), "");
        assert_eq!(answer.body(rest.into(), true).unwrap(), stand_in);
        assert_eq!(answer.replaced(), 1);
    }
}

#[test]
fn a_header_is_written_anew_for_each_form_that_answers_are_searched_for() {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (_, stand_in) = searches(BOUND);
    for (value, expected) in [(REAL.to_owned(), stand_in.clone()), (hex(REAL), hex(&stand_in))] {
        let mut head = head(200, &[("x-echo", &value), ("x-other", "as it was")]);
        let answer = begin(&mut head, BOUND).unwrap();
        assert_eq!([&head.headers["x-echo"], &head.headers["x-other"]], [&*expected, "as it was"], "{value}");
        assert_eq!(answer.replaced(), 1);
    }
}

/// A stand-in needs no escaping, and takes less room than what stands for a value that does.
#[test]
fn a_body_whose_length_can_change_is_framed_anew() {
    const SLASHED: &str = "sk-0123/456789abcdefghij";
    let searches = || {
        let vault = vault(&declared("key", ""), &Values::from([("key", SLASHED)]));
        Searches::of_host(vault, &["key"], BOUND)
    };
    let escaped = SLASHED.replace('/', "\\/");
    let length = escaped.len().to_string();
    for (method, status, kept) in
        [(Method::GET, 200, false), (Method::HEAD, 200, true), (Method::GET, 304, true)]
    {
        let mut head = head(status, &[("content-length", &length)]);
        let mut answer = Answer::begin(&mut head, &searches(), &method, &Upgrade::None).unwrap();
        assert_eq!(head.headers.contains_key("content-length"), kept, "{method} {status}");
        if !kept {
            let out = answer.body(Bytes::from(escaped.clone()), true).unwrap();
            assert_eq!((out.len(), answer.replaced()), (SLASHED.len(), 1));
        }
    }
}

#[test]
fn an_encoded_body_is_read_at_a_bound_host_and_left_elsewhere() {
    let (_, stand_in) = searches(BOUND);
    let told = [
        ("content-encoding", "gzip"),
        ("content-length", "43"),
        ("etag", "\"x\""),
        ("content-digest", "sha-256=:x:"),
        ("accept-ranges", "bytes"),
    ];
    let mut bound = head(200, &told);
    let mut answer = begin(&mut bound, BOUND).unwrap();
    assert_eq!(bound.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["etag"]);
    assert_eq!(bound.headers["etag"], "W/\"x\"");
    assert_eq!(answer.body(gzip(REAL), true).unwrap(), stand_in);
    let mut cut = begin(&mut head(200, &told), BOUND).unwrap();
    let body = gzip(REAL);
    assert_eq!(cut.body(body.slice(..20), true).unwrap_err().reason, Reason::UnreadableAnswer);

    let mut elsewhere = head(200, &told);
    let mut answer = begin(&mut elsewhere, OTHER).unwrap();
    assert_eq!(elsewhere.headers.len(), told.len());
    assert_eq!(answer.body(body.clone(), true).unwrap(), body);
}

#[test]
fn what_cannot_be_read_is_refused_at_a_bound_host_alone() {
    for headers in [(200, "compress"), (200, "gzip, br"), (206, "gzip")] {
        let answer = |host| begin(&mut head(headers.0, &[("content-encoding", headers.1)]), host);
        assert_eq!(answer(BOUND).unwrap_err().reason, Reason::UnreadableAnswer);
        assert!(answer(OTHER).is_ok());
    }
    let extension = [("sec-websocket-extensions", "permessage-deflate")];
    for (upgrade, headers, is_read) in [
        (Upgrade::WebSocket, &extension[..], false),
        (Upgrade::WebSocket, &[], true),
        (Upgrade::None, &[], false),
        (Upgrade::Ignored, &[], false),
    ] {
        let answer = Answer::begin(&mut head(101, headers), &searches(BOUND).0, &Method::GET, &upgrade);
        assert_eq!(answer.is_ok(), is_read, "{upgrade:?} {headers:?}");
    }
    // No body, nothing to read.
    assert!(begin(&mut head(304, &[("content-encoding", "compress")]), BOUND).is_ok());
}

#[test]
fn heads_and_trailers_are_cleaned() {
    let (searches, stand_in) = searches(OTHER);
    let percent: String = REAL.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let twice = percent.replace('%', "%25");
    for status in [103, 200, 101] {
        let mut head = head(
            status,
            &[
                ("location", &format!("/?key={REAL}&again={percent}")),
                ("x-twice", &twice),
                ("x-other", "1"),
                (REAL_NAME, "x"),
            ],
        );
        head.set_reason_phrase(Some(REAL)).unwrap();
        let upgrade = if status == 101 { Upgrade::WebSocket } else { Upgrade::None };
        let answer = Answer::begin(&mut head, &searches, &Method::GET, &upgrade).unwrap();
        let location = head.headers["location"].to_str().unwrap();
        let again: String = stand_in.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(location, format!("/?key={stand_in}&again={again}"));
        assert_eq!(head.headers.len(), 2, "{:?}", head.headers);
        assert!(!head.get_reason_phrase().unwrap_or_default().contains(REAL));
        assert_eq!(answer.replaced(), 4);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-message", REAL.parse().unwrap());
    let mut answer = begin(&mut head(200, &[]), OTHER).unwrap();
    assert_eq!(answer.body(REAL[..5].into(), false).unwrap(), "");
    answer.trailers(&mut trailers, &searches).unwrap();
    assert_eq!(trailers["grpc-message"], stand_in);
    assert_eq!(answer.rest(), REAL[..5]);
}

/// A header's name is in lower case.
const REAL_NAME: &str = REAL;

#[test]
fn nothing_is_looked_for_where_nothing_was_granted() {
    let vault = vault(&declared("key", ""), &Values::from([("key", REAL)]));
    let searches = Searches::of_host(vault, &[], BOUND);
    let mut head = head(200, &[("content-encoding", "compress"), ("content-length", "1")]);
    let mut answer = Answer::begin(&mut head, &searches, &Method::GET, &Upgrade::None).unwrap();
    assert_eq!(head.headers.len(), 2);
    assert_eq!(answer.body("x".into(), true).unwrap(), "x");
}
