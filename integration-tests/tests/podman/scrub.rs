//! A service that repeats the key that it received, in every form: the container sees the stand-in.

use understudy_integration_tests::search::Needles;
use understudy_integration_tests::stand::{Agent, GENERIC};

use crate::{python, received, stand};

const WEBSOCKET: &str = include_str!("../websocket.py");
const KEY: &str = "-H \"x-api-key: $EXAMPLE_API_KEY\"";

fn keyed() -> Agent {
    Agent::generic().annotation("understudy.secrets", GENERIC)
}

/// What a client printed holds the stand-in `times` times, plainly once `decode` has been at it, and the real value in no form.
fn assert_scrubbed(text: &str, times: usize, decode: impl Fn(&str) -> String) {
    let (stand_in, printed) = text.split_once('\n').unwrap();
    let real = stand().secrets.generic.as_str();
    assert!(!Needles::new([real]).unwrap().find(printed.as_bytes()), "it came back: {printed}");
    let decoded = decode(printed);
    assert!(!decoded.contains(real), "it came back: {printed}");
    assert_eq!(decoded.matches(stand_in).count(), times, "{decoded}");
}

/// The real value did reach the service, which would otherwise have nothing to repeat.
fn assert_swapped(path: &str) {
    let seen = received(path, "x-api-key");
    let real = Some(stand().secrets.generic.clone());
    assert!(!seen.is_empty() && seen.iter().all(|value| *value == real), "{} requests", seen.len());
}

fn curl(kind: &str, times: usize, decode: impl Fn(&str) -> String) {
    stand();
    for version in ["--http1.1", "--http2"] {
        let script = format!(
            "echo $EXAMPLE_API_KEY; curl -sSi --fail {version} --compressed {KEY} https://api.example/reflect/{kind}"
        );
        assert_scrubbed(&keyed().shell(&script).unwrap().success().unwrap(), times, &decode);
    }
    assert_swapped(&format!("/reflect/{kind}"));
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Of what is left of a text when each escape, `mark` and so many hexadecimal digits, is replaced.
fn unescaped(text: &str, mark: &str, digits: usize) -> String {
    let mut parts = text.split(mark);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(digits);
        plain.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
        plain.push_str(rest);
    }
    plain
}

#[test]
fn in_a_body() {
    curl("plain", 1, as_it_is);
}

#[test]
fn in_headers() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    curl("header", 4, |text| {
        let basic = text.lines().find_map(|line| line.strip_prefix("x-basic: ")).unwrap();
        let basic = String::from_utf8(STANDARD.decode(basic.trim()).unwrap()).unwrap();
        unescaped(text, "%", 2) + &basic
    });
}

#[test]
fn in_base64() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    curl("base64", 1, |text| {
        String::from_utf8(STANDARD.decode(text.lines().last().unwrap()).unwrap()).unwrap()
    });
}

#[test]
fn percent_encoded() {
    curl("percent", 1, |text| unescaped(text, "%", 2));
}

#[test]
fn in_hexadecimal() {
    curl("hex", 1, |text| {
        let digits = text.lines().last().unwrap();
        let bytes = digits.as_bytes().chunks(2);
        bytes
            .map(|two| char::from(u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()))
            .collect()
    });
}

#[test]
fn escaped_in_json() {
    curl("json", 1, |text| unescaped(text, "\\u", 4));
}

#[test]
fn compressed() {
    curl("gzip", 1, as_it_is);
}

#[test]
fn byte_by_byte() {
    curl("chunked", 1, as_it_is);
}

#[test]
fn in_events() {
    curl("sse", 2, as_it_is);
}

#[test]
fn python_sees_the_stand_in() {
    let script = "import os, urllib.request as u; k = os.environ['EXAMPLE_API_KEY']; print(k)\n\
                  for kind in 'plain', 'chunked', 'header':\n\
                  \x20   r = u.urlopen(u.Request('https://api.example/reflect/' + kind, headers={'x-api-key': k}))\n\
                  \x20   print(r.headers.get('x-reflected'), r.read().decode())";
    let text = keyed().run(&python(script)).unwrap().success().unwrap();
    assert_scrubbed(&text, 3, as_it_is);
}

#[test]
fn in_a_websocket() {
    stand();
    let script = format!(
        "echo $EXAMPLE_API_KEY; python3 - api.example 443 \"$EXAMPLE_API_KEY\" <<'END'\n{WEBSOCKET}\nEND"
    );
    let text = keyed().shell(&script).unwrap().success().unwrap();
    // its handshake, its first message
    assert_scrubbed(&text, 2, as_it_is);
    assert!(text.ends_with("\nhello\n"), "{text}");
    // the mock offers HTTP/2 as well, which knows no such upgrade
    let requests = stand().requests("/ws").unwrap();
    let of_key = requests.iter().filter(|request| request.header("x-api-key").is_some());
    let versions: Vec<_> = of_key.map(|request| request.version.as_str()).collect();
    assert_eq!(versions, ["HTTP/1.1"]);
}
