//! Guarded mode: a container with a network lets in what is named, and nothing out but through the sidecar.

use understudy_integration_tests::podman::{Container, Outcome, podman, unique, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, Agent, is_root};

use crate::{assert_refused, python, stand};

/// Says what a peer says, on TCP and UDP ports; prints to its log what arrives.
const SERVER: &str = r#"
import socket, sys, threading
def tcp(port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen()
    while True:
        c, peer = s.accept(); print("tcp", port, flush=True); c.sendall(b"HELLO"); c.close()
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", port))
    while True:
        s.recv(99); print("udp", port, flush=True)
for port in (3000, 3001): threading.Thread(target=tcp, args=(port,)).start()
threading.Thread(target=udp, args=(3000,)).start()
print("ready", flush=True)
"#;

/// What of these ports of an address answers, each within two seconds; and a datagram besides.
const KNOCK: &str = r#"
import socket, sys
for port in (3000, 3001):
    try:
        s = socket.create_connection((sys.argv[1], port), 2); print(port, s.recv(9).decode() or "closed")
    except OSError as e: print(port, "no")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], 3000))
"#;

/// Everything that could leave: each line says what did, or that it did not.
const LEAVE: &str = r#"
import socket, sys
def attempt(name, work):
    try: work(); print(name, "out")
    except OSError: print(name, "no")
def udp(family, to):
    def work():
        s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(2); s.connect(to); s.send(b"x"); s.recv(9)
    return work
def tcp(family, to):
    def work():
        s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(5); s.connect(to); s.sendall(b"\x00\x01\x02\x03raw\n")
        if s.recv(99) != b"HELLO": raise OSError
    return work
def ping():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.settimeout(2)
    s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (sys.argv[1], 0)); s.recv(99)
neighbour, gateway = sys.argv[1:3]
for address in (neighbour, gateway):
    attempt("tcp 3000", tcp(socket.AF_INET, (address, 3000)))
    attempt("udp 3000", udp(socket.AF_INET, (address, 3000)))
    attempt("udp 123", udp(socket.AF_INET, (address, 123)))
attempt("udp v6", udp(socket.AF_INET6, ("2001:4860:4860::8888", 443)))
attempt("udp out", udp(socket.AF_INET, ("203.0.113.5", 443)))
attempt("ping", ping)
"#;

fn guarded(network: &str) -> Agent {
    Agent::plain()
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "world")
        .annotation("understudy.network", "guarded")
        .option(&format!("--network={network}"))
}

fn version() -> (u32, u32) {
    let version = podman(["version", "--format", "{{.Client.Version}}"]).unwrap().success().unwrap();
    let mut parts = version.trim().split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// What this Podman has: `pasta` came with 4.4, and is not for root.
fn networks() -> Vec<&'static str> {
    let mut networks = vec!["bridge", "slirp4netns"];
    if version() >= (4, 4) && !is_root() {
        networks.push("pasta");
    }
    networks
}

fn fetch(outcome: &Outcome) -> &str {
    assert_eq!(outcome.code, Some(0), "{}", outcome.text());
    outcome.stdout.trim()
}

const ALLOWED: [&str; 7] =
    ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://other.example/status/200"];

#[test]
fn without_the_annotation_the_refusal_names_it_and_what_it_gives_up() {
    stand();
    let agent = Agent::plain().annotation("understudy.harness", "generic").option("--network=bridge");
    let outcome = agent.run(&["true"]).unwrap();
    assert_refused(&outcome, "understudy.network=guarded");
    assert!(outcome.text().contains("rules alone keep traffic from leaving"), "{}", outcome.text());
    let odd = guarded("bridge").annotation("understudy.inbound", "http").run(&["true"]).unwrap();
    assert_refused(&odd, "not a TCP port");
    let host = Agent::plain()
        .annotation("understudy.harness", "generic")
        .annotation("understudy.network", "guarded")
        .option("--network=host");
    assert_refused(&host.run(&["true"]).unwrap(), "--network=host");
}

fn address(container: &Container) -> (String, String) {
    let template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}} {{end}}";
    let text = container.inspect(template).unwrap();
    let mut words = text.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

fn serve(container: &Container) {
    until("the server", || Ok(container.logs()?.contains("ready"))).unwrap();
}

/// A network with an agent on it and a neighbour, gone with this.
struct Network(String);

impl Network {
    fn new() -> Self {
        let name = unique("net");
        podman(["network", "create", &name]).unwrap().success().unwrap();
        Self(name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = podman(["network", "rm", "--force", &self.0]);
    }
}

#[test]
fn a_neighbour_reaches_what_is_named_and_is_not_reached() {
    stand();
    let network = Network::new();
    let option = format!("--network={}", network.0);
    let neighbour =
        Container::start(&unique("neighbour"), [&option, AGENT_IMAGE, "python3", "-c", SERVER]).unwrap();
    serve(&neighbour);
    for userns in ["host", "keep-id"] {
        let agent = guarded(&network.0)
            .annotation("understudy.inbound", "3000")
            .option(&format!("--userns={userns}"))
            .start(&python(SERVER))
            .unwrap();
        serve(&agent);
        let (own, gateway) = address(&agent);
        let (other, _) = address(&neighbour);

        let knocked = neighbour.exec(&["python3", "-c", KNOCK, &own]).unwrap().success().unwrap();
        assert_eq!(knocked, "3000 HELLO\n3001 no\n", "{userns}");
        let before = neighbour.logs().unwrap();
        let left = agent.exec(&["python3", "-c", LEAVE, &other, &gateway]).unwrap().success().unwrap();
        assert!(
            left.lines().count() == 9 && left.lines().all(|line| line.ends_with(" no")),
            "{userns}: {left}"
        );
        assert_eq!(neighbour.logs().unwrap(), before, "{userns}: something reached the neighbour");
        assert!(!agent.logs().unwrap().contains("udp"), "{userns}: a datagram came in");
        assert_eq!(fetch(&agent.exec(&ALLOWED).unwrap()), "200");
    }
}

#[test]
fn a_published_port_is_reached_from_the_host() {
    stand();
    for (network, port) in networks().into_iter().zip(["38301", "38302", "38303"]) {
        let agent = guarded(network)
            .annotation("understudy.inbound", "3000")
            .option(&format!("--publish=127.0.0.1:{port}:3000"))
            .start(&python(SERVER))
            .unwrap();
        serve(&agent);
        let mut answer = String::new();
        until("an answer", || {
            use std::io::Read as _;
            answer.clear();
            let stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}"));
            Ok(stream.is_ok_and(|mut stream| stream.read_to_string(&mut answer).is_ok()) && answer == "HELLO")
        })
        .unwrap_or_else(|error| panic!("{network}: {error:#}"));
    }
}
