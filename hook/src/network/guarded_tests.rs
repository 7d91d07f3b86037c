//! Guarded: a namespace with a network, and a neighbour on it, who is the gateway, too.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, sendto, socket};

use super::mode::Mode;
use super::netns::{Forbidden, Netns};
use super::tests::{AMPLE, Inside, NFT, assert_refused, connect, original, refused};
use super::{netlink, prepare, redirect};
use crate::process::Process;
use crate::testing::{Neighbour, in_private_netns};

/// Long enough for an answer to come, were there one.
const SILENCE: Duration = Duration::from_millis(700);

fn mode() -> Mode {
    Mode::Guarded { inbound: vec![3000] }
}

/// 10.9.0.1 and fd00:9::1; here it is 2 instead of 1.
struct Gateway {
    netns: Netns,
    _process: Neighbour,
}

impl Gateway {
    fn join() -> Self {
        let process = Neighbour::start();
        let peer = process.pid().to_string();
        let netns =
            Netns::of_container(&Process::open(process.pid()).unwrap(), &Forbidden::host().unwrap()).unwrap();
        ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer]);
        let other_end = || {
            configure(1);
            Ok(())
        };
        netns.inside(other_end).unwrap();
        configure(2);
        ip(&["route", "add", "default", "via", "10.9.0.1"]);
        ip(&["-6", "route", "add", "default", "via", "fd00:9::1"]);
        Self { netns, _process: process }
    }

    fn connect(&self, to: &str) -> std::io::Result<TcpStream> {
        self.netns.inside(|| Ok(TcpStream::connect_timeout(&to.parse()?, SILENCE))).unwrap()
    }
}

fn configure(host: u8) {
    ip(&["link", "set", "lo", "up"]);
    ip(&["addr", "add", &format!("10.9.0.{host}/24"), "dev", "eth0"]);
    ip(&["-6", "addr", "add", &format!("fd00:9::{host}/64"), "dev", "eth0", "nodad"]);
    ip(&["link", "set", "eth0", "up"]);
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

fn assert_silent(socket: &UdpSocket, what: &str) {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock, "{what}");
}

/// What must hold however the network came.
fn nothing_leaves_but_through_the_sockets(inside: &Inside, gateway: &Gateway) {
    let listeners: Vec<TcpListener> = gateway
        .netns
        .inside(|| Ok(["10.9.0.1:443", "[fd00:9::1]:443"].map(|at| TcpListener::bind(at).unwrap()).into()))
        .unwrap();
    for listener in &listeners {
        listener.set_nonblocking(true).unwrap();
    }
    for (to, family) in [
        ("10.9.0.1:443", 0),
        ("10.9.0.77:22", 0),
        ("1.2.3.4:443", 0),
        ("28.0.0.1:80", 0),
        ("[fd00:9::1]:443", 1),
        ("[2001:db8::1]:443", 1),
    ] {
        let mut client = connect(to).unwrap();
        let (mut server, _) = inside.tcp[family].accept().unwrap();
        assert_eq!(original(&server), to.parse().unwrap());
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    for listener in &listeners {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    let sockets: Vec<UdpSocket> = gateway
        .netns
        .inside(|| {
            let all = ["0.0.0.0:443", "0.0.0.0:53", "[::]:4433", "[::]:5353"];
            Ok(all.map(|at| UdpSocket::bind(at).unwrap()).into())
        })
        .unwrap();
    for to in ["10.9.0.1:443", "[fd00:9::1]:4433", "1.1.1.1:443", "[2001:db8::1]:4433"] {
        let to: SocketAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        assert_refused(&refused(&UdpSocket::bind(any).unwrap(), to), &to.to_string());
    }
    for to in ["10.9.0.255:443", "224.0.0.251:443", "[ff02::1%2]:4433"] {
        let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let client = UdpSocket::bind(any).unwrap();
        client.set_broadcast(true).unwrap();
        let _ = client.send_to(b"x", to.replace("%2", ""));
    }
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(Some(AMPLE)).unwrap();
    client.send_to(b"query", "10.9.0.1:53").unwrap();
    let mut buffer = [0; 16];
    let (_, from) = inside.dns_udp[0].recv_from(&mut buffer).unwrap();
    inside.dns_udp[0].send_to(b"answer", from).unwrap();
    let (length, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (b"answer".as_slice(), "10.9.0.1:53".parse().unwrap()));
    for socket in &sockets {
        assert_silent(socket, "a datagram reached the gateway");
    }

    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::ICMP)).unwrap();
    for to in ["10.9.0.1:0", "1.2.3.4:0"] {
        let errno = sendto(&raw, &echo, SendFlags::empty(), &to.parse::<SocketAddr>().unwrap()).unwrap_err();
        assert_refused(&errno.into(), "echo request");
    }
}

fn only_the_ports_let_in(inside: &Inside, gateway: &Gateway) {
    let listen = |at: &str| TcpListener::bind(at).unwrap();
    let all = [listen("0.0.0.0:3000"), listen("[::]:3001"), listen("0.0.0.0:3002")];
    all[1].set_nonblocking(true).unwrap();
    let udp = UdpSocket::bind("0.0.0.0:3000").unwrap();
    let mut client = gateway.connect("10.9.0.2:3000").unwrap();
    let (mut server, _) = all[0].accept().unwrap();
    client.write_all(b"ping").unwrap();
    let mut got = [0; 4];
    server.read_exact(&mut got).unwrap();
    server.write_all(b"pong").unwrap();
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"pong");

    let own = inside.ports.v4.tcp;
    for to in ["10.9.0.2:3001", "[fd00:9::2]:3001", "10.9.0.2:3002", "10.9.0.2:1", &format!("10.9.0.2:{own}")]
    {
        assert_eq!(gateway.connect(to).unwrap_err().kind(), ErrorKind::TimedOut, "{to}");
    }
    gateway
        .netns
        .inside(|| {
            let client = UdpSocket::bind("0.0.0.0:0")?;
            client.send_to(b"x", "10.9.0.2:3000")?;
            client.send_to(b"x", ("10.9.0.2", inside.ports.v4.dns_udp))?;
            Ok(())
        })
        .unwrap();
    assert_silent(&udp, "a datagram came in");
    assert_silent(&inside.dns_udp[0], "a query came in");

    // A port that is let in is no way out.
    let from = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&from, true).unwrap();
    drop((server, all));
    rustix::net::bind(&from, &"10.9.0.2:3000".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::connect(&from, &"10.9.0.1:443".parse::<SocketAddr>().unwrap()).unwrap();
    let (server, _) = inside.tcp[0].accept().unwrap();
    assert_eq!(original(&server), "10.9.0.1:443".parse().unwrap());
}

#[test]
fn a_network_that_is_there_lets_in_what_is_named_and_nothing_out() {
    let name = "network::guarded_tests::a_network_that_is_there_lets_in_what_is_named_and_nothing_out";
    if !in_private_netns(name) {
        return;
    }
    let gateway = Gateway::join();
    let inside = Inside::enclose(&mode());
    nothing_leaves_but_through_the_sockets(&inside, &gateway);
    only_the_ports_let_in(&inside, &gateway);
}

#[test]
fn a_network_that_comes_later_is_guarded_by_the_same_rules() {
    let name = "network::guarded_tests::a_network_that_comes_later_is_guarded_by_the_same_rules";
    if !in_private_netns(name) {
        return;
    }
    let inside = Inside::enclose(&mode());
    let gateway = Gateway::join();
    nothing_leaves_but_through_the_sockets(&inside, &gateway);
    only_the_ports_let_in(&inside, &gateway);
}

#[test]
fn rules_that_are_made_again_guard_as_the_first() {
    if !in_private_netns("network::guarded_tests::rules_that_are_made_again_guard_as_the_first") {
        return;
    }
    let gateway = Gateway::join();
    drop(Inside::enclose(&mode()));
    let inside = Inside::enclose(&mode());
    netlink::forget_connections().unwrap();
    only_the_ports_let_in(&inside, &gateway);
    nothing_leaves_but_through_the_sockets(&inside, &gateway);
}

#[test]
fn a_network_without_a_way_out_still_has_the_sockets() {
    if !in_private_netns("network::guarded_tests::a_network_without_a_way_out_still_has_the_sockets") {
        return;
    }
    let _gateway = Gateway::join();
    for family in ["-4", "-6"] {
        ip(&[family, "route", "del", "default"]);
    }
    let inside = Inside::enclose(&mode());
    for (to, family) in [("28.0.0.9:443", 0), ("[2001:db8::1]:443", 1)] {
        let _client = connect(to).unwrap();
        let (server, _) = inside.tcp[family].accept().unwrap();
        assert_eq!(original(&server), to.parse().unwrap());
    }
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.send_to(b"query", "28.0.0.1:53").unwrap();
    inside.dns_udp[0].recv(&mut [0; 16]).unwrap();
    assert_refused(&refused(&client, "28.0.0.1:443".parse().unwrap()), "a datagram");
}

#[test]
fn its_own_address_is_its_own() {
    if !in_private_netns("network::guarded_tests::its_own_address_is_its_own") {
        return;
    }
    let _gateway = Gateway::join();
    let _inside = Inside::enclose(&mode());
    // As Podman's port forwarder does, which connects from inside.
    let server = TcpListener::bind("0.0.0.0:8000").unwrap();
    let _client = connect("10.9.0.2:8000").unwrap();
    server.accept().unwrap();
}

#[test]
fn without_ports_nothing_comes_in() {
    if !in_private_netns("network::guarded_tests::without_ports_nothing_comes_in") {
        return;
    }
    let gateway = Gateway::join();
    let mode = Mode::Guarded { inbound: Vec::new() };
    let sockets = prepare(&mode, None).unwrap();
    redirect(&mode, &sockets, Path::new(NFT)).unwrap();
    let _server = TcpListener::bind("0.0.0.0:3000").unwrap();
    assert_eq!(gateway.connect("10.9.0.2:3000").unwrap_err().kind(), ErrorKind::TimedOut);
}
