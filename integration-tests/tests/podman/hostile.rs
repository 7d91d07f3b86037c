//! Root inside the container tries; what counts is what arrived outside.

use understudy_integration_tests::podman::podman;
use understudy_integration_tests::stand::{Agent, GENERIC};

use crate::{assert_nothing_arrived, python, stand};

/// Ports that somebody listens on inside: the redirect's, since nothing else runs there.
const OWN_PORTS: &str = r#"
import socket
ports = set()
for f in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(f).read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A": ports.add((f[-1] == "6", int(fields[1].rsplit(":", 1)[1], 16)))
"#;

#[test]
fn a_direct_connection_to_the_redirect_port_is_refused() {
    stand();
    let script = format!(
        r#"{OWN_PORTS}
assert ports, "no listener: the container is not attached"
for six, port in ports:
    try:
        s = socket.create_connection(("::1" if six else "127.0.0.1", port), 20); s.settimeout(20)
        s.sendall(b"GET /direct HTTP/1.1\r\nHost: plain.example\r\n\r\n"); data = s.recv(100)
        print("answered" if b"200" in data else "refused")
    except OSError: print("refused")
"#
    );
    let text = Agent::generic().run(&python(&script)).unwrap().success().unwrap();
    assert!(text.contains("refused") && !text.contains("answered"), "{text}");
    assert_nothing_arrived("/direct");
}

#[test]
fn the_rules_cannot_be_changed_from_inside() {
    stand();
    // a netlink request that deletes every table (NFT_MSG_DELTABLE in a batch), as `nft flush ruleset` sends it
    let script = r#"
import socket, struct, urllib.request as u, urllib.error
def message(kind, flags, sequence, body): return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
family = lambda f, res: struct.pack("=BBH", f, 0, res)
batch = message(16, 1, 1, family(0, 10 << 8)) + message(10 << 8 | 2, 1 | 4, 2, family(0, 0)) + message(17, 1, 3, family(0, 10 << 8))
try:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12); s.send(batch); s.settimeout(5)
    print("errno", -struct.unpack_from("=i", s.recv(4096), 16)[0])
except OSError as e: print("errno", e.errno)
try: u.urlopen("https://denied.example/flushed", timeout=20); print("open")
except urllib.error.HTTPError as e: print("still", e.code)
"#;
    let text = Agent::generic().option("--user=0").run(&python(script)).unwrap().success().unwrap();
    assert!(!text.contains("errno 0") && text.contains("still 403"), "{text}");
    assert_nothing_arrived("/flushed");
}

#[test]
fn what_podman_runs_in_it_later_as_root_is_redirected_too() {
    stand();
    let agent = Agent::generic().option("--user=agent").start(&["sleep", "120"]).unwrap();
    let script = "id -u; curl -s --max-time 20 https://denied.example/exec | grep -o 'refused by policy'; \
                  nft flush ruleset 2>/dev/null && echo flushed; \
                  curl -s --max-time 20 https://denied.example/exec | grep -o 'refused by policy'; true";
    let text = podman(["exec", "--user=0", &agent.name, "sh", "-c", script]).unwrap().success().unwrap();
    assert_eq!(text.trim(), "0\nrefused by policy\nrefused by policy");
    assert_nothing_arrived("/exec");
}

#[test]
fn namespaces_of_its_own_making_lead_nowhere() {
    stand();
    let script = "unshare --user --map-root-user --net sh -c 'ip link set lo up; \
                  curl -sS --max-time 10 --resolve api.example:443:127.0.0.1 https://api.example/unshared' 2>&1; true";
    Agent::generic().shell(script).unwrap();
    assert_nothing_arrived("/unshared");
}

#[test]
fn what_protects_is_read_only_inside() {
    stand();
    let script = "for path in /run/understudy /run/understudy-bin /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do \
                  umount $path 2>/dev/null && echo unmounted $path; \
                  if [ -d $path ]; then touch $path/x 2>/dev/null && echo wrote $path; \
                  else (echo x >>$path) 2>/dev/null && echo wrote $path; fi; done; true";
    assert_eq!(Agent::generic().option("--user=0").shell(script).unwrap().success().unwrap(), "");
}

#[test]
fn forged_identity_is_no_identity() {
    stand();
    let headers = [
        "-H",
        "x-understudy-container: other",
        "-H",
        "forwarded: for=127.0.0.1;host=api.example",
        "-H",
        "x-forwarded-host: api.example",
    ];
    let command = [&["curl", "-sS"][..], &headers, &["https://denied.example/forged"]].concat();
    Agent::generic().run(&command).unwrap();
    assert_nothing_arrived("/forged");
}

#[test]
fn proxy_requests_are_policed() {
    stand();
    // to an allowed host, but they name another target; a tunnel is one to the sidecar, which asks again
    let script = r#"
import socket
def connected():
    s = socket.create_connection(("plain.example", 80), 20); s.settimeout(20); return s
def status(s, request):
    s.sendall(request); return s.recv(4096).split(b"\r\n")[0].decode()
for request in (b"GET http://denied.example/proxied HTTP/1.1\r\nHost: plain.example\r\n\r\n",
                b"GET http://denied.example/proxied HTTP/1.1\r\nHost: denied.example\r\n\r\n"):
    try: print(status(connected(), request))
    except OSError: print("reset")
for host in ("denied.example", "plain.example"):
    s = connected()
    print(status(s, f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}:80\r\n\r\n".encode()))
    path = "proxied" if host == "denied.example" else "tunnelled"
    print(status(s, f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()))
"#;
    let text = Agent::generic().run(&python(script)).unwrap().success().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[..2].iter().all(|line| !line.contains(" 200")), "{text}");
    assert_eq!(lines[2], "HTTP/1.1 200 Connection established");
    assert!(lines[3].starts_with("HTTP/1.1 403"), "{text}");
    assert_eq!(lines[4], "HTTP/1.1 200 Connection established");
    assert_eq!(stand().requests("/tunnelled").unwrap().len(), 1, "{text}");
    assert_nothing_arrived("/proxied");
}

#[test]
fn a_smuggled_request_is_policed_as_its_own() {
    stand();
    let script = r#"
import socket
first = b"POST /first HTTP/1.1\r\nHost: plain.example\r\n"
for framing in (b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
                b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n", b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"):
    s = socket.create_connection(("plain.example", 80), 20); s.settimeout(5)
    try:
        s.sendall(first + framing + b"GET /smuggled HTTP/1.1\r\nHost: denied.example\r\n\r\n")
        while s.recv(4096): pass
    except OSError: pass
"#;
    Agent::generic().run(&python(script)).unwrap().success().unwrap();
    assert_nothing_arrived("/smuggled");
}

#[test]
fn the_stand_in_in_the_images_own_files_is_of_no_use_elsewhere() {
    let stand = stand();
    let agent = Agent::generic().annotation("understudy.secrets", GENERIC);
    let script = "curl -sS --http1.1 -H \"x-api-key: $EXAMPLE_API_KEY\" -H 'connection: x-api-key' https://api.example/stripped";
    agent.shell(script).unwrap();
    for request in stand.requests("/stripped").unwrap() {
        // whatever arrives carries the real key or none: never the stand-in
        let key = request.header("x-api-key");
        assert!(key.is_none() || key == Some(&stand.secrets.generic), "{request:?}");
    }
}
