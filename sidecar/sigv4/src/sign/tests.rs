//! By AWS's published examples, and by AWS's own signer.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials as AwsCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::{Claim, claim};

const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const S3_SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const REAL: Credentials<'_> =
    Credentials { key_id: "AKIAREALREALREALREAL", secret: "a/real+secret", token: Some("a+real/token==") };

/// So that a presigned URL is good for as long as it was.
const MUCH_LATER: i64 = i64::MAX;

/// A request that is not borrowed.
#[derive(Debug, Clone)]
struct Owned {
    method: &'static str,
    path: String,
    query: String,
    host: String,
    headers: HeaderMap,
}

impl Owned {
    fn new(method: &'static str, host: &str, path: &str, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        Self { method, path: path.to_owned(), query: query.to_owned(), host: host.to_owned(), headers: map }
    }

    fn request(&self) -> Request<'_> {
        let Self { method, path, query, host, headers } = self;
        Request { method, path, query, host, headers }
    }

    fn claim(&self) -> Claim {
        claim(&self.request()).unwrap().unwrap()
    }

    /// As it goes on.
    fn signed(&self, signed: Signed) -> Self {
        let mut next = self.clone();
        match signed {
            Signed::Query(query) => next.query = query.to_string(),
            Signed::Headers(headers) => {
                for (name, value) in headers {
                    next.headers.remove(&name);
                    value.map(|value| next.headers.insert(name, value));
                }
            }
        }
        next
    }
}

/// Checks a request of a client, signs it again, and checks that as the service would.
fn again(sent: &Owned, secret: &str, body: &[u8]) -> Owned {
    let verified = sent.claim().verify(&sent.request(), secret, body).unwrap();
    let next = sent.signed(verified.sign(&sent.request(), &REAL, MUCH_LATER).unwrap());
    let claim = next.claim();
    assert_eq!((claim.key_id(), claim.token()), (REAL.key_id, REAL.token));
    assert_eq!(claim.scope(), sent.claim().scope());
    let theirs = claim.verify(&next.request(), REAL.secret, body).unwrap();
    assert_eq!((theirs.path, theirs.query), (verified.path, verified.query));
    assert!(claim.verify(&next.request(), secret, body).is_err());
    next
}

fn header(credential: &str, signed: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={ID}/{credential}/aws4_request, SignedHeaders={signed}, Signature={signature}"
    )
}

/// From the "Signature Version 4 test suite", the IAM User Guide and the Amazon S3 API Reference.
#[test]
fn published_examples_verify_and_are_signed_again() {
    let vanilla = header(
        "20150830/us-east-1/service",
        "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    );
    let key_case = header(
        "20150830/us-east-1/service",
        "host;x-amz-date",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    );
    let iam = header(
        "20150830/us-east-1/iam",
        "content-type;host;x-amz-date",
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    );
    let form = header(
        "20150830/us-east-1/service",
        "content-type;host;x-amz-date",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    );
    let date = ("x-amz-date", "20150830T123600Z");
    let form_type = "application/x-www-form-urlencoded";
    for (request, body) in [
        (Owned::new("GET", "example.amazonaws.com", "/", "", &[("authorization", &vanilla), date]), ""),
        (
            Owned::new(
                "GET",
                "example.amazonaws.com",
                "/",
                "Param2=value2&Param1=value1",
                &[("authorization", &key_case), date],
            ),
            "",
        ),
        (
            Owned::new(
                "GET",
                "iam.amazonaws.com",
                "/",
                "Action=ListUsers&Version=2010-05-08",
                &[
                    ("authorization", &iam),
                    date,
                    ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ],
            ),
            "",
        ),
        (
            Owned::new(
                "POST",
                "example.amazonaws.com",
                "/",
                "",
                &[("authorization", &form), date, ("content-type", form_type)],
            ),
            "Param1=value1",
        ),
    ] {
        again(&request, SECRET, body.as_bytes());
        assert!(request.claim().verify(&request.request(), S3_SECRET, body.as_bytes()).is_err());
        assert!(request.claim().verify(&request.request(), SECRET, b"another body").is_err());
    }
}

#[test]
fn amazons_examples_of_s3_verify_and_are_signed_again() {
    let scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
    let host = "examplebucket.s3.amazonaws.com";
    let get = format!(
        "AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    let sent = [
        ("authorization", get.as_str()),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
    ];
    let get = Owned::new("GET", host, "/test.txt", "", &sent);
    assert!(!get.claim().needs_body());
    let next = again(&get, S3_SECRET, b"not looked at");
    assert_eq!(
        next.claim().signed_headers,
        ["host", "range", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"]
    );
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        scope.replace('/', "%2F")
    );
    let presigned = Owned::new("GET", host, "/test.txt", &query, &[]);
    let next = again(&presigned, S3_SECRET, b"");
    assert!(
        next.query.contains("X-Amz-Security-Token=a%2Breal%2Ftoken%3D%3D&X-Amz-Signature="),
        "{}",
        next.query
    );
    assert!(!next.query.contains("AKIAIOSFODNN7EXAMPLE"));
}

#[test]
fn a_header_that_is_taken_out_on_the_way_is_not_signed_again() {
    let mut sent = by_aws(&Shape::default());
    let verified = sent.claim().verify(&sent.request(), SECRET, b"").unwrap();
    sent.headers.remove("x-other").unwrap();
    assert!(sent.claim().verify(&sent.request(), SECRET, b"").is_err());
    let next = sent.signed(verified.sign(&sent.request(), &REAL, MUCH_LATER).unwrap());
    assert!(!next.claim().signed_headers.contains(&"x-other".to_owned()));
    next.claim().verify(&next.request(), REAL.secret, b"").unwrap();
}

#[test]
fn a_presigned_url_is_good_for_this_request_and_no_longer_than_was_asked() {
    let sent = by_aws(&Shape { query: true, ..Shape::default() });
    let asked = |sent: &Owned| match sent.claim().form() {
        Form::Query { expires } => expires,
        Form::Header => panic!("no URL"),
    };
    let (made, long) = (sent.claim().time.seconds(), asked(&sent));
    assert!(long > LATER);
    let verified = sent.claim().verify(&sent.request(), SECRET, b"").unwrap();
    for (age, expected) in [(0, LATER), (-60, LATER), (1, LATER + 1), (long as i64, long)] {
        let next = sent.signed(verified.sign(&sent.request(), &REAL, made + age).unwrap());
        assert_eq!(asked(&next), expected, "{age}");
        next.claim().verify(&next.request(), REAL.secret, b"").unwrap();
        assert_eq!(next.query.matches("X-Amz-Expires").count(), 1);
    }
}

#[test]
fn a_key_without_a_session_sends_no_token() {
    for query in [false, true] {
        let sent = by_aws(&Shape { token: true, query, ..Shape::default() });
        let verified = sent.claim().verify(&sent.request(), SECRET, b"").unwrap();
        let real = Credentials { token: None, ..REAL };
        let next = sent.signed(verified.sign(&sent.request(), &real, MUCH_LATER).unwrap());
        assert_eq!((next.claim().token(), next.claim().key_id()), (None, REAL.key_id));
        next.claim().verify(&next.request(), REAL.secret, b"").unwrap();
        assert!(!format!("{next:?}").contains("stand-in-token"), "{next:?}");
    }
}

#[test]
fn nothing_that_was_signed_can_be_changed() {
    for query in [false, true] {
        let sent = by_aws(&Shape { query, ..Shape::default() });
        let verify = |changed: &Owned| changed.claim().verify(&changed.request(), SECRET, b"");
        assert!(verify(&sent).is_ok());
        let changed = [
            Owned { method: "PUT", ..sent.clone() },
            Owned { path: "/other".to_owned(), ..sent.clone() },
            Owned { host: "other.example".to_owned(), ..sent.clone() },
            Owned { query: sent.query.clone() + "&acl", ..sent.clone() },
        ];
        for changed in changed {
            assert!(verify(&changed).is_err(), "{changed:?}");
        }
        let mut changed = sent.clone();
        changed.headers.insert("x-other", HeaderValue::from_static("changed"));
        assert!(verify(&changed).is_err());
        changed.headers.remove("x-other");
        assert!(verify(&changed).is_err());
    }
}

/// What a client of AWS's could send.
#[derive(Debug, Clone)]
struct Shape {
    path: String,
    query_of_its_own: String,
    value: String,
    s3: bool,
    double: bool,
    normalised: bool,
    query: bool,
    token: bool,
    unsigned: bool,
    body: Vec<u8>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            path: "/a/b%20c".to_owned(),
            query_of_its_own: "list-type=2".to_owned(),
            value: "  several   words ".to_owned(),
            s3: true,
            double: false,
            normalised: false,
            query: false,
            token: false,
            unsigned: false,
            body: Vec::new(),
        }
    }
}

/// Signed by `aws-sigv4`, which is what AWS's SDK for Rust signs with.
fn by_aws(shape: &Shape) -> Owned {
    let token = shape.token.then(|| "stand-in-token+/=".to_owned());
    let identity = AwsCredentials::new(ID, SECRET, token, None, "test").into();
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode =
        if shape.double { PercentEncodingMode::Double } else { PercentEncodingMode::Single };
    settings.uri_path_normalization_mode =
        if shape.normalised { UriPathNormalizationMode::Enabled } else { UriPathNormalizationMode::Disabled };
    if shape.s3 {
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    if shape.query {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(3600));
    }
    let params = SigningParams::builder()
        .identity(&identity)
        .region("eu-central-1")
        .name(if shape.s3 { "s3" } else { "service" })
        .time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_027_056))
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let host = "bucket.example.com";
    let mut sent =
        Owned::new("GET", host, &shape.path, &shape.query_of_its_own, &[("x-other", &shape.value)]);
    let url = format!("https://{host}{}?{}", shape.path, shape.query_of_its_own);
    let body = match shape.unsigned || (shape.query && shape.s3) {
        true => SignableBody::UnsignedPayload,
        false => SignableBody::Bytes(&shape.body),
    };
    let pairs = sent.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let request = SignableRequest::new("GET", url, pairs, body).unwrap();
    let (instructions, _) = sign(request, &params).unwrap().into_parts();
    let (headers, parameters) = instructions.into_parts();
    for header in headers {
        let name: HeaderName = header.name().parse().unwrap();
        sent.headers.append(name, HeaderValue::from_str(header.value()).unwrap());
    }
    for (name, value) in parameters {
        sent.query.push_str(&format!("&{name}={}", encoded(value.as_bytes())));
    }
    sent
}

prop_compose! {
    fn shapes()(
        segments in proptest::collection::vec("([a-zA-Z0-9_.~-]|%20|%2[BFbf]|%C3%A9){1,8}", 0..4),
        query in proptest::collection::vec("[a-z]{1,4}=([a-zA-Z0-9~_.-]|%2[0BF]){0,6}", 1..4),
        value in "[!-~][ -~]{0,20}[!-~]",
        (s3, normalised, in_query, token, unsigned) in any::<(bool, bool, bool, bool, bool)>(),
        body in proptest::collection::vec(any::<u8>(), 0..20),
    ) -> Shape {
        Shape {
            path: format!("/{}", segments.join("/")),
            query_of_its_own: query.join("&"),
            value,
            s3,
            double: !s3,
            normalised: normalised && !s3,
            query: in_query,
            token,
            // Of other services the word must be said in a header, which only S3's settings add.
            unsigned: unsigned && s3,
            body,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_awss_own_signer_signs_verifies_and_is_signed_again(shape in shapes()) {
        again(&by_aws(&shape), SECRET, &shape.body);
    }

    /// The other way round: what is signed here is, byte for byte, what AWS's signer makes of it.
    #[test]
    fn with_the_same_key_the_signature_is_the_same(shape in shapes()) {
        let sent = by_aws(&shape);
        let verified = sent.claim().verify(&sent.request(), SECRET, &shape.body).unwrap();
        let token = sent.claim().token().map(str::to_owned);
        let same = Credentials { key_id: ID, secret: SECRET, token: token.as_deref() };
        let next = sent.signed(verified.sign(&sent.request(), &same, MUCH_LATER).unwrap());
        prop_assert_eq!(next.claim().signature, sent.claim().signature);
    }
}
