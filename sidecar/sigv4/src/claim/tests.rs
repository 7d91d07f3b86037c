//! Keys here are the examples of AWS's documentation.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const CREDENTIAL_TEXT: &str = "AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request";

fn signature() -> String {
    "5d".repeat(32)
}

fn good() -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={CREDENTIAL_TEXT}, SignedHeaders=host;x-amz-date, Signature={}",
        signature()
    )
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

fn read(query: &str, pairs: &[(&str, &str)]) -> Result<Option<Claim>, String> {
    let headers = headers(pairs);
    let request = Request { method: "GET", path: "/", query, host: "iam.amazonaws.com", headers: &headers };
    claim(&request).map_err(|error| error.to_string())
}

#[test]
fn a_header_says_all_of_it_in_any_order() {
    let date = ("x-amz-date", "20150830T123600Z");
    let claim = read("", &[("authorization", &good()), date]).unwrap().unwrap();
    assert_eq!((claim.key_id(), claim.scope().service.as_str()), ("AKIDEXAMPLE", "iam"));
    assert_eq!((claim.form(), claim.token(), claim.needs_body()), (Form::Header, None, true));
    let tight = format!(
        "AWS4-HMAC-SHA256 Signature={},SignedHeaders=host;x-amz-date,Credential={CREDENTIAL_TEXT}",
        signature()
    );
    assert_eq!(read("", &[("authorization", &tight), date]).unwrap().unwrap(), claim);
    let all = [
        ("authorization", good()),
        ("x-amz-date", date.1.to_owned()),
        ("x-amz-security-token", "token".to_owned()),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER".to_owned()),
    ];
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let claim = read("a=b", &all).unwrap().unwrap();
    assert_eq!((claim.token(), claim.needs_body()), (Some("token"), false));
    for other in ["Bearer x", "Basic eDp5", ""] {
        assert_eq!(read("a=b", &[("authorization", other)]).unwrap(), None, "{other}");
    }
}

#[test]
fn what_is_wrong_with_a_header_is_said() {
    let date = "20150830T123600Z";
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (from, to, said) in [
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256-", "not known"),
        ("AWS4-HMAC-SHA256", "aws4-hmac-sha256", "not known"),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "SigV4A"),
        ("AWS4-HMAC-SHA256", "AWS", "Version 2"),
        (", Signature", "; Signature", "missing"),
        ("Signature=5d", "Signature=5", "64 lower-case"),
        ("Signature=5d", "Signature=5D", "64 lower-case"),
        ("Signature=", "Signature", "has no `=`"),
        (", Signature=", ", Signature=a, Signature=", "twice"),
        ("SignedHeaders=host;", "SignedHeaders=", "the host is not among"),
        ("host;x-amz-date", "x-amz-date;host", "not sorted"),
        ("host;x-amz-date", "host;host", "twice"),
        ("host;x-amz-date", "Host;x-amz-date", "lower case"),
        ("SignedHeaders=host;x-amz-date, ", "", "missing"),
        ("Credential", "Credentials", "none of"),
        ("20150830/", "20150831/", "another day"),
        ("/aws4_request", "", "its credential is not"),
    ] {
        let text = good().replacen(from, to, 1);
        assert_ne!(text, good());
        let error = read("", &[("authorization", &text), ("x-amz-date", date)]).unwrap_err();
        assert!(error.contains(said), "{error}, expected {said}");
    }
    let good = good();
    let auth = ("authorization", good.as_str());
    for (more, said) in [
        (vec![], "x-amz-date is missing"),
        (vec![("x-amz-date", date), ("x-amz-date", date)], "there twice"),
        (vec![("x-amz-date", "today")], "its time is not as"),
        (vec![("x-amz-date", date), ("authorization", "Bearer x")], "several Authorization"),
        (vec![("x-amz-date", date), ("x-amz-content-sha256", "none")], "no SHA-256"),
        (vec![("x-amz-date", date), ("x-amz-content-sha256", hash), ("x-amz-content-sha256", hash)], "twice"),
        (
            vec![("x-amz-date", date), ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")],
            "each chunk",
        ),
        (
            vec![
                ("x-amz-date", date),
                ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
            ],
            "each chunk",
        ),
        (
            vec![("x-amz-date", date), ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-EVENTS")],
            "each chunk",
        ),
    ] {
        let error = read("", &[vec![auth], more].concat()).unwrap_err();
        assert!(error.contains(said), "{error}, expected {said}");
    }
}

fn presigned() -> String {
    format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature={}",
        CREDENTIAL_TEXT.replace('/', "%2F"),
        signature()
    )
}

#[test]
fn a_presigned_url_says_all_of_it() {
    let claim = read(&presigned(), &[]).unwrap().unwrap();
    assert_eq!((claim.form(), claim.needs_body()), (Form::Query { expires: 60 }, true));
    let s3 = presigned().replace("%2Fiam%2F", "%2Fs3%2F") + "&X-Amz-Security-Token=a%2Bb";
    let claim = read(&s3, &[]).unwrap().unwrap();
    assert_eq!((claim.token(), claim.needs_body()), (Some("a+b"), false));
    assert!(read("a=b&list-type=2&X-Amz-Meta=1", &[]).unwrap().is_none());
}

#[test]
fn what_is_wrong_with_a_presigned_url_is_said() {
    for (from, to, said) in [
        ("X-Amz-Expires=60&", "", "a parameter of its signature is missing"),
        ("X-Amz-Expires=60", "X-Amz-Expires=604801", "1 to 604800"),
        ("X-Amz-Expires=60", "X-Amz-Expires=-1", "1 to 604800"),
        ("X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Expires=60", "there twice"),
        ("X-Amz-Expires=60", "X-Amz-Expires=60&X%2DAmz-Expires=60", "there twice"),
        ("X-Amz-Signature", "x-amz-signature", "letter case"),
        ("X-Amz-Expires=60", "AWSAccessKeyId=x", "Version 2"),
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256", "SigV4A"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=x-host", "the host is not among"),
        ("X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Security-Token=%ff", "not UTF-8"),
    ] {
        let text = presigned().replacen(from, to, 1);
        assert_ne!(text, presigned());
        let error = read(&text, &[]).unwrap_err();
        assert!(error.contains(said), "{error}, expected {said}");
    }
    let alone = read("", &[("authorization", "AWS4-HMAC-SHA256")]);
    assert!(alone.unwrap_err().contains("nothing follows its algorithm"));
    let both = read(&presigned(), &[("authorization", &good()), ("x-amz-date", "20150830T123600Z")]);
    assert!(both.unwrap_err().contains("in a header and in the URL"));
    let token = presigned() + "&X-Amz-Security-Token=a";
    assert!(read(&token, &[("x-amz-security-token", "a")]).unwrap_err().contains("token is in a header and"));
    assert!(read("awsaccesskeyid=x", &[]).unwrap_err().contains("Version 2"));
}

#[test]
fn a_request_of_awss_clients_is_told_by_any_of_it() {
    let of = |query: &str, pairs: &[(&str, &str)]| {
        let headers = headers(pairs);
        let request = Request { method: "GET", path: "/", query, host: "a", headers: &headers };
        (is_signed(&request), service(&request))
    };
    assert_eq!(
        of("", &[("authorization", &good()), ("x-amz-date", "20150830T123600Z")]),
        (true, Some("iam".into()))
    );
    assert_eq!(of("", &[("authorization", "AWS4-HMAC-SHA256 x")]), (true, None));
    assert_eq!(of("", &[("x-amz-target", "x")]), (true, None));
    assert_eq!(of(&presigned(), &[]).1, Some("iam".into()));
    assert_eq!(of("a=b", &[("authorization", "Bearer x")]), (false, None));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(query in "[ -~]{0,80}", value in "[ -~]{0,120}", date in "[ -~]{0,20}") {
        let _ = read(&query, &[("authorization", &format!("AWS4-HMAC-SHA256 {value}")), ("x-amz-date", &date)]);
    }
}
