//! `understudy.publish`: a server in a sealed container, reached from the host by a port of the sidecar's. A sidecar of its
//! own network is needed for it, so the one stand's is taken away meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use understudy_integration_tests::podman::{Container, until};
use understudy_integration_tests::stand::Agent;

use crate::{assert_closed, stand};

/// The sidecar's port is one that policy `world` allows at names that the stand pins to the sidecar itself.
const NETWORK: [&str; 2] = ["--network=slirp4netns", "--publish=127.0.0.1:38320:8443"];
const SERVE: [&str; 8] =
    ["python3", "-m", "http.server", "3000", "--bind", "127.0.0.1", "--directory", "/etc"];

/// A sidecar that may publish, until this value ends.
struct Publishing {
    file: PathBuf,
    before: String,
}

impl Publishing {
    fn start() -> Self {
        let file = stand().paths.configuration.join("sidecar.toml");
        let before = fs::read_to_string(&file).unwrap();
        let publishing = Self { file, before };
        stand().kill_sidecar();
        fs::write(&publishing.file, format!("publish = \"8443-8444\"\n{}", publishing.before)).unwrap();
        stand().start_sidecar_with(&NETWORK).unwrap();
        publishing
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        stand().kill_sidecar();
        fs::write(&self.file, &self.before).unwrap();
        stand().start_sidecar().unwrap();
    }
}

fn publishing(value: &str) -> Agent {
    Agent::generic().annotation("understudy.publish", value)
}

/// A page of the server inside, asked for on the host.
fn page() -> std::io::Result<String> {
    let mut stream = TcpStream::connect("127.0.0.1:38320")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

fn is_reached() -> bool {
    page().is_ok_and(|page| page.contains(" 200 "))
}

fn serving() -> Container {
    let container = publishing("8443:3000").start(&SERVE).unwrap();
    until("the server in the container", || Ok(is_reached())).unwrap();
    container
}

#[test]
fn a_server_in_a_sealed_container_is_reached_from_the_host_and_by_no_other_container() {
    let stand = stand();
    let unasked = publishing("8443:3000").run(&["echo", "it ran"]).unwrap();
    assert_closed(&unasked, "write `publish = 8443` into sidecar.toml");

    let _publishing = Publishing::start();
    let outside = publishing("9000:3000").run(&["echo", "it ran"]).unwrap();
    assert_closed(&outside, "write `publish = 9000` into sidecar.toml");
    let container = serving();
    // Far more than there are sockets, one after the other.
    for number in 0..40 {
        assert!(is_reached(), "connection {number}");
    }
    let status = stand.operator(&["status"]).unwrap().success().unwrap();
    assert!(status.contains("its port 3000 is reached by port 8443 of the sidecar"), "{status}");
    let log = stand.sidecar_log().unwrap();
    assert!(log.lines().any(|line| line.contains("\"published\"") && line.contains("8443:3000")), "{log}");

    let second = publishing("8443:3000").run(&["echo", "it ran"]).unwrap();
    assert_closed(&second, &format!("leads to container {} already", container.name));
    // The name leads to the sidecar itself, and policy allows the port.
    let curl = ["curl", "-sSk", "--max-time", "20", "https://other.example:8443/hostname"];
    let other = Agent::generic().run(&curl).unwrap();
    assert!(other.text().contains("private-address"), "{}", other.text());
    assert!(is_reached());

    // A new sidecar gets new sockets.
    stand.kill_sidecar();
    assert!(!is_reached());
    stand.start_sidecar_with(&NETWORK).unwrap();
    until("the server, through the new sidecar", || Ok(is_reached())).unwrap();

    drop(container);
    assert!(!is_reached());
    let next = serving();
    let revoked = stand.operator(&["revoke", &next.name]).unwrap();
    revoked.success().unwrap();
    until("the end of it", || Ok(!is_reached())).unwrap();
}
