//! Requests that are signed: what AWS's own signer signs with the stand-in arrives signed with the real key, in every form
//! and over every pair of versions; all else is refused as clients of AWS read it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use understudy::credentials::{Catalogue, InstallationKey, KnownStandIns, Loading, Surroundings, Vault};
use understudy_sigv4::{Request, claim};

use crate::client::{Client, H1, H2, WAYS, full, whole};
use crate::upstream::{self, Protocols};
use crate::world::{HOST, Options, World};

const REAL_ID: &str = "AKIAREALREALREAL2345";
const REAL_SECRET: &str = "rEaL/secret+access/key0123456789abcdefgh";
const REAL_TOKEN: &str = "IQoJb3JpZ2luX2Vj-the-real-token-of-a-session/0123456789==";
/// Of a session, as a credential_process tells it.
const VALUE: &str = r#"{"Version": 1, "AccessKeyId": "AKIAREALREALREAL2345",
    "SecretAccessKey": "rEaL/secret+access/key0123456789abcdefgh",
    "SessionToken": "IQoJb3JpZ2luX2Vj-the-real-token-of-a-session/0123456789=="}"#;
/// Without one, as `aws configure` writes it.
const STATIC: &str = "[default]\naws_access_key_id = AKIAREALREALREAL2345\naws_secret_access_key=rEaL/secret+access/key0123456789abcdefgh\n";
const KEY: &str = "kind = \"aws\"\nservices = [\"s3\", \"dynamodb\", \"sts\"]\nregions = \"eu-central-1\"";

async fn world(protocols: Protocols) -> World {
    World::with(Options { protocols, provider: KEY, value: VALUE, ..Options::default() }).await
}

/// The stand-in's id, secret and token.
fn stand_in(world: &World) -> [String; 3] {
    let vault = world.vault.current();
    let secret = vault.secret("provider").unwrap();
    let key = secret.aws_key().unwrap();
    [key.stand_in_id().to_owned(), secret.stand_in().to_owned(), key.stand_in_token().to_owned()]
}

/// What a client sends.
#[derive(Clone)]
struct Sent {
    method: &'static str,
    path: String,
    service: &'static str,
    region: &'static str,
    presigned: bool,
    /// Instead of the body's hash.
    payload: Option<&'static str>,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    age: Duration,
}

impl Default for Sent {
    fn default() -> Self {
        Self {
            method: "GET",
            path: "/hello".to_owned(),
            service: "s3",
            region: "eu-central-1",
            presigned: false,
            payload: None,
            headers: Vec::new(),
            body: Bytes::new(),
            age: Duration::ZERO,
        }
    }
}

impl Sent {
    /// Path with query, and headers, as AWS's SDK for Rust signs it.
    fn signed(&self, [id, secret, token]: &[String; 3]) -> (String, Vec<(String, String)>) {
        let token = Some(token.clone()).filter(|token| !token.is_empty());
        let identity = Credentials::new(id, secret, token, None, "test").into();
        let s3 = self.service == "s3";
        let mut settings = SigningSettings::default();
        if s3 {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        if self.presigned {
            settings.signature_location = SignatureLocation::QueryParams;
            settings.expires_in = Some(Duration::from_secs(60));
        }
        let params = SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(SystemTime::now() - self.age)
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let body = match self.payload {
            Some(word) => SignableBody::Precomputed(word.to_owned()),
            None if self.presigned => SignableBody::UnsignedPayload,
            None => SignableBody::Bytes(&self.body),
        };
        let pairs = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let url = format!("https://{HOST}{}", self.path);
        let request = SignableRequest::new(self.method, &url, pairs, body).unwrap();
        let (headers, parameters) = sign(request, &params).unwrap().into_parts().0.into_parts();
        let mut path = self.path.clone();
        for (name, value) in parameters {
            let between = if path.contains('?') { '&' } else { '?' };
            let value = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC);
            path.push_str(&format!("{between}{name}={}", value.to_string().replace("%2D", "-")));
        }
        let own = self.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let of_signer = headers.iter().map(|header| (header.name().to_owned(), header.value().to_owned()));
        (path, own.chain(of_signer).collect())
    }

    async fn send(&self, world: &World, alpn: &[&[u8]]) -> (StatusCode, HeaderMap, String) {
        let (path, headers) = self.signed(&stand_in(world));
        self.send_as(world, alpn, &path, &headers).await
    }

    async fn send_as(
        &self,
        world: &World,
        alpn: &[&[u8]],
        path: &str,
        headers: &[(String, String)],
    ) -> (StatusCode, HeaderMap, String) {
        let mut client = Client::new(world, alpn).await;
        let mut request = client.request(path).method(self.method);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = client.send(request.body(full(self.body.clone())).unwrap()).await.unwrap();
        let (parts, body) = whole(answer).await;
        (parts.status, parts.headers, String::from_utf8_lossy(&body).into_owned())
    }
}

/// Checks what arrived as the service would, and that nothing of the stand-in is in it.
fn arrived(world: &World, body: &[u8], token: Option<&str>) -> http::request::Parts {
    let seen = world.upstream.last();
    let host = seen.headers.get("host").map_or(HOST, |host| host.to_str().unwrap()).to_owned();
    let request = Request {
        method: seen.method.as_str(),
        path: seen.uri.path(),
        query: seen.uri.query().unwrap_or_default(),
        host: &host,
        headers: &seen.headers,
    };
    let claim = claim(&request).unwrap().unwrap();
    assert_eq!((claim.key_id(), claim.token()), (REAL_ID, token));
    claim.verify(&request, REAL_SECRET, body).unwrap();
    let whole = format!("{seen:?}{:?}", seen.headers.get("authorization"));
    for stand_in in stand_in(world) {
        assert!(!whole.contains(&stand_in), "{whole}");
    }
    assert!(!whole.contains(REAL_SECRET));
    seen
}

#[tokio::test]
async fn what_is_signed_with_the_stand_in_arrives_signed_with_the_key() {
    for (alpn, protocols) in WAYS {
        for presigned in [false, true] {
            let world = world(protocols).await;
            let headers = vec![
                ("range", "bytes=0-3".to_owned()),
                ("x-amz-meta-words", "several  words ".to_owned()),
                ("accept-encoding", "gzip".to_owned()),
            ];
            let path = "/bucket/a%20b//c(1)?list-type=2&prefix=a%2Fb&acl".to_owned();
            let sent = Sent { path, headers, presigned, ..Sent::default() };
            let (status, _, body) = sent.send(&world, alpn).await;
            assert_eq!(status, 200, "{body}");
            let seen = arrived(&world, b"", Some(REAL_TOKEN));
            assert_eq!(seen.headers["range"], "bytes=0-3");
            assert_eq!(seen.headers["accept-encoding"], "identity");
            assert_eq!(seen.uri.path(), "/bucket/a%20b//c(1)");
            let line = world.only_line().await;
            assert_eq!((&line["decision"], &line["secrets"][0]), (&"allowed".into(), &"provider".into()));
            let audit = world.audit_text();
            for value in [REAL_ID, REAL_SECRET, REAL_TOKEN] {
                assert!(!audit.contains(value), "{audit}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_without_a_session_takes_the_stand_ins_token_away() {
    let world = World::with(Options { provider: KEY, value: STATIC, ..Options::default() }).await;
    for presigned in [false, true] {
        let (status, _, body) = Sent { presigned, ..Sent::default() }.send(&world, H1).await;
        assert_eq!(status, 200, "{body}");
        let seen = arrived(&world, b"", None);
        assert!(!seen.headers.contains_key("x-amz-security-token"));
    }
}

/// What clients send today: the trailer is in the body, and nothing of it changes.
#[tokio::test]
async fn an_upload_with_a_trailer_arrives_byte_by_byte() {
    let data = upstream::pattern(1 << 20);
    let mut body = format!("{:x}\r\n", data.len()).into_bytes();
    body.extend_from_slice(&data);
    body.extend_from_slice(b"\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    for (alpn, protocols) in WAYS {
        let world = world(protocols).await;
        let sent = Sent {
            method: "PUT",
            path: "/sink".to_owned(),
            payload: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            headers: vec![
                ("content-encoding", "aws-chunked".to_owned()),
                ("x-amz-trailer", "x-amz-checksum-crc32".to_owned()),
                ("x-amz-decoded-content-length", data.len().to_string()),
            ],
            body: body.clone().into(),
            ..Sent::default()
        };
        assert_eq!(sent.send(&world, alpn).await.0, 200);
        arrived(&world, b"not looked at", Some(REAL_TOKEN));
        assert!(*world.upstream.seen.received.lock().unwrap() == body, "{protocols:?}");
    }
}

/// Services other than S3 state no hash of the body: it is read before anything is sent.
#[tokio::test]
async fn a_body_whose_hash_is_signed_is_read_first() {
    let body = "{\"TableName\":\"things\"}";
    for (alpn, protocols) in WAYS {
        let world = world(protocols).await;
        let sent = Sent {
            method: "POST",
            path: "/upload".to_owned(),
            service: "dynamodb",
            headers: vec![
                ("x-amz-target", "DynamoDB_20120810.DescribeTable".to_owned()),
                ("content-type", "application/x-amz-json-1.0".to_owned()),
            ],
            body: body.into(),
            ..Sent::default()
        };
        let (status, _, answer) = sent.send(&world, alpn).await;
        assert_eq!((status.as_u16(), answer), (200, upstream::digest(body.as_bytes())));
        arrived(&world, body.as_bytes(), Some(REAL_TOKEN));
        let (path, headers) = sent.signed(&stand_in(&world));
        let other = Sent { body: "{\"TableName\":\"others\"}".into(), ..sent };
        let (status, headers, answer) = other.send_as(&world, alpn, &path, &headers).await;
        assert_eq!((status.as_u16(), &headers["x-understudy-reason"]), (403, &"not-signed".parse().unwrap()));
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["__type"], "SignatureDoesNotMatch");
        assert_eq!(world.upstream.requests(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_repeats_the_id_or_the_token_has_the_stand_ins() {
    for alpn in [H1, H2] {
        let world = world(Protocols::Both).await;
        let sent = Sent { path: "/repeat".to_owned(), ..Sent::default() };
        let (status, headers, body) = sent.send(&world, alpn).await;
        assert_eq!(status, 200);
        let [id, ..] = stand_in(&world);
        for text in [headers["x-echo"].to_str().unwrap(), &body] {
            assert!(text.contains(&id) && !text.contains(REAL_ID), "{text}");
        }
        let sent = Sent { path: "/echo".to_owned(), method: "POST", body: "x".into(), ..Sent::default() };
        assert_eq!(sent.send(&world, alpn).await.2, "x");
    }
}

/// Status, reason and what the answer says; nothing goes upstream.
async fn refused(
    world: &World,
    sent: &Sent,
    path: &str,
    headers: &[(String, String)],
) -> (u16, String, String) {
    let before = world.upstream.requests();
    let (status, answered, body) = sent.send_as(world, H1, path, headers).await;
    assert_eq!(world.upstream.requests(), before, "{body}");
    for value in [REAL_ID, REAL_SECRET, REAL_TOKEN] {
        assert!(!body.contains(value), "{body}");
    }
    (status.as_u16(), answered["x-understudy-reason"].to_str().unwrap().to_owned(), body)
}

#[tokio::test]
async fn what_is_not_signed_so_is_refused_as_clients_read_it() {
    let world = world(Protocols::Http1).await;
    let own = stand_in(&world);
    let sent = Sent::default();
    let of = |sent: &Sent, key: &[String; 3]| sent.signed(key);
    let with = |change: &dyn Fn(&mut [String; 3])| {
        let mut key = own.clone();
        change(&mut key);
        key
    };
    let chunks = Sent { payload: Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), ..sent.clone() };
    let old = Sent { age: Duration::from_secs(1000), ..sent.clone() };
    let cases = [
        (sent.clone(), with(&|key| key[1] = "x".repeat(40)), 403, "not-signed", "SignatureDoesNotMatch"),
        (
            sent.clone(),
            with(&|key| key[0] = "AKIAZZZZZZZZZZZZ2345".to_owned()),
            403,
            "foreign-credential",
            "AccessDenied",
        ),
        (
            sent.clone(),
            with(&|key| key[0] = "some-other-key-of-a-store".to_owned()),
            403,
            "foreign-credential",
            "AccessDenied",
        ),
        (
            sent.clone(),
            with(&|key| key[2] = "another-token-of-somebody".to_owned()),
            403,
            "foreign-credential",
            "AccessDenied",
        ),
        (sent.clone(), with(&|key| key[0] = REAL_ID.to_owned()), 403, "real-credential", "AccessDenied"),
        (chunks, own.clone(), 403, "signing-unsupported", "NotImplemented"),
        (old, own.clone(), 403, "not-signed", "15 minutes"),
        (
            Sent { age: Duration::from_secs(90), presigned: true, ..sent.clone() },
            own.clone(),
            403,
            "not-signed",
            "has expired",
        ),
        (Sent { service: "ec2", ..sent.clone() }, own.clone(), 403, "credential-restricted", "`services`"),
        (
            Sent { region: "us-east-1", ..sent.clone() },
            own.clone(),
            403,
            "credential-restricted",
            "`regions`",
        ),
        (Sent { service: "sts", ..sent.clone() }, own.clone(), 403, "credential-minting", "<ErrorResponse>"),
        // A store may have STS at its root, and take a signature for S3 there.
        (
            Sent { method: "POST", path: "/".to_owned(), ..sent.clone() },
            own.clone(),
            403,
            "credential-minting",
            "`minting = [\"sts\"]`",
        ),
        (
            Sent { path: "/?Action=GetSessionToken".to_owned(), ..sent.clone() },
            own.clone(),
            403,
            "credential-minting",
            "`s3` can create",
        ),
        // However it is written, and whatever it was signed for.
        (
            Sent { path: "/?%41ction=GetSessionToken".to_owned(), ..sent.clone() },
            own.clone(),
            403,
            "credential-minting",
            "`s3` can create",
        ),
        (
            Sent { method: "PUT", path: "/minio/admin/v3/add-user".to_owned(), ..sent.clone() },
            own.clone(),
            403,
            "credential-minting",
            "`minting = [\"api-key\"]`",
        ),
        (
            Sent { headers: vec![("x_amz_copy_source", "/other/key".to_owned())], ..sent.clone() },
            own.clone(),
            400,
            "malformed",
            "write `-` for `_`",
        ),
    ];
    for (sent, key, status, reason, said) in cases {
        for presigned in [false, true] {
            let sent = Sent { presigned: presigned || sent.presigned, ..sent.clone() };
            if presigned && (sent.age.as_secs() == 1000 || sent.payload.is_some()) {
                continue;
            }
            let (path, headers) = of(&sent, &key);
            let found = refused(&world, &sent, &path, &headers).await;
            assert_eq!((found.0, found.1.as_str()), (status, reason), "{}", found.2);
            assert!(found.2.contains(said) && found.2.contains("understudy: "), "{}", found.2);
        }
    }
    // Changed after it was signed; not at all; by a key of several regions; twice.
    let (path, headers) = of(&sent, &own);
    let (status, reason, body) = refused(&world, &sent, "/other", &headers).await;
    assert_eq!((status, reason.as_str()), (403, "not-signed"), "{body}");
    assert!(body.starts_with("<?xml") && body.contains("<Code>SignatureDoesNotMatch</Code>"), "{body}");
    let (_, reason, body) = refused(&world, &sent, &path, &[]).await;
    assert!(reason == "not-signed" && body.contains("<Error><Code>SignatureDoesNotMatch</Code>"), "{body}");
    let target = [("x-amz-target".to_owned(), "DynamoDB_20120810.ListTables".to_owned())];
    let (_, reason, body) = refused(&world, &sent, &path, &target).await;
    assert!(reason == "not-signed" && body.contains("\"__type\":\"SignatureDoesNotMatch\""), "{body}");
    let of_form = [("content-type".to_owned(), "multipart/form-data; boundary=x".to_owned())];
    let posted = Sent { method: "POST", path: "/bucket".to_owned(), ..sent.clone() };
    let (_, reason, body) = refused(&world, &posted, "/bucket", &of_form).await;
    assert!(reason == "signing-unsupported" && body.contains("upload with PUT"), "{body}");
    let asymmetric: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.clone(), value.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")))
        .collect();
    let (_, reason, body) = refused(&world, &sent, &path, &asymmetric).await;
    assert!(reason == "signing-unsupported" && body.contains("AWS_AUTH_SCHEME_PREFERENCE=sigv4"), "{body}");
    let (presigned, _) = of(&Sent { presigned: true, ..sent.clone() }, &own);
    assert_eq!(refused(&world, &sent, &presigned, &headers).await.1, "not-signed");
}

#[tokio::test]
async fn stand_ins_stand_nowhere_but_in_the_signature() {
    let world = world(Protocols::Http1).await;
    let own = stand_in(&world);
    for part in &own {
        let sent = Sent { headers: vec![("x-amz-meta-a", part.clone())], ..Sent::default() };
        let (path, headers) = sent.signed(&own);
        assert_eq!(refused(&world, &sent, &path, &headers).await.1, "credential-misplaced", "{part}");
        let sent = Sent { path: format!("/hello?a={part}"), presigned: true, ..Sent::default() };
        let (path, headers) = sent.signed(&own);
        assert_eq!(refused(&world, &sent, &path, &headers).await.1, "credential-misplaced", "{part}");
    }
    let sent = Sent { headers: vec![("x-api-key", "a-key-of-somebody".to_owned())], ..Sent::default() };
    let (path, headers) = sent.signed(&own);
    assert_eq!(refused(&world, &sent, &path, &headers).await.1, "foreign-credential");
}

#[tokio::test]
async fn buckets_are_held_to() {
    let provider = "kind = \"aws\"\nservices = \"s3\"\nbuckets = [\"mine\", \"team-*\"]";
    let world = World::with(Options { provider, value: VALUE, ..Options::default() }).await;
    let own = stand_in(&world);
    for path in ["/mine/key", "/mine?list-type=2", "/team-a/b%20c"] {
        let sent = Sent { path: path.to_owned(), ..Sent::default() };
        assert_eq!(sent.send(&world, H1).await.0, 200, "{path}");
    }
    let copy = |from: &str| vec![("x-amz-copy-source", from.to_owned())];
    let sent =
        Sent { method: "PUT", path: "/mine/new".to_owned(), headers: copy("/team-b/old"), ..Sent::default() };
    assert_eq!(sent.send(&world, H1).await.0, 200);
    for (path, headers) in [
        ("/", Vec::new()),
        ("/others/key", Vec::new()),
        ("/mine/../others/key", Vec::new()),
        ("/mine/%2e%2e/others/key", Vec::new()),
        ("/mine/new", copy("/others/old")),
        ("/mine/new", copy("mine%2F..%2F..%2Fothers/old")),
        // Stores read headers of theirs from the query, too.
        ("/mine/new?X-Amz-Copy-Source=others/key", Vec::new()),
        ("/mine/new?x%2Damz-copy-source=%2Fothers%2Fkey", Vec::new()),
        ("/mine/new?x-amz-copy-source=mine/a&x-amz-copy-source=others/b", copy("/mine/old")),
        ("/mine/new?x-amz-copy-source", Vec::new()),
    ] {
        for presigned in [false, true] {
            let (path, headers) = (path.to_owned(), headers.clone());
            let sent = Sent { method: "PUT", path, headers, presigned, ..Sent::default() };
            let (path, headers) = sent.signed(&own);
            let (_, reason, body) = refused(&world, &sent, &path, &headers).await;
            assert!(reason == "credential-restricted" && body.contains("buckets"), "{path}: {body}");
        }
    }
    let path = "/mine/new?x-amz-copy-source=mine/old".to_owned();
    let sent = Sent { method: "PUT", path, presigned: true, ..Sent::default() };
    assert_eq!(sent.send(&world, H1).await.0, 200);
}

/// An object that was stored so: decoded, its checksums would be wrong, and a part of it cannot be decoded at all.
#[tokio::test]
async fn an_encoded_object_arrives_as_it_is_stored() {
    let world = world(Protocols::Http1).await;
    for status in ["200", "206"] {
        let headers = vec![("x-status", status.to_owned()), ("range", "bytes=0-9999".to_owned())];
        let sent = Sent { path: "/reflect/gzip/0".to_owned(), headers, ..Sent::default() };
        let (answered, headers, _) = sent.send(&world, H1).await;
        assert_eq!((answered.as_str(), &headers["content-encoding"]), (status, &"gzip".parse().unwrap()));
        assert_eq!(headers["etag"], "\"tag\"");
    }
}

/// It is read, and not decoded as others are: its hash is of what was sent.
#[tokio::test]
async fn an_encoded_body_goes_on_as_it_was_signed() {
    let world = world(Protocols::Http1).await;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, b"{\"TableName\":\"things\"}").unwrap();
    let body = Bytes::from(encoder.finish().unwrap());
    let headers =
        vec![("content-encoding", "gzip".to_owned()), ("content-type", "application/json".to_owned())];
    let (method, path) = ("POST", "/upload".to_owned());
    let sent = Sent { method, path, service: "dynamodb", headers, body: body.clone(), ..Sent::default() };
    let (status, _, answer) = sent.send(&world, H1).await;
    assert_eq!((status.as_u16(), answer), (200, upstream::digest(&body)));
    assert_eq!(arrived(&world, &body, Some(REAL_TOKEN)).headers["content-encoding"], "gzip");
}

/// As one credential_process after the other tells it.
fn key_of_session(number: u32) -> String {
    format!(
        "{{\"Version\": 1, \"AccessKeyId\": \"AKIASESSIONSESSIO{number:03}\", \"SecretAccessKey\": \"secret+access/key/of/the/session/number/{number:03}\", \
         \"SessionToken\": \"IQoJb3JpZ2luX2Vj-the-token-of-session-{number:03}\", \"Expiration\": \"2999-01-31T12:00:00Z\"}}"
    )
}

#[tokio::test]
async fn a_key_that_is_renewed_signs_the_next_request_and_one_that_cannot_be_signs_on() {
    let world = world(Protocols::Http1).await;
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told.json");
    // What it caches is asked again after a second, as what expires is ahead of that.
    let declared = format!(
        "[provider]\n{KEY}\ncommand = [\"cat\", {told:?}]\ncache = 1\nhosts = {HOST:?}\n\
         grant-to = {{ harnesses = [\"generic\"] }}\n"
    );
    std::fs::write(directory.path().join("secrets.toml"), declared).unwrap();
    let key = InstallationKey::from_bytes(&[7; 32]);
    let around = Surroundings { host_run: true, ..Surroundings::default() };
    // As the sidecar does it whenever a value is outdated.
    let look = || {
        let before = world.vault.current();
        if before.secret("provider").is_some_and(|secret| secret.aws_key().unwrap().expires().is_some())
            && !before.is_outdated(Instant::now())
        {
            return false;
        }
        let catalogue = &Arc::new(Catalogue::new([]).unwrap());
        let (known, previous) = (&KnownStandIns::default(), Some(&*before));
        let loading = Loading { catalogue, key: &key, around: &around, known, previous, ask_again: false };
        let new = Vault::load(&directory.path().join("secrets.toml"), loading).unwrap();
        world.vault.replace(Arc::new(new));
        true
    };
    let own = stand_in(&world);
    // In one round it fails: what is in force stays so, and is asked for again in its time.
    for (said, signs) in [(Some(1), 1), (Some(2), 2), (None, 2), (Some(3), 3)] {
        match said {
            Some(number) => std::fs::write(&told, key_of_session(number)).unwrap(),
            None => std::fs::remove_file(&told).unwrap(),
        }
        while !look() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let secret = world.vault.current().secret("provider").unwrap().stale().map(str::to_owned);
        assert_eq!(secret.is_some(), said.is_none(), "{secret:?}");
        // The container has what it was given at first.
        assert_eq!(stand_in(&world), own);
        let (path, headers) = Sent::default().signed(&own);
        let (status, _, body) = Sent::default().send_as(&world, H1, &path, &headers).await;
        assert_eq!(status, 200, "{body}");
        let seen = world.upstream.last();
        let request = Request {
            method: "GET",
            path: seen.uri.path(),
            query: "",
            host: seen.headers["host"].to_str().unwrap(),
            headers: &seen.headers,
        };
        let claim = claim(&request).unwrap().unwrap();
        assert_eq!(claim.key_id(), format!("AKIASESSIONSESSIO{signs:03}"));
        assert_eq!(claim.token(), Some(&*format!("IQoJb3JpZ2luX2Vj-the-token-of-session-{signs:03}")));
        claim.verify(&request, &format!("secret+access/key/of/the/session/number/{signs:03}"), b"").unwrap();
    }
}
