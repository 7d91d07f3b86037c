//! What a key of AWS may be used for: whatever a store makes of the request, it is about a bucket that was declared, and
//! what makes credentials there is told.
#![no_main]

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use percent_encoding::percent_decode;
use understudy::credentials::{Catalogue, Declaration, RequestHead, declaration};
use understudy_policies::HostName;
use understudy_sigv4::Scope;

const SECRETS: &str = r#"
[store]
kind = "aws"
file = "/run/secrets/store"
hosts = ["store.example.com", "*.store.example.com", "*.amazonaws.com"]
services = ["s3", "sts"]
buckets = "mine"
grant-to = { harnesses = ["generic"] }
"#;
const HOSTS: [&str; 6] = [
    "store.example.com",
    "mine.store.example.com",
    "others.store.example.com",
    "s3.eu-central-1.amazonaws.com",
    "others.s3.eu-central-1.amazonaws.com",
    "store.eu-central-1.elb.amazonaws.com",
];
const METHODS: [Method; 3] = [Method::GET, Method::PUT, Method::POST];
const COPY: &str = "x-amz-copy-source";

static DECLARED: LazyLock<Option<Declaration>> = LazyLock::new(|| {
    let catalogue = Catalogue::new([]).ok()?;
    declaration::parse("secrets.toml", SECRETS, &catalogue).ok()?.into_iter().next()
});

fuzz_target!(|input: (u8, u8, bool, String, Vec<Vec<u8>>)| {
    let Some(declared) = DECLARED.as_ref() else { panic!("the declaration is broken") };
    let Some(binding) = &declared.aws else { panic!("no binding") };
    let (host, method, is_sts, target, sources) = input;
    let name = HOSTS[usize::from(host) % HOSTS.len()];
    let Ok(host) = name.parse::<HostName>() else { panic!("a host") };
    let method = METHODS[usize::from(method) % METHODS.len()].clone();
    let Ok(uri) = format!("/{target}").parse::<Uri>() else { return };
    let mut headers = HeaderMap::new();
    for value in sources.iter().filter_map(|source| HeaderValue::from_bytes(source).ok()) {
        headers.append(COPY, value);
    }
    let service = if is_sts { "sts" } else { "s3" }.to_owned();
    let scope = Scope { date: "20261130".to_owned(), region: "eu-central-1".to_owned(), service };
    let head = RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
    let fits = binding.check(&scope, &head, &declared.hosts).is_ok();
    let creates = binding.creates(&scope, &head, &declared.hosts);
    let amazon = name.contains(".s3.") || name.starts_with("s3.");
    let path = decoded(uri.path().as_bytes());
    if !amazon && method == Method::POST && path.iter().all(|byte| *byte == b'/') {
        assert!(creates.is_some(), "a root");
    }
    if !amazon && path.starts_with(b"/minio/admin/") {
        assert!(creates.is_some(), "an interface of administrators");
    }
    // Amazon holds a signature to its service, and what a root does for STS is about no bucket.
    if !fits || is_sts && (amazon || method == Method::POST && uri.path() == "/") {
        return;
    }
    match name.split_once('.') {
        Some((bucket @ ("mine" | "others"), _)) => assert_eq!(bucket, "mine"),
        _ => assert!(is_in_mine(&path), "the path"),
    }
    for source in headers.get_all(COPY) {
        assert!(is_in_mine(&decoded(source.as_bytes())), "a header");
    }
    for (name, value) in uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')) {
        if decoded(name.as_bytes()).eq_ignore_ascii_case(COPY.as_bytes()) {
            assert!(is_in_mine(&decoded(&decoded(value.as_bytes()))), "a parameter");
        }
    }
});

fn decoded(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

/// As a server does that follows dot segments.
fn is_in_mine(path: &[u8]) -> bool {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
        match segment {
            b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    // What a source says of a version comes behind the key.
    segments.first().is_some_and(|first| first.split(|byte| *byte == b'?').next() == Some(b"mine"))
}
