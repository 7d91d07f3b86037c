//! The mock provider against ordinary clients, in a network namespace of its own. What the other tests conclude from its
//! log is only as good as this.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

use std::path::Path;
use std::process::{Command, Stdio};

use understudy_integration_tests::mock::{Entry, Log, Request};
use understudy_integration_tests::podman::{Outcome, run};

/// Runs a script beside a mock in a fresh network namespace; `$CA` is the mock's certificate.
fn beside_mock(script: &str) -> (Outcome, Vec<Entry>) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("git")).unwrap();
    let start = r#"
        set -eu
        cd "$1"
        ip link set lo up
        # the address literals are for clients that need no resolver
        export CA="$1/ca.crt" RESOLVE="--resolve a.example:443:127.0.0.1"
        "$2" --dns 53 --tls 443 --tls-http1 8443 --plain 80 --log log --ca-out ca.crt --git-root git &
        mock=$!
        trap 'kill $mock' EXIT
        for _ in $(seq 200); do [ -s ca.crt ] && break; sleep 0.05; done
        eval "$3"
    "#;
    let outcome = run(
        Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", start, "sh"])
            .arg(directory.path())
            .arg(env!("CARGO_BIN_EXE_mock-provider"))
            .arg(script)
            .env_remove("CURL_CA_BUNDLE")
            .env_remove("SSL_CERT_FILE")
            .stderr(Stdio::piped()),
        b"",
    );
    (outcome.unwrap(), Log::read(&directory.path().join("log")).unwrap())
}

fn requests(entries: &[Entry]) -> Vec<&Request> {
    entries
        .iter()
        .filter_map(|entry| if let Entry::Request(request) = entry { Some(&**request) } else { None })
        .collect()
}

#[test]
fn a_request_is_written_down_as_it_came() {
    let (outcome, entries) = beside_mock(
        "curl -sS $RESOLVE --cacert $CA -H 'x-api-key: one' -H 'X-Api-Key: two' -d body 'https://a.example/echo?q=1'",
    );
    let answer = outcome.success().unwrap();
    assert!(answer.contains(r#"["x-api-key","two"]"#), "{answer}");
    let requests = requests(&entries);
    let [request] = requests[..] else { panic!("{entries:?}") };
    assert_eq!((request.sni.as_deref(), request.alpn.as_deref()), (Some("a.example"), Some("h2")));
    assert_eq!(
        (request.method.as_str(), request.path.as_str(), request.query.as_deref()),
        ("POST", "/echo", Some("q=1"))
    );
    assert_eq!(request.headers.iter().filter(|(name, _)| name == "x-api-key").count(), 2);
    assert_eq!((request.body_length, request.body_start.as_str()), (4, "body"));
}

#[test]
fn http1_is_spoken_where_nothing_else_is_offered() {
    let (outcome, entries) = beside_mock(
        "curl -sS --resolve a.example:8443:127.0.0.1 --cacert $CA https://a.example:8443/status/418 -o /dev/null -w '%{http_code}'",
    );
    assert_eq!(outcome.success().unwrap(), "418");
    assert_eq!(requests(&entries)[0].version, "HTTP/1.1");
}

#[test]
fn a_client_that_does_not_trust_the_authority_shows_in_the_log() {
    // curl may be gone before the mock has noticed.
    let (outcome, entries) = beside_mock(
        "curl -sS $RESOLVE https://a.example/echo || echo refused; for _ in $(seq 200); do grep -q 443 log && grep -qi failed log && break; sleep 0.05; done",
    );
    assert!(outcome.stdout.contains("refused"));
    assert!(requests(&entries).is_empty());
    assert!(entries.iter().any(|entry| matches!(entry, Entry::Failed { port: 443, .. })), "{entries:?}");
}

#[test]
fn every_query_is_counted() {
    let ask = r#"python3 -c '
import socket, struct
q = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\4leak\7example\0\0\1\0\1"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(q, ("127.0.0.1", 53)); a = u.recv(512)
t = socket.create_connection(("127.0.0.1", 53)); t.sendall(struct.pack(">H", len(q)) + q); b = t.recv(512)[2:]
assert a == b and a[-4:] == bytes([127, 0, 0, 1]), (a, b)'"#;
    let (outcome, entries) = beside_mock(ask);
    outcome.success().unwrap();
    let queries: Vec<_> = entries
        .iter()
        .filter_map(|entry| {
            if let Entry::Query { transport, name, qtype } = entry {
                Some((&transport[..], &name[..], *qtype))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(queries, [("udp", "leak.example", 1), ("tcp", "leak.example", 1)]);
}

#[test]
fn uploads_and_downloads_are_whole() {
    let (outcome, _) = beside_mock(
        "head -c 3000000 /dev/zero | curl -sS --cacert $CA $RESOLVE -T - https://a.example/upload; echo
         curl -sS --cacert $CA $RESOLVE https://a.example/bytes/300000 | python3 -c '
import sys; d = sys.stdin.buffer.read(); assert d == bytes(i % 251 for i in range(300000)); print(\"same\")'",
    );
    let text = outcome.success().unwrap();
    assert!(text.contains("35bce4eae54ec8e6cc2868baa8d157914d6ae2858811b4cc0c078c94460fa26f"), "{text}");
    assert!(text.contains("same"));
}

#[test]
fn a_repository_is_cloned_and_pushed_to() {
    let (outcome, entries) = beside_mock(
        "git init -q --bare -b main git/r.git
         git init -q -b main w; cd w; echo one >f; git add f
         export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.invalid GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.invalid
         git commit -q -m one
         git push -q http://127.0.0.1/git/r.git main
         git clone -q http://127.0.0.1/git/r.git ../c && cat ../c/f",
    );
    assert_eq!(outcome.success().unwrap(), "one\n");
    assert!(requests(&entries).iter().any(|request| request.path.ends_with("/git-receive-pack")));
}

#[test]
fn a_websocket_sends_back() {
    let (outcome, _) = beside_mock(&format!(
        "python3 {}",
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/websocket.py").display()
    ));
    assert_eq!(outcome.success().unwrap(), "hello\n");
}

#[test]
fn events_come_one_by_one() {
    let (outcome, _) = beside_mock("curl -sSN 'http://127.0.0.1/sse?n=3&gap=10'");
    let text = outcome.success().unwrap();
    assert_eq!(text.matches("event: tick").count(), 3, "{text}");
}

#[test]
fn the_api_answers_as_a_stream_and_whole() {
    let (outcome, _) = beside_mock(
        r#"curl -sS http://127.0.0.1/v1/messages -H 'x-api-key: k' -d '{"model":"m","stream":true}'
           curl -sS http://127.0.0.1/v1/messages -H 'authorization: Bearer k' -d '{"model":"m"}'"#,
    );
    let text = outcome.success().unwrap();
    assert!(text.contains("event: message_stop") && text.contains("MOCK-OK from x-api-key"), "{text}");
    assert!(text.contains("MOCK-OK from bearer"), "{text}");
}
