//! What is not allowed HTTP(S) or DNS does not leave, over any protocol, family or address.

use understudy_integration_tests::mock::Entry;
use understudy_integration_tests::stand::Agent;

use crate::{assert_nothing_arrived, python, stand};

#[test]
fn a_denied_host_is_told_so_in_text_and_json() {
    stand();
    let text =
        Agent::generic().run(&["curl", "-sS", "-w", "HTTP %{http_code}", "https://denied.example/denied"]);
    let text = text.unwrap().success().unwrap();
    for word in ["denied.example", "host-not-allowed", "world", "HTTP 403"] {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    let json = ["curl", "-sS", "-H", "accept: application/json", "https://denied.example/denied"];
    let json = Agent::generic().run(&json).unwrap().success().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    assert_nothing_arrived("/denied");
}

#[test]
fn an_allowed_host_on_another_port_is_refused() {
    stand();
    let outcome = Agent::generic().run(&["curl", "-sS", "http://other.example:8080/other-port"]).unwrap();
    assert!(outcome.stdout.contains("port-not-allowed"), "{}", outcome.text());
    assert_nothing_arrived("/other-port");
}

#[test]
fn a_suffix_is_not_a_match() {
    stand();
    for host in ["notother.example", "other.example.evil.example", "x.other.example", "example"] {
        let url = format!("https://{host}/suffix");
        let outcome = Agent::generic().run(&["curl", "-sS", &url]).unwrap();
        assert!(outcome.stdout.contains("host-not-allowed"), "{host}: {}", outcome.text());
    }
    assert_nothing_arrived("/suffix");
}

#[test]
fn case_and_a_trailing_dot_change_nothing() {
    stand();
    for host in ["OTHER.example", "other.example."] {
        let url = format!("https://{host}/status/200");
        let outcome =
            Agent::generic().run(&["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", &url]).unwrap();
        assert_eq!(outcome.stdout, "200", "{host}: {}", outcome.stderr);
    }
}

#[test]
fn a_host_header_for_another_host_is_misdirected() {
    stand();
    for flag in ["--http2", "--http1.1"] {
        let command = [
            "curl",
            "-sS",
            flag,
            "-w",
            "HTTP %{http_code}",
            "-H",
            "host: api.example",
            "https://other.example/fronted",
        ];
        let outcome = Agent::generic().run(&command).unwrap();
        assert!(outcome.stdout.contains("HTTP 421"), "{}", outcome.text());
    }
    assert_nothing_arrived("/fronted");
}

#[test]
fn an_address_literal_is_refused() {
    stand();
    for url in [
        "https://127.0.0.9/literal-4",
        "https://192.0.2.1/literal-4",
        "https://[2001:db8::1]/literal-6",
        "http://1.1.1.1/literal-4",
    ] {
        Agent::generic().run(&["curl", "-sSk", "--max-time", "20", url]).unwrap();
    }
    assert_nothing_arrived("/literal-4");
    assert_nothing_arrived("/literal-6");
}

#[test]
fn a_name_that_resolves_to_a_private_address_is_refused() {
    let outcome = Agent::generic().run(&["curl", "-sS", "https://private.example/private"]).unwrap();
    assert!(outcome.stdout.contains("private-address"), "{}", outcome.text());
    assert_nothing_arrived("/private");
    // only after the permit, and then by the sidecar
    assert!(stand().queries().unwrap().iter().any(|name| name == "private.example"));
}

#[test]
fn raw_protocols_are_reset_or_told_why_in_their_own_words() {
    stand();
    let script = r#"
import socket
for host, port in (("other.example", 22), ("203.0.113.9", 5432), ("2001:db8::9", 22)):
    for sent in (b"\0raw\r\n\r\n" * 4, b"SSH-2.0-x\r\n"):
        heard = b""
        try:
            s = socket.create_connection((host, port), 20); s.settimeout(20); s.sendall(sent)
            while more := s.recv(1000): heard += more
        except OSError: pass
        told = heard.startswith(b"SSH-2.0-understudy\r\n") and b"understudy: " in heard
        print("told" if told else "data" if heard else "end")
"#;
    let text = Agent::generic().run(&python(script)).unwrap().success().unwrap();
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["end", "told", "end", "told", "end", "told"]);
    let ports: Vec<_> = stand()
        .arrived()
        .unwrap()
        .into_iter()
        .filter(|entry| matches!(entry, Entry::Connection { port: 22 | 5432 }))
        .collect();
    assert!(ports.is_empty(), "{ports:?}");
}

#[test]
fn quic_is_refused_at_once_so_that_clients_fall_back() {
    stand();
    let script = r#"
import socket
for family, host in ((socket.AF_INET, "203.0.113.5"), (socket.AF_INET6, "2001:db8::5")):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(20); s.connect((host, 443))
    try:
        s.send(b"x" * 1200); s.recv(10); print("answered")
    except TimeoutError: print("silence")
    except OSError as e: print("refused")
"#;
    assert_eq!(Agent::generic().run(&python(script)).unwrap().success().unwrap(), "refused\nrefused\n");
}

#[test]
fn loopback_inside_is_the_containers_own() {
    stand();
    let script = "python3 -m http.server 8000 --bind 127.0.0.1 --directory /etc >/dev/null 2>&1 & \
                  for i in 1 2 3 4 5 6 7 8 9; do curl -sS http://127.0.0.1:8000/hostname && exit; sleep 0.5; done; exit 1";
    let outcome = Agent::generic().option("--hostname=inside").shell(script).unwrap();
    assert_eq!(outcome.stdout.trim(), "inside", "{}", outcome.stderr);
}

#[test]
fn vsock_raw_and_packet_sockets_are_closed() {
    stand();
    let script = r#"
import socket
for name, make in (("vsock", lambda: socket.socket(40, socket.SOCK_STREAM)), ("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)),
                   ("packet", lambda: socket.socket(17, socket.SOCK_RAW)), ("alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET))):
    try: make(); print(name, "open")
    except OSError: print(name, "closed")
"#;
    let text = Agent::generic().run(&python(script)).unwrap().success().unwrap();
    assert!(!text.contains("open"), "{text}");
}

#[test]
fn the_hosts_proxy_variables_do_not_reach_the_container() {
    stand();
    let outcome = Agent::generic().option("--env=https_proxy=http://203.0.113.1:3128").run(&["env"]).unwrap();
    let text = outcome.success().unwrap();
    assert!(!text.to_lowercase().contains("_proxy="), "{text}");
}
