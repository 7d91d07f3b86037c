//! In a private network namespace: what a program inside can and cannot do with the rules in place.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sendto, socket, sockopt};

use understudy_control::{MAX_DESCRIPTORS, SocketRole, sys};

use super::sockets::{FamilyPorts, Ports};
use super::*;
use crate::testing::{Neighbour, in_private_netns};

pub(super) const NFT: &str = "/usr/sbin/nft";
/// Nothing here takes long; a test that waits for this long has failed.
pub(super) const AMPLE: Duration = Duration::from_secs(20);

/// Enclosed, with the sockets as a sidecar would hold them.
pub(super) struct Inside {
    pub(super) ports: Ports,
    pub(super) tcp: [TcpListener; 2],
    pub(super) dns_udp: [UdpSocket; 2],
    dns_tcp: [TcpListener; 2],
}

impl Inside {
    fn seal() -> Self {
        Self::enclose(&Mode::Sealed)
    }

    pub(super) fn enclose(mode: &Mode) -> Self {
        let sockets = prepare(mode, None).unwrap();
        redirect(mode, &sockets, Path::new(NFT)).unwrap();
        let ports = sockets.ports().unwrap();
        let mut owned = sockets.descriptors().into_iter().map(|fd| {
            let fd = fd.try_clone_to_owned().unwrap();
            rustix::io::ioctl_fionbio(&fd, false).unwrap();
            fd
        });
        let mut next = || owned.next().unwrap();
        let (tcp4, udp4, dns4) = (next().into(), UdpSocket::from(next()), next().into());
        let (tcp6, udp6, dns6) = (next().into(), UdpSocket::from(next()), next().into());
        for udp in [&udp4, &udp6] {
            udp.set_read_timeout(Some(AMPLE)).unwrap();
        }
        Self { ports, tcp: [tcp4, tcp6], dns_udp: [udp4, udp6], dns_tcp: [dns4, dns6] }
    }
}

pub(super) fn connect(to: &str) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&to.parse().unwrap(), AMPLE)
}

pub(super) fn original(stream: &TcpStream) -> SocketAddr {
    match stream.local_addr().unwrap() {
        SocketAddr::V4(_) => sockopt::ip_original_dst(stream).unwrap().into(),
        SocketAddr::V6(_) => sockopt::ipv6_original_dst(stream).unwrap().into(),
    }
}

/// The error that sending `to` ends in; it must come at once.
pub(super) fn refused(from: &UdpSocket, to: SocketAddr) -> io::Error {
    from.set_read_timeout(Some(AMPLE)).unwrap();
    let start = Instant::now();
    let error = from
        .connect(to)
        .and_then(|()| from.send(b"x"))
        .and_then(|_| from.recv(&mut [0; 16]))
        .expect_err("a datagram went out, and an answer came");
    assert!(start.elapsed() < AMPLE, "{to}: silence instead of an error");
    error
}

pub(super) fn assert_refused(error: &io::Error, what: &str) {
    let kinds = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied, ErrorKind::HostUnreachable];
    assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
}

#[test]
fn every_tcp_port_of_every_address_reaches_the_listener_with_its_destination() {
    if !in_private_netns(
        "network::tests::every_tcp_port_of_every_address_reaches_the_listener_with_its_destination",
    ) {
        return;
    }
    let inside = Inside::seal();
    for (to, listener) in [
        ("1.2.3.4:443", 0),
        ("28.0.0.7:1", 0),
        ("10.0.0.1:65535", 0),
        ("169.254.169.254:80", 0),
        ("192.168.1.1:22", 0),
        ("[2001:db8::1]:443", 1),
        ("[fd00::1]:8080", 1),
    ] {
        let mut client = connect(to).unwrap();
        let (mut server, _) = inside.tcp[listener].accept().unwrap();
        assert_eq!(original(&server), to.parse().unwrap());
        client.write_all(b"ping").unwrap();
        let mut got = [0; 4];
        server.read_exact(&mut got).unwrap();
        server.write_all(b"pong").unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"pong", "{to}");
    }
    // An IPv6 socket that dials an IPv4 address.
    let _client = connect("[::ffff:1.2.3.4]:80").unwrap();
    let (server, _) = inside.tcp[0].accept().unwrap();
    assert_eq!(original(&server), "1.2.3.4:80".parse().unwrap());
}

#[test]
fn a_namespace_with_another_link_that_is_up_is_not_sealed() {
    if !in_private_netns("network::tests::a_namespace_with_another_link_that_is_up_is_not_sealed") {
        return;
    }
    let ip = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
    // As many as make the kernel answer in more than one packet; all of them down, like its own fallback tunnels.
    for number in 0..40 {
        ip(&["link", "add", &format!("link{number}"), "type", "bridge"]);
    }
    netlink::only_loopback().unwrap();
    ip(&["link", "set", "link39", "up"]);
    let error = prepare(&Mode::Sealed, None).unwrap_err().to_string();
    assert!(error.contains("link39") && error.contains("--network=none"), "{error}");
}

#[test]
fn a_client_cannot_choose_a_source_that_goes_around() {
    if !in_private_netns("network::tests::a_client_cannot_choose_a_source_that_goes_around") {
        return;
    }
    let inside = Inside::seal();
    // Every address is local, so a program can bind any of them, and listen where it dials.
    let squatter = TcpListener::bind("0.0.0.0:443").unwrap();
    squatter.set_nonblocking(true).unwrap();
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&fd, &"1.2.3.4:5555".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::connect(&fd, &"1.2.3.4:443".parse::<SocketAddr>().unwrap()).unwrap();
    let (server, _) = inside.tcp[0].accept().unwrap();
    assert_eq!(original(&server), "1.2.3.4:443".parse().unwrap());
    assert_eq!(squatter.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn dns_reaches_its_sockets_whatever_the_server() {
    if !in_private_netns("network::tests::dns_reaches_its_sockets_whatever_the_server") {
        return;
    }
    let inside = Inside::seal();
    for (server, family) in [
        ("8.8.8.8:53", 0),
        ("127.0.0.1:53", 0),
        ("127.0.0.53:53", 0),
        ("[2001:4860:4860::8888]:53", 1),
        ("[::1]:53", 1),
    ] {
        let any: IpAddr =
            if family == 0 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let client = UdpSocket::bind((any, 0)).unwrap();
        client.set_read_timeout(Some(AMPLE)).unwrap();
        client.send_to(b"query", server).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = inside.dns_udp[family].recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"query");
        inside.dns_udp[family].send_to(b"answer", from).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (b"answer".as_slice(), server.parse().unwrap()));

        let _client = connect(server).unwrap();
        inside.dns_tcp[family].accept().unwrap();
    }
}

#[test]
fn other_datagrams_are_refused_at_once_and_reach_nobody_inside() {
    if !in_private_netns("network::tests::other_datagrams_are_refused_at_once_and_reach_nobody_inside") {
        return;
    }
    let _inside = Inside::seal();
    let squatters: Vec<UdpSocket> = ["0.0.0.0:443", "[::]:4433"]
        .iter()
        .map(|address| {
            let squatter = UdpSocket::bind(address).unwrap();
            squatter.set_nonblocking(true).unwrap();
            squatter
        })
        .collect();
    for to in [
        "1.2.3.4:443",
        "1.2.3.4:4433",
        "255.255.255.255:443",
        "224.0.0.1:443",
        "[2001:db8::1]:443",
        "[2001:db8::1]:4433",
        "[ff02::1]:4433",
    ] {
        let to: SocketAddr = to.parse().unwrap();
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let client = UdpSocket::bind((any, 0)).unwrap();
        client.set_broadcast(true).unwrap();
        let error = refused(&client, to);
        if to.ip().is_multicast() || to.ip() == IpAddr::V4(Ipv4Addr::BROADCAST) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "{to}: {error}");
        } else {
            assert_refused(&error, &to.to_string());
        }
        for squatter in &squatters {
            assert_eq!(squatter.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock, "{to}");
        }
    }
}

#[test]
fn icmp_to_the_outside_is_refused() {
    if !in_private_netns("network::tests::icmp_to_the_outside_is_refused") {
        return;
    }
    let _inside = Inside::seal();
    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::ICMP)).unwrap();
    let to = |address: &str| SocketAddrV4::new(address.parse().unwrap(), 0);
    let errno = sendto(&raw, &echo, rustix::net::SendFlags::empty(), &to("1.2.3.4")).unwrap_err();
    assert_refused(&errno.into(), "echo request");
    sendto(&raw, &echo, rustix::net::SendFlags::empty(), &to("127.0.0.1")).unwrap();
}

#[test]
fn servers_on_loopback_work() {
    if !in_private_netns("network::tests::servers_on_loopback_work") {
        return;
    }
    let _inside = Inside::seal();
    for address in ["127.0.0.1:8080", "127.0.1.1:8081", "[::1]:8080"] {
        let listener = TcpListener::bind(address).unwrap();
        let mut client = connect(address).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        assert!(peer.ip().is_loopback());
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        udp.set_read_timeout(Some(AMPLE)).unwrap();
        udp.send_to(b"x", address).unwrap();
        udp.recv(&mut [0]).unwrap();
    }
    // A closed port says so at once.
    assert_eq!(connect("127.0.0.1:9").unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn knocking_at_the_listener_itself_shows() {
    if !in_private_netns("network::tests::knocking_at_the_listener_itself_shows") {
        return;
    }
    let inside = Inside::seal();
    for (family, listener) in inside.tcp.iter().enumerate() {
        let own = listener.local_addr().unwrap();
        let _client = TcpStream::connect(own).unwrap();
        let (server, _) = listener.accept().unwrap();
        // No entry, or one whose destination is the listener.
        let seen = if family == 0 {
            sockopt::ip_original_dst(&server).map(SocketAddr::from)
        } else {
            sockopt::ipv6_original_dst(&server).map(SocketAddr::from)
        };
        assert!(seen.is_err() || seen == Ok(own), "{seen:?}");
    }
}

#[test]
fn the_ports_cannot_be_squatted() {
    if !in_private_netns("network::tests::the_ports_cannot_be_squatted") {
        return;
    }
    let inside = Inside::seal();
    let Ports { v4: FamilyPorts { tcp, dns_udp, .. }, .. } = inside.ports;
    for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
        for (kind, port) in [(SocketType::STREAM, tcp), (SocketType::DGRAM, dns_udp)] {
            let fd = socket(AddressFamily::INET, kind, None).unwrap();
            sockopt::set_socket_reuseaddr(&fd, true).unwrap();
            sockopt::set_socket_reuseport(&fd, true).unwrap();
            let bound = rustix::net::bind(&fd, &SocketAddr::from((address, port)))
                .and_then(|()| rustix::net::listen(&fd, 1));
            assert!(bound.is_err(), "{address}:{port}");
        }
    }
}

#[test]
fn sealing_again_moves_everything_to_the_new_sockets() {
    if !in_private_netns("network::tests::sealing_again_moves_everything_to_the_new_sockets") {
        return;
    }
    let first = Inside::seal();
    let mut survivor = connect("1.2.3.4:443").unwrap();
    // The sidecar dies; a program inside takes the port that it had.
    let old = first.ports.v4.tcp;
    drop(first);
    let squatter = TcpListener::bind(("127.0.0.1", old)).unwrap();
    squatter.set_nonblocking(true).unwrap();
    let second = Inside::seal();
    assert_ne!(second.ports.v4.tcp, old);
    let _client = connect("1.2.3.4:443").unwrap();
    let (server, _) = second.tcp[0].accept().unwrap();
    assert_eq!(original(&server), "1.2.3.4:443".parse().unwrap());
    assert_eq!(squatter.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // A connection of the first sidecar's has ended.
    survivor.set_read_timeout(Some(AMPLE)).unwrap();
    assert!(!matches!(survivor.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock));
}

#[test]
fn a_resolver_with_one_source_port_reaches_the_new_sockets() {
    if !in_private_netns("network::tests::a_resolver_with_one_source_port_reaches_the_new_sockets") {
        return;
    }
    let first = Inside::seal();
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(Some(AMPLE)).unwrap();
    let ask = |inside: &Inside, server: &str| {
        client.send_to(b"query", server).unwrap();
        let (_, from) = inside.dns_udp[0].recv_from(&mut [0; 16]).unwrap();
        inside.dns_udp[0].send_to(b"answer", from).unwrap();
        client.recv(&mut [0; 16]).unwrap();
    };
    ask(&first, "8.8.8.8:53");
    drop(first);
    let second = Inside::seal();
    netlink::forget_connections().unwrap();
    ask(&second, "8.8.8.8:53");
}

#[test]
fn without_sockets_nothing_goes_out() {
    if !in_private_netns("network::tests::without_sockets_nothing_goes_out") {
        return;
    }
    drop(Inside::seal());
    for to in ["1.2.3.4:443", "[2001:db8::1]:443", "8.8.8.8:53"] {
        assert_eq!(connect(to).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
    }
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    assert_refused(&refused(&client, "8.8.8.8:53".parse().unwrap()), "dns");
}

#[test]
fn a_changed_ruleset_is_noticed() {
    if !in_private_netns("network::tests::a_changed_ruleset_is_noticed") {
        return;
    }
    let inside = Inside::seal();
    let ruleset = Ruleset::of(&Mode::Sealed, inside.ports);
    let nft = |arguments: &str| {
        let output = Command::new(NFT).args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let listing = || nft("-j list table inet understudy");
    nft::compare(&ruleset, &listing()).unwrap();
    for change in [
        "insert rule inet understudy output accept",
        "add chain inet understudy output { policy accept ; }",
        "add chain inet understudy more",
        "flush chain inet understudy divert",
        "delete chain inet understudy forward",
    ] {
        nft::apply(Path::new(NFT), &ruleset).unwrap();
        nft(change);
        assert!(nft::compare(&ruleset, &listing()).is_err(), "{change}");
    }
    let Ports { v4, v6 } = inside.ports;
    let other = Ruleset::of(&Mode::Sealed, Ports { v4: FamilyPorts { tcp: v4.tcp ^ 1, ..v4 }, v6 });
    nft::apply(Path::new(NFT), &ruleset).unwrap();
    assert!(nft::compare(&other, &listing()).is_err());
}

#[test]
fn a_namespace_that_has_ipv6_off_gets_it_back() {
    if !in_private_netns("network::tests::a_namespace_that_has_ipv6_off_gets_it_back") {
        return;
    }
    for link in ["all", "lo", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
    }
    let inside = Inside::seal();
    let _client = connect("[2001:db8::1]:443").unwrap();
    inside.tcp[1].accept().unwrap();
}

#[test]
fn a_missing_or_failing_nft_is_an_error() {
    if !in_private_netns("network::tests::a_missing_or_failing_nft_is_an_error") {
        return;
    }
    let sockets = prepare(&Mode::Sealed, None).unwrap();
    for nft in ["/no/such/nft", "/bin/false", "/bin/true"] {
        let error = redirect(&Mode::Sealed, &sockets, Path::new(nft)).unwrap_err();
        assert!(error.to_string().contains("nft"), "{nft}: {error:#}");
    }
    // There is still no route to anywhere.
    assert_eq!(connect("1.2.3.4:443").unwrap_err().kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn sealing_enters_checks_and_leaves() {
    if !in_private_netns("network::tests::sealing_enters_checks_and_leaves") {
        return;
    }
    let container = Neighbour::start();
    let process = crate::process::Process::open(container.pid()).unwrap();
    let netns = Netns::of_container(&process, &netns::Forbidden::host().unwrap()).unwrap();
    let sealed = enclose(&netns, None, &Mode::Sealed, Path::new(NFT)).unwrap();
    // Here, outside, nothing has changed.
    assert_eq!(connect("1.2.3.4:443").unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    let again = enclose(&netns, Some(sealed.netns), &Mode::Sealed, Path::new(NFT)).unwrap();
    assert_eq!(again.netns, sealed.netns);
    let listing =
        || netns.inside(|| Ok(Command::new(NFT).args(["list", "ruleset"]).output()?.stdout)).unwrap();
    let before = listing();
    for other in [
        NetnsId { cookie: sealed.netns.cookie + 1, ..sealed.netns },
        NetnsId { inode: sealed.netns.inode + 1, ..sealed.netns },
        NetnsId { device: sealed.netns.device + 1, ..sealed.netns },
    ] {
        let error = enclose(&netns, Some(other), &Mode::Sealed, Path::new(NFT)).unwrap_err();
        assert!(error.to_string().contains("network namespace"), "{error:#}");
    }
    assert_eq!(listing(), before);
    netns
        .inside(|| {
            assert!(connect("1.2.3.4:443").is_ok());
            Ok(())
        })
        .unwrap();
}

/// What the sidecar relies on, which is elsewhere and has nothing but the socket: tcp_disconnect() leaves it as it was made,
/// in whatever state its connection is.
#[test]
fn an_outgoing_socket_reaches_its_own_namespace_from_elsewhere_again_and_again() {
    if !in_private_netns(
        "network::tests::an_outgoing_socket_reaches_its_own_namespace_from_elsewhere_again_and_again",
    ) {
        return;
    }
    let container = Neighbour::start();
    let process = crate::process::Process::open(container.pid()).unwrap();
    let netns = Netns::of_container(&process, &netns::Forbidden::host().unwrap()).unwrap();
    let enclosed = enclose(&netns, None, &Mode::Sealed, Path::new(NFT)).unwrap();
    let enclosed = enclosed.publishing(&netns, true).unwrap();
    let (roles, descriptors) = (enclosed.sockets.roles(), enclosed.sockets.descriptors());
    assert_eq!((roles, descriptors.len()), (SocketRole::of(true), MAX_DESCRIPTORS));
    netns.inside(|| listeners::only_the_sidecars(Path::new("/proc/thread-self"))).unwrap();
    netlink::loopback_up().unwrap();
    for (number, loopback) in [(6, "127.0.0.1"), (descriptors.len() - 1, "[::1]")] {
        let socket = descriptors[number];
        assert_eq!(sys::netns_cookie(socket).unwrap(), enclosed.netns.cookie);
        rustix::io::ioctl_fionbio(socket, false).unwrap();
        let at = |port: u16| format!("{loopback}:{port}").parse::<SocketAddr>().unwrap();
        let listener = netns.inside(|| Ok(TcpListener::bind(at(3000))?)).unwrap();
        assert!(TcpStream::connect(at(3000)).is_err(), "it listens here, too: this shows nothing");
        // On the same socket: the descriptor of the stream is another.
        let again = |how: &str| {
            rustix::net::connect_unspec(socket).unwrap();
            rustix::net::connect(socket, &at(3000))
                .unwrap_or_else(|error| panic!("{loopback} {how}: {error}"));
            let mut stream = TcpStream::from(socket.try_clone_to_owned().unwrap());
            stream.set_read_timeout(Some(AMPLE)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            stream.write_all(how.as_bytes()).unwrap();
            let mut heard = vec![0; how.len()];
            server.read_exact(&mut heard).unwrap();
            assert_eq!(heard, how.as_bytes());
            (stream, server)
        };
        let (_, server) = again("as it was made");
        let (_, mut other) = again("while it was connected");
        assert_eq!((&server).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        other.write_all(b"unread").unwrap();
        let (mut stream, mut server) = again("with unread bytes");
        server.write_all(b"read").unwrap();
        drop(server);
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "read");
        let (mut stream, mut server) = again("after the server's end");
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        server.write_all(b"late").unwrap();
        drop(server);
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "readlate");
        let _ = again("after its own end and the server's");
        rustix::net::connect_unspec(socket).unwrap();
        assert!(rustix::net::connect(socket, &at(3001)).is_err());
        let _ = again("after a refusal");
    }
}

#[test]
fn no_port_stands_for_two_sockets_though_the_kernel_would_choose_it_twice() {
    if !in_private_netns(
        "network::tests::no_port_stands_for_two_sockets_though_the_kernel_would_choose_it_twice",
    ) {
        return;
    }
    // as many as are needed, so that one family's choice is always the other's, too
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap();
    let Ports { v4, v6 } = prepare(&Mode::Sealed, None).unwrap().ports().unwrap();
    let mut tcp = [v4.tcp, v4.dns_tcp, v6.tcp, v6.dns_tcp];
    tcp.sort_unstable();
    assert_eq!(tcp, [40000, 40001, 40002, 40003]);
    assert_ne!(v4.dns_udp, v6.dns_udp);
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40002").unwrap();
    assert!(prepare(&Mode::Sealed, None).is_err(), "three ports for four sockets");
}
