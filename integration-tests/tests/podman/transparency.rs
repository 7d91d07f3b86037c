//! A service sees what a client with the real key would have sent to it directly, and the client what it would have answered.

use std::collections::BTreeMap;

use understudy_integration_tests::mock::Request;
use understudy_integration_tests::stand::{Agent, GENERIC};

use crate::stand;

/// What a request is made of, besides the URL; `$KEY` is the key.
const CASES: [(&str, &str, &str); 11] = [
    ("get", "/bytes/1000", ""),
    (
        "headers",
        "/bytes/1000",
        "-H 'Accept-Language: de, en;q=0.5' -H 'X-A: 1' -H 'X-A: 2' -H 'X-Empty;' -H 'Cookie: a=b; c=\"d e\"' -A agent/1.0",
    ),
    ("compressed", "/bytes/1000", "-H 'Accept-Encoding: gzip, br'"),
    ("head", "/bytes/1000", "--head"),
    ("delete", "/bytes/1000", "-X DELETE"),
    ("options", "/bytes/1000", "-X OPTIONS -H 'Origin: https://shop.example'"),
    ("post", "/upload", "--data-binary @/bin/bash -H 'Content-Type: application/octet-stream'"),
    ("chunked", "/upload", "-T - </bin/bash"),
    ("expect", "/upload", "-T /bin/bash -H 'Expect: 100-continue'"),
    ("unchanged", "/status/304", "-H 'If-None-Match: \"one\"'"),
    ("nothing", "/status/204", "-X POST -d x=y"),
];

/// What differs on purpose, as docs/clients.md lists it: what an answer may be encoded in, and that a client waits for 100
/// before its body, which over HTTP/2 the sidecar answers itself.
fn changed(request: &Request) -> &'static [&'static str] {
    if request.version == "HTTP/2.0" { &["accept-encoding", "expect"] } else { &["accept-encoding"] }
}

fn curl(version: &str, (name, path, options): (&str, &str, &str), direct: bool) -> String {
    let directly = "--cacert /ca.crt --resolve api.example:443:127.0.0.1";
    format!(
        "curl -sSi --path-as-is {version} {} -H \"x-api-key: $KEY\" 'https://api.example{path}?{name}{version}' {options}",
        if direct { directly } else { "" }
    )
}

/// Every case through the sidecar and directly; the answers, without what changes from one to the next.
fn answers(version: &str) -> [Vec<String>; 2] {
    let stand = stand();
    let script = |direct| {
        let cases = CASES.map(|case| format!("{}; echo; echo ---", curl(version, case, direct)));
        cases.join("; ")
    };
    let keyed = Agent::generic().annotation("understudy.secrets", GENERIC);
    let through = keyed.shell(&format!("export KEY=$EXAMPLE_API_KEY; {}", script(false)));
    let authority = format!("--volume={}:/ca.crt:ro", stand.paths.world.join("ca.crt").display());
    let key = format!("--env=KEY={}", stand.secrets.generic);
    let outside = Agent::plain().option(&stand.world_network()).option(&authority).option(&key);
    let direct = outside.shell(&script(true));
    [through, direct].map(|outcome| {
        let text = outcome.unwrap().success().unwrap();
        text.split("\n---\n").map(stable).collect()
    })
}

/// An answer, and what came before it, with heads in an order of their own, without the time and what is about the
/// connection to the next hop alone.
fn stable(answer: &str) -> String {
    let mut rest = answer.trim_start();
    let mut heads = Vec::new();
    while let Some((head, body)) = rest.split_once("\r\n\r\n").filter(|_| rest.starts_with("HTTP/")) {
        let mut lines: Vec<_> = head.lines().map(str::to_ascii_lowercase).collect();
        lines.retain(|line| !line.starts_with("date: ") && !line.starts_with("connection: "));
        lines.sort_unstable();
        heads.push(lines.join("\n"));
        rest = body;
    }
    format!("{}\n\n{rest}", heads.join("\n\n"))
}

/// All that a service can tell one request from another by.
fn seen(request: &Request) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &request.headers {
        seen.entry(name.clone()).or_default().push(value.clone());
    }
    for name in changed(request) {
        seen.remove(*name);
    }
    let body = [request.body_length.to_string(), request.body_sha256.clone()];
    let line = [&request.version, &request.method, &request.host, &request.path].map(Clone::clone);
    seen.insert(":line".to_owned(), line.to_vec());
    seen.insert(":body".to_owned(), body.to_vec());
    seen
}

fn compare(version: &str) {
    let [through, direct] = answers(version);
    for ((case, through), direct) in CASES.iter().zip(&through).zip(&direct) {
        assert_eq!(through, direct, "the answer to {}", case.0);
    }
    for (name, path, _) in CASES {
        let query = format!("{name}{version}");
        let requests = stand().requests(path).unwrap();
        let of_case: Vec<_> =
            requests.iter().filter(|request| request.query.as_ref() == Some(&query)).collect();
        let [through, direct] = of_case[..] else { panic!("{name}: {of_case:?}") };
        assert_eq!(seen(through), seen(direct), "{name}");
    }
}

#[test]
fn over_http2() {
    compare("--http2");
}

#[test]
fn over_http1() {
    compare("--http1.1");
}
