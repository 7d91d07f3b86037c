//! Hellos and requests that are broken on purpose: nothing hangs, nothing leaves, and the sidecar goes on.

use understudy_integration_tests::mock::Entry;
use understudy_integration_tests::stand::Agent;

use crate::{assert_nothing_arrived, python, stand};

/// Each line is a way to begin a connection to an allowed host; every one must end, and none may be served.
const CONNECTIONS: &str = r#"
import os, socket, ssl, struct, time
def hello(name):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try: session.do_handshake()
    except ssl.SSLWantReadError: pass
    return outgoing.read()
good = hello("other.example")
nul = good.replace(b"other.example", b"other\0example")
control = good.replace(b"other.example", b"other\r\nxample")
latin = good.replace(b"other.example", b"other.exampl\xe9")
mismatch = good.replace(b"other.example", b"evils.example")
cases = {
    "truncated hello": good[:len(good) // 2],
    "huge record": b"\x16\x03\x01\xff\xff" + os.urandom(70000),
    "huge handshake": b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"\0" * 16381,
    "empty records": b"\x16\x03\x01\x00\x00" * 20000,
    "no name": hello(None),
    "NUL in the name": nul, "line break in the name": control, "not ASCII": latin, "another name": mismatch,
    "SSLv2 hello": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\x01\x00\x80" * 7 + b"x" * 16,
    "HTTP/0.9": b"GET /bad-0.9\r\n", "HTTP/3.7": b"GET /bad-3.7 HTTP/3.7\r\nHost: other.example\r\n\r\n",
    "no Host": b"GET /bad-nohost HTTP/1.1\r\n\r\n", "two Hosts": b"GET /bad-twohosts HTTP/1.1\r\nHost: plain.example\r\nHost: denied.example\r\n\r\n",
    "huge head": b"GET /bad-huge HTTP/1.1\r\nHost: plain.example\r\nX: " + b"x" * 2000000 + b"\r\n\r\n",
    "noise": os.urandom(4096), "nothing": b"",
}
"#;

const TRY: &str = r#"
for name, data in cases.items():
    tls = data[:1] in (b"\x16", b"\x80")
    s = socket.create_connection(("other.example", 443) if tls else ("plain.example", 80), 20); s.settimeout(20)
    answer = b""
    try:
        s.sendall(data)
        while len(answer) < 100000:
            more = s.recv(65536)
            if not more: break
            answer += more
        end = "closed"
    # an answer on a connection that stays open is an end too
    except TimeoutError: end = "answered" if answer else "HANGS"
    except OSError: end = "reset"
    print(name, end, "SERVED" if b" 200 " in answer[:20] else "")
"#;

#[test]
fn broken_beginnings_end_and_are_not_served() {
    let stand = stand();
    let before =
        stand.arrived().unwrap().iter().filter(|entry| matches!(entry, Entry::Failed { .. })).count();
    let text = Agent::generic().run(&python(&format!("{CONNECTIONS}{TRY}"))).unwrap().success().unwrap();
    assert!(!text.contains("HANGS") && !text.contains("SERVED"), "{text}");
    assert_eq!(text.lines().count(), 17, "{text}");
    for path in ["/bad-0.9", "/bad-3.7", "/bad-nohost", "/bad-twohosts", "/bad-huge"] {
        assert_nothing_arrived(path);
    }
    let after = stand.arrived().unwrap().iter().filter(|entry| matches!(entry, Entry::Failed { .. })).count();
    assert_eq!(before, after, "something broken reached the world");
    // and the sidecar goes on
    Agent::generic().run(&["curl", "-sSf", "https://other.example/status/200"]).unwrap().success().unwrap();
}

#[test]
fn a_dribbled_hello_is_served_or_ended_but_not_waited_for_by_others() {
    stand();
    let script = format!(
        r#"{CONNECTIONS}
slow = socket.create_connection(("other.example", 443), 20)
for byte in good[:200]:
    try: slow.sendall(bytes([byte]))
    except OSError: break
import urllib.request as u
print(u.urlopen("https://other.example/status/200", timeout=20).status)
"#
    );
    assert_eq!(Agent::generic().run(&python(&script)).unwrap().success().unwrap(), "200\n");
}

#[test]
fn many_open_connections_do_not_starve_another_container() {
    stand();
    let script = "import socket, time\nopen = []\n\
                  for i in range(3000):\n    try: open.append(socket.create_connection(('other.example', 443), 5))\n    except OSError: break\n\
                  print(len(open), flush=True)\ntime.sleep(600)";
    let greedy = Agent::generic().start(&python(script)).unwrap();
    understudy_integration_tests::podman::until("its connections", || Ok(!greedy.logs()?.is_empty()))
        .unwrap();
    Agent::generic().run(&["curl", "-sSf", "https://other.example/status/200"]).unwrap().success().unwrap();
}

/// HTTP/1.1 requests that are answered here, with a page, and then the connection is closed (RFC 9112 3.2, 6.3).
const ANSWERED: &str = r#"
import socket, time
for name, data in {
    "no Host": b"GET /answered HTTP/1.1\r\n\r\n",
    "no Host, with a field": b"GET /answered HTTP/1.1\r\nAccept: */*\r\nUser-Agent: x\r\n\r\n",
    "no Host, with a body": b"POST /answered HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "an empty Host": b"GET /answered HTTP/1.1\r\nHost: \r\n\r\n",
    "two Hosts": b"GET /answered HTTP/1.1\r\nHost: plain.example\r\nHost: plain.example\r\n\r\n",
}.items():
    s = socket.create_connection(("plain.example", 80), 60); s.settimeout(60)
    s.sendall(data)
    answer, start, first = b"", time.monotonic(), None
    try:
        while more := s.recv(65536):
            first = first or time.monotonic() - start
            answer += more
        end = "closed"
    except OSError as e: end = type(e).__name__
    head, _, body = answer.partition(b"\r\n\r\n")
    print(name, "|", head.split(b"\r\n")[0].decode(), "| page" if body else "| nothing", "|", end, "|", round(time.monotonic() - start))
"#;

#[test]
fn a_request_without_a_host_gets_a_page_and_an_end() {
    stand();
    let text = Agent::generic().run(&python(ANSWERED)).unwrap().success().unwrap();
    for line in text.lines() {
        assert!(line.contains("| HTTP/1.1 400 ") && line.contains("| closed |"), "{text}");
        // the engine's own answer to this one has no page
        assert!(line.contains("| page |") || line.starts_with("two Hosts"), "{text}");
    }
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_nothing_arrived("/answered");
}
