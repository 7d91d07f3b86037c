//! Signatures that a request claims to have: what is understood is of one scope and over the host, and none is guessed.
//! Signed here with a stand-in's key, as a client would, it holds, and made again with the real one it is that one's.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use percent_encoding::percent_decode_str;
use ring::{digest, hmac};
use understudy_sigv4::{Claim, Credentials, Form, Request, Signed, TOKEN as TOKEN_HEADER, claim, is_signed, service};

const STAND_IN: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const REAL: &str = "rEaL/secret+access/key0123456789abcdefgh";
const REAL_ID: &str = "AKIAREALREALREAL2345";
const TOKEN: &str = "IQoJb3JpZ2luX2Vj/the+real=token";
const NOW: i64 = 1_796_027_056;

fuzz_target!(|text: &str| {
    // Path and query, then headers, one a line.
    let mut lines = text.lines();
    let (path, query) = lines.next().unwrap_or_default().split_once('?').unwrap_or_default();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
            continue;
        };
        headers.append(name, value);
    }
    let request = Request { method: "PUT", path, query, host: "bucket.example", headers: &headers };
    let told = service(&request);
    let Ok(Some(claim)) = claim(&request) else {
        assert_eq!(told, None);
        return;
    };
    assert!(is_signed(&request));
    assert_eq!(told.as_ref(), Some(&claim.scope().service));
    let scope = claim.scope().to_string();
    assert_eq!(scope.split('/').count(), 4);
    assert!(!claim.key_id().is_empty() && claim.key_id().len() <= 128);
    let _ = claim.check_time(NOW);
    // Nobody can guess one.
    let body = text.as_bytes();
    assert!(claim.verify(&request, STAND_IN, body).is_err());
    if let Some((headers, query)) = signed(&request, &claim, body) {
        again(&Request { query: &query, headers: &headers, ..request }, body);
    }
});

/// One that a client has signed with its stand-in.
fn again(request: &Request<'_>, body: &[u8]) {
    let Ok(Some(own)) = claim(request) else { panic!("no claim any more") };
    let Ok(verified) = own.verify(request, STAND_IN, body) else { panic!("a signature that holds does not") };
    assert!(own.verify(request, REAL, body).is_err());
    let with = Credentials { key_id: REAL_ID, secret: REAL, token: Some(TOKEN) };
    let (mut headers, mut query) = (request.headers.clone(), request.query.to_owned());
    match verified.sign(request, &with, NOW) {
        Ok(Signed::Headers(replaced)) => {
            for (name, value) in replaced {
                headers.remove(&name);
                headers.extend(value.map(|value| (name, value)));
            }
        }
        Ok(Signed::Query(whole)) => query = whole.to_string(),
        Err(error) => panic!("{error}"),
    }
    let request = Request { query: &query, headers: &headers, ..*request };
    let Ok(Some(other)) = claim(&request) else { panic!("what goes on is not signed") };
    assert_eq!((other.key_id(), other.token()), (REAL_ID, Some(TOKEN)));
    assert_eq!(other.scope(), own.scope());
    assert!(other.verify(&request, REAL, body).is_ok() && other.verify(&request, STAND_IN, body).is_err());
}

/// Headers and query with the signature that there should be, by the rules of Amazon S3, written down here once more.
fn signed(request: &Request<'_>, claim: &Claim, body: &[u8]) -> Option<(HeaderMap, String)> {
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pairs = || request.query.split('&').filter(|pair| !pair.is_empty());
    let named = |pair: &&str, name: &str| decoded(pair.split('=').next().unwrap_or_default()) == name.as_bytes();
    let parameter = |name: &str| {
        let pair = pairs().find(|pair| named(pair, name))?;
        String::from_utf8(decoded(pair.split_once('=').map_or("", |(_, value)| value))).ok()
    };
    let header = |name: &str| {
        let values = request.headers.get_all(name).iter().map(|value| trimmed(value.as_bytes()));
        values.reduce(|all, value| [&all[..], b",", &value].concat())
    };
    let scope = claim.scope().to_string();
    let presigned = claim.form() != Form::Header;
    let authorization = request.headers.get("authorization").and_then(|value| value.to_str().ok());
    let (date, names) = if presigned {
        (parameter("X-Amz-Date")?, parameter("X-Amz-SignedHeaders")?)
    } else {
        let (_, parts) = authorization?.split_once(' ')?;
        let names = parts.split(',').find_map(|part| part.trim().strip_prefix("SignedHeaders="))?;
        (String::from_utf8(header("x-amz-date")?).ok()?, names.to_owned())
    };
    // Nobody reads a token that stands in a header of a presigned URL's request.
    if presigned && request.headers.contains_key(TOKEN_HEADER) {
        return None;
    }
    // What is over itself nobody can sign.
    if names.split(';').any(|name| name == "authorization") {
        return None;
    }
    let mut query: Vec<(&str, &str)> = pairs()
        .filter(|pair| !presigned || !named(pair, "X-Amz-Signature"))
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query.join("&")).into_bytes();
    for name in names.split(';') {
        let value = if name == "host" { request.host.as_bytes().to_vec() } else { header(name)? };
        canonical.extend([name.as_bytes(), b":", &value, b"\n"].concat());
    }
    let stated = header("x-amz-content-sha256").and_then(|stated| String::from_utf8(stated).ok());
    let payload = match stated.or_else(|| parameter("X-Amz-Content-Sha256").filter(|_| presigned)) {
        Some(stated) => stated,
        None if presigned && claim.scope().is_s3() => "UNSIGNED-PAYLOAD".to_owned(),
        None => hex(digest::digest(&digest::SHA256, body).as_ref()),
    };
    canonical.extend(format!("\n{names}\n{payload}").into_bytes());
    let hashed = hex(digest::digest(&digest::SHA256, &canonical).as_ref());
    let key = scope.split('/').fold(format!("AWS4{STAND_IN}").into_bytes(), |key, part| sign(&key, part));
    let signature = hex(&sign(&key, &format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}")));
    let (mut headers, mut query) = (request.headers.clone(), request.query.to_owned());
    if presigned {
        let kept: Vec<&str> = pairs().filter(|pair| !named(pair, "X-Amz-Signature")).collect();
        query = format!("{}&X-Amz-Signature={signature}", kept.join("&"));
    } else {
        let (algorithm, parts) = authorization?.split_once(' ')?;
        let own = format!("Signature={signature}");
        let parts = parts.split(',').map(str::trim);
        let parts: Vec<&str> =
            parts.map(|part| if part.starts_with("Signature=") { &own } else { part }).collect();
        let text = format!("{algorithm} {}", parts.join(", "));
        headers.insert("authorization", HeaderValue::from_str(&text).ok()?);
    }
    Some((headers, query))
}

fn trimmed(value: &[u8]) -> Vec<u8> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
