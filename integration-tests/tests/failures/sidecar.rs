//! No sidecar, and a sidecar that dies and comes back.

use understudy_control::ControlDirectory;
use understudy_integration_tests::podman::{Container, podman, run, until};
use understudy_integration_tests::stand::{Agent, as_owner};

use crate::{assert_closed, stand};

const REACH: [&str; 7] =
    ["curl", "-sS", "--max-time", "20", "-w", "HTTP %{http_code}", "https://other.example/status/200"];

fn works(container: &Container) -> bool {
    container.exec(&REACH).unwrap().stdout.contains("HTTP 200")
}

#[test]
fn without_a_sidecar_nothing_starts() {
    let stand = stand();
    stand.kill_sidecar();
    let outcome = Agent::generic().run(&["echo", "it ran"]).unwrap();
    stand.start_sidecar().unwrap();
    assert_closed(&outcome, "sidecar");
    // A manager of services may try again, as it may not after a refusal.
    assert_eq!(outcome.code, Some(75), "{}", outcome.text());
}

#[test]
fn a_running_agent_loses_its_network_with_the_sidecar_and_gets_it_back_with_the_next() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    assert!(works(&container));
    stand.kill_sidecar();
    let dead = container.exec(&REACH).unwrap();
    let denied =
        container.exec(&["curl", "-sSk", "--max-time", "20", "https://denied.example/while-dead"]).unwrap();
    stand.start_sidecar().unwrap();
    assert!(!dead.stdout.contains("HTTP 200"), "{}", dead.text());
    assert!(stand.requests("/while-dead").unwrap().is_empty(), "{}", denied.text());
    until("the re-attached network", || Ok(works(&container))).unwrap();
}

#[test]
fn a_guarded_agent_stays_guarded_when_the_sidecar_dies_and_comes_back() {
    let stand = stand();
    let agent = Agent::plain()
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "world")
        .annotation("understudy.network", "guarded")
        .annotation("understudy.inbound", "3000")
        .option("--network=slirp4netns")
        .option("--publish=127.0.0.1:38310:3000");
    let serve = ["python3", "-m", "http.server", "3000", "--directory", "/etc"];
    let container = agent.start(&serve).unwrap();
    let reached = || -> std::io::Result<bool> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect("127.0.0.1:38310")?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
        stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains(" 200 "))
    };
    until("the agent's server", || Ok(reached().unwrap_or(false))).unwrap();
    assert!(works(&container));
    let out = || {
        let script = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)\n\
                      s.connect(('10.0.2.3', 53000)); s.send(b'x'); s.recv(9)";
        container.exec(&["python3", "-c", script]).unwrap()
    };
    // at once, by the rules: a datagram that went out is met with silence
    let refused = |text: &str| text.contains("PermissionError") || text.contains("ConnectionRefusedError");
    assert!(refused(&out().stderr), "{}", out().text());
    stand.kill_sidecar();
    let dead = container.exec(&REACH).unwrap();
    assert!(refused(&out().stderr), "{}", out().text());
    stand.start_sidecar().unwrap();
    assert!(!dead.stdout.contains("HTTP 200"), "{}", dead.text());
    until("the re-attached network", || Ok(works(&container))).unwrap();
    assert!(refused(&out().stderr), "{}", out().text());
    assert!(reached().unwrap());
}

#[test]
fn ports_that_the_agent_took_over_meanwhile_gain_nothing() {
    let stand = stand();
    // learns the redirect's ports, binds them as soon as they are free, and serves whoever comes
    let script = r#"
import socket, threading, time
ports = set()
for f in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(f).read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A": ports.add((f[-1] == "6", int(fields[1].rsplit(":", 1)[1], 16)))
def squat(six, port):
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    while True:
        try: s.bind(("::1" if six else "127.0.0.1", port)); break
        except OSError: time.sleep(0.02)
    s.listen(); print("squatted", port, flush=True)
    while True:
        c, _ = s.accept(); print("caught", flush=True); c.close()
for p in ports: threading.Thread(target=squat, args=p, daemon=True).start()
print("ready", len(ports), flush=True)
time.sleep(600)
"#;
    let container = Agent::generic().start(&["python3", "-c", script]).unwrap();
    until("the squatter's look at the ports", || Ok(container.logs()?.contains("ready 4"))).unwrap();
    stand.kill_sidecar();
    until("the squatter", || Ok(container.logs()?.contains("squatted"))).unwrap();
    stand.start_sidecar().unwrap();
    until("the re-attached network", || Ok(works(&container))).unwrap();
    let caught = container.logs().unwrap().matches("caught").count();
    assert!(works(&container));
    assert_eq!(container.logs().unwrap().matches("caught").count(), caught, "the old ports still catch");
}

#[test]
fn a_first_process_in_a_namespace_of_its_own_making_is_not_re_attached() {
    let stand = stand();
    let inner = "ip link set lo up; echo moved; exec sleep infinity";
    let command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", inner];
    let container = Agent::generic().start(&command).unwrap();
    let other = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    until("its move", || Ok(container.logs()?.contains("moved"))).unwrap();
    stand.kill_sidecar();
    stand.start_sidecar().unwrap();
    // re-attaching may go on after the start; one that may be given back shows that it took place
    until("the other's network", || Ok(works(&other))).unwrap();
    // `podman exec` cannot enter it any more; its owner can still look
    let file = format!("/proc/{}/net/tcp", container.pid().unwrap());
    let sockets = run(as_owner("cat").arg(&file), b"").unwrap().success().unwrap();
    assert_eq!(sockets.lines().count(), 1, "the moved namespace was given listeners: {sockets}");
}

#[test]
fn containers_that_share_a_network_are_one_again_for_the_next_sidecar() {
    let stand = stand();
    let first = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let network = format!("--network=container:{}", first.name);
    let joining = Agent::plain()
        .option(&network)
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "world");
    let second = joining.start(&["sleep", "infinity"]).unwrap();
    stand.kill_sidecar();
    stand.start_sidecar().unwrap();
    for container in [&first, &second] {
        until("the re-attached network", || Ok(works(container))).unwrap();
    }
    let listed = stand.operator(&["status"]).unwrap().success().unwrap();
    assert!(listed.contains(&first.name) && listed.contains(&second.name), "{listed}");
    // whichever was given back first
    podman(["stop", "--time", "0", &first.name]).unwrap().success().unwrap();
    assert!(works(&second));
}

#[test]
fn a_revoked_container_has_no_network() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    assert!(works(&container));
    stand.operator(&["revoke", &container.name]).unwrap().success().unwrap();
    assert!(!works(&container));
    // also not after the next sidecar
    stand.kill_sidecar();
    stand.start_sidecar().unwrap();
    assert!(!works(&container));
}

#[test]
fn a_stopped_container_is_forgotten_and_a_restarted_one_works() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let id = container.inspect("{{.Id}}").unwrap();
    let listed = || stand.operator(&["status"]).unwrap().success().unwrap().contains(&id[..12]);
    assert!(listed());
    podman(["stop", "--time", "0", &container.name]).unwrap().success().unwrap();
    until("Detach", || Ok(!listed())).unwrap();
    podman(["start", &container.name]).unwrap().success().unwrap();
    assert!(listed() && works(&container));
}

#[test]
fn a_container_that_stopped_while_the_sidecar_was_out_of_reach_is_forgotten_with_the_next_hook() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let id = container.inspect("{{.Id}}").unwrap();
    let listed = || stand.operator(&["status"]).unwrap().success().unwrap().contains(&id[..12]);
    let recorded = || stand.paths.records().join(&id).exists();
    let socket = ControlDirectory::new(&stand.paths.control).socket();
    let aside = socket.with_extension("aside");
    std::fs::rename(&socket, &aside).unwrap();
    let stopped = podman(["stop", "--time", "0", &container.name]).unwrap();
    std::fs::rename(&aside, &socket).unwrap();
    stopped.success().unwrap();
    assert!(listed() && recorded());
    Agent::generic().run(&["true"]).unwrap().success().unwrap();
    until("Detach", || Ok(!listed() && !recorded())).unwrap();
}
