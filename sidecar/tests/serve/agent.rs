//! A container as the sidecar sees it: a network namespace whose sockets the sidecar holds, with the rules that redirect
//! into them, and programs that run in it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use understudy_control::{
    Attach, Client, ControlDirectory, Family, NetnsId, Prepare, Prepared, Reply, Request, SocketKind,
    SocketRole, User, sys,
};

use crate::{Sidecar, USER};

const MARK: &str = "UNDERSTUDY_TEST_AGENT";
const NAME: &str = "agent::it_is_attached_and_runs_a_script";

/// Runs `script` with `sh` in a new container with these annotations, and gives what it printed. What the container is
/// given is in its environment.
pub(crate) fn run(sidecar: &Sidecar, name: &str, annotations: &[(&str, &str)], script: &str) -> String {
    let what = serde_json::json!({
        "control": sidecar.path("control"), "name": name, "script": script,
        "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>(),
    });
    let mut command = Command::new("timeout");
    // Root of a user namespace that maps to who the sidecar is, as the hook of a rootless user.
    command.args(["--kill-after=5", "300", "unshare", "--map-root-user", "--net", "--mount", "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--include-ignored", "--nocapture", "--test-threads=1"]);
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    let output = command.env(MARK, what.to_string()).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}\n{}", sidecar.log());
    text
}

#[test]
#[ignore = "the inner half of other tests"]
fn it_is_attached_and_runs_a_script() {
    let Some(what) = std::env::var_os(MARK) else { return };
    let what: serde_json::Value = serde_json::from_str(what.to_str().unwrap()).unwrap();
    let text = |key: &str| what[key].as_str().unwrap().to_owned();
    sh("ip link set lo up && ip route add local default dev lo");
    let client = Client::new(ControlDirectory::new(text("control")), Duration::from_secs(20));
    let prepared =
        attach(&client, &text("name"), serde_json::from_value(what["annotations"].clone()).unwrap());
    let resolv = std::env::temp_dir().join(format!("resolv-{}", std::process::id()));
    fs::write(&resolv, format!("nameserver {}\n", prepared.nameserver)).unwrap();
    sh(&format!("mount --bind {} /etc/resolv.conf", resolv.display()));
    // The harness of tests has begun a line.
    println!();
    let mut script = Command::new("sh");
    script.args(["-c", &text("script")]).env_remove(MARK);
    script.envs(prepared.env.into_iter().map(|variable| (variable.name, variable.value)));
    assert!(script.status().unwrap().success());
    drop(fs::remove_file(&resolv));
}

fn attach(client: &Client, name: &str, annotations: BTreeMap<String, String>) -> Prepared {
    let id: understudy_control::ContainerId =
        format!("{:012x}{:052}", std::process::id(), 0).parse().unwrap();
    let prepare = Prepare {
        id: id.clone(),
        name: Some(name.to_owned()),
        image: None,
        annotations,
        user: User { uid: 0, gid: 0 },
        env: BTreeMap::new(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    };
    let reply = client.call(Request::Prepare(Box::new(prepare)), &[]).unwrap();
    let Reply::Prepared(prepared) = reply else { panic!("{reply:?}") };
    let sockets = sockets();
    redirect(&sockets);
    let netns = fs::metadata("/proc/self/ns/net").unwrap();
    let cookie = sys::netns_cookie(&sockets[0].0).unwrap();
    let netns = NetnsId { device: netns.dev(), inode: netns.ino(), cookie };
    let descriptors: Vec<_> = sockets.iter().map(|(socket, _)| socket.as_fd()).collect();
    let attach = Attach { id, netns, sockets: SocketRole::ALL.to_vec() };
    assert_eq!(client.call(Request::Attach(attach), &descriptors).unwrap(), Reply::Done);
    *prepared
}

/// The kernel chooses ports for each family alone, and one port for two is refused.
fn sockets() -> Vec<(OwnedFd, u16)> {
    loop {
        let sockets: Vec<_> = SocketRole::ALL.into_iter().map(socket).collect();
        let ports: std::collections::BTreeSet<u16> = sockets.iter().map(|(_, port)| *port).collect();
        if ports.len() == sockets.len() {
            return sockets;
        }
    }
}

/// Not by the standard library's listener, which sets SO_REUSEADDR.
fn socket(role: SocketRole) -> (OwnedFd, u16) {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let (family, address): (_, std::net::SocketAddr) = match role.family {
        Family::V4 => (AddressFamily::INET, ([127, 0, 0, 1], 0).into()),
        Family::V6 => (AddressFamily::INET6, "[::1]:0".parse().unwrap()),
    };
    if role.kind == SocketKind::DnsUdp {
        let socket = socket(family, SocketType::DGRAM, None).unwrap();
        bind(&socket, &address).unwrap();
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr().unwrap().port();
        return (socket.into(), port);
    }
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    bind(&socket, &address).unwrap();
    listen(&socket, 128).unwrap();
    let socket = TcpListener::from(socket);
    let port = socket.local_addr().unwrap().port();
    (socket.into(), port)
}

/// The first half of the hook's rules, for IPv4.
fn redirect(sockets: &[(OwnedFd, u16)]) {
    let [tcp, dns_udp, dns_tcp] = [sockets[0].1, sockets[1].1, sockets[2].1];
    sh(&format!(
        "nft 'table ip t {{ chain o {{ type nat hook output priority -100; policy accept; \
         udp dport 53 redirect to :{dns_udp}; tcp dport 53 redirect to :{dns_tcp}; \
         ip daddr 127.0.0.0/8 return; meta l4proto tcp redirect to :{tcp}; }}; }}'"
    ));
}

fn sh(script: &str) {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
