//! Descriptors from a packet to sockets that are what they are said to be.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, sockopt};
use understudy_control::{Attach, Family, SocketKind, SocketRole};

/// A container's sockets, non-blocking, checked. IPv4 first in each.
#[derive(Debug)]
pub struct Sockets {
    pub tcp: Vec<std::net::TcpListener>,
    pub dns_udp: Vec<std::net::UdpSocket>,
    pub dns_tcp: Vec<std::net::TcpListener>,
    /// Neither bound nor connected, of a container that publishes ports.
    pub outgoing: Vec<(Family, OwnedFd)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    #[error("expected {expected} descriptors, got {found}")]
    Count { expected: usize, found: usize },
    #[error("expected the sockets {:?}, and none or all of those to connect by", SocketRole::ALL)]
    Roles,
    #[error("descriptor {index} ({role:?}): {why}")]
    Wrong { index: usize, role: SocketRole, why: String },
    #[error("the sockets are of the sidecar's own network namespace")]
    OwnNetns,
}

/// Checks every descriptor against its role and the namespace that was told; all are closed if one is wrong.
/// `own_cookie` names the sidecar's network namespace.
pub fn verify(
    attach: &Attach,
    descriptors: Vec<OwnedFd>,
    own_cookie: u64,
) -> Result<Sockets, DescriptorError> {
    let roles = SocketRole::of(attach.sockets.len() > SocketRole::ALL.len());
    if attach.sockets != roles {
        return Err(DescriptorError::Roles);
    }
    if descriptors.len() != roles.len() {
        return Err(DescriptorError::Count { expected: roles.len(), found: descriptors.len() });
    }
    if attach.netns.cookie == own_cookie {
        return Err(DescriptorError::OwnNetns);
    }
    let (tcp, dns_udp, dns_tcp, outgoing) = Default::default();
    let mut sockets = Sockets { tcp, dns_udp, dns_tcp, outgoing };
    let mut ports = Vec::new();
    for (index, (role, descriptor)) in roles.into_iter().zip(descriptors).enumerate() {
        let wrong = |why: String| DescriptorError::Wrong { index, role, why };
        let port = check(role, descriptor.as_fd(), attach.netns.cookie).map_err(wrong)?;
        if port != 0 && ports.contains(&(role.kind == SocketKind::DnsUdp, port)) {
            return Err(wrong(format!("port {port} stands for two sockets")));
        }
        ports.push((role.kind == SocketKind::DnsUdp, port));
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(|e| wrong(e.to_string()))?;
        match role.kind {
            SocketKind::Tcp => sockets.tcp.push(descriptor.into()),
            SocketKind::DnsUdp => sockets.dns_udp.push(descriptor.into()),
            SocketKind::DnsTcp => sockets.dns_tcp.push(descriptor.into()),
            SocketKind::Outgoing => sockets.outgoing.push((role.family, descriptor)),
        }
    }
    Ok(sockets)
}

/// The socket's port, or 0 if it is to have none, if it is exactly what its role says.
fn check(role: SocketRole, socket: BorrowedFd<'_>, cookie: u64) -> Result<u16, String> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |errno: rustix::io::Errno| format!("{what}: {errno}")
    };
    let (family, loopback): (_, IpAddr) = match role.family {
        Family::V4 => (AddressFamily::INET, [127, 0, 0, 1].into()),
        Family::V6 => (AddressFamily::INET6, [0, 0, 0, 0, 0, 0, 0, 1].into()),
    };
    let (kind, listening) = match role.kind {
        SocketKind::Tcp | SocketKind::DnsTcp => (SocketType::STREAM, true),
        SocketKind::DnsUdp => (SocketType::DGRAM, false),
        SocketKind::Outgoing => (SocketType::STREAM, false),
    };
    let found = sockopt::socket_domain(socket).map_err(io("not a socket"))?;
    if found != family {
        return Err(format!("its address family is {found:?}"));
    }
    let found = sockopt::socket_type(socket).map_err(io("type"))?;
    if found != kind {
        return Err(format!("its type is {found:?}"));
    }
    if sockopt::socket_acceptconn(socket).map_err(io("listening"))? != listening {
        return Err(if listening { "it does not listen" } else { "it listens" }.to_owned());
    }
    if sockopt::socket_reuseaddr(socket).map_err(io("SO_REUSEADDR"))?
        || sockopt::socket_reuseport(socket).map_err(io("SO_REUSEPORT"))?
    {
        return Err("it may be bound twice (SO_REUSEADDR or SO_REUSEPORT)".to_owned());
    }
    let found = understudy_control::sys::netns_cookie(socket).map_err(|e| format!("SO_NETNS_COOKIE: {e}"))?;
    if found != cookie {
        return Err("it is of another network namespace".to_owned());
    }
    let name = getsockname(socket).map_err(io("address"))?;
    let address = SocketAddr::try_from(name).map_err(io("address"))?;
    if role.kind == SocketKind::Outgoing {
        return match address.port() == 0 && getpeername(socket).is_err() {
            true => Ok(0),
            false => Err(format!("it is bound to {address} or connected")),
        };
    }
    if address.ip() != loopback || address.port() == 0 {
        return Err(format!("it is bound to {address}, not to {loopback} and a port"));
    }
    Ok(address.port())
}

#[cfg(test)]
pub(in crate::attach) mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, UdpSocket};

    use understudy_control::NetnsId;

    use super::*;

    /// What the hook would send of a container whose id is `id`, 64 times.
    pub(in crate::attach) fn good(id: &str) -> (Attach, Vec<OwnedFd>) {
        let (v4, v6) = ("127.0.0.1:0", "[::1]:0");
        let descriptors = loop {
            let descriptors = vec![tcp(v4), udp(v4), tcp(v4), tcp(v6), udp(v6), tcp(v6)];
            // The kernel chooses for each family alone, and doubles are refused.
            let ports: BTreeSet<_> =
                descriptors.iter().enumerate().map(|(n, fd)| (n % 3 == 1, port(fd))).collect();
            if ports.len() == descriptors.len() {
                break descriptors;
            }
        };
        let cookie = understudy_control::sys::netns_cookie(&descriptors[0]).unwrap();
        let netns = NetnsId { device: 4, inode: 1, cookie };
        let attach = Attach { id: id.repeat(64).parse().unwrap(), netns, sockets: SocketRole::ALL.to_vec() };
        (attach, descriptors)
    }

    /// The same of one that publishes ports.
    pub(in crate::attach) fn publishing(id: &str) -> (Attach, Vec<OwnedFd>) {
        let (attach, mut descriptors) = good(id);
        descriptors.extend(SocketRole::OUTGOING.iter().map(|role| outgoing(role.family)));
        (Attach { sockets: SocketRole::of(true), ..attach }, descriptors)
    }

    fn outgoing(family: Family) -> OwnedFd {
        let family = match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        rustix::net::socket(family, SocketType::STREAM, None).unwrap()
    }

    fn tcp(address: &str) -> OwnedFd {
        // The standard library sets SO_REUSEADDR on listeners; the hook's never have it.
        let listener = TcpListener::bind(address).unwrap();
        sockopt::set_socket_reuseaddr(&listener, false).unwrap();
        listener.into()
    }

    fn udp(address: &str) -> OwnedFd {
        UdpSocket::bind(address).unwrap().into()
    }

    fn port(socket: &OwnedFd) -> u16 {
        SocketAddr::try_from(getsockname(socket).unwrap()).unwrap().port()
    }

    #[test]
    fn the_six_sockets_pass() {
        let (attach, descriptors) = good("a");
        let sockets = verify(&attach, descriptors, 0).unwrap();
        assert_eq!((sockets.tcp.len(), sockets.dns_udp.len(), sockets.dns_tcp.len()), (2, 2, 2));
    }

    #[test]
    fn those_to_connect_by_come_all_or_not_at_all() {
        let (attach, descriptors) = publishing("a");
        assert_eq!(verify(&attach, descriptors, 0).unwrap().outgoing.len(), SocketRole::OUTGOING.len());
        let (mut attach, mut descriptors) = publishing("a");
        descriptors.pop();
        assert!(matches!(verify(&attach, descriptors, 0), Err(DescriptorError::Count { .. })));
        attach.sockets.pop();
        assert_eq!(verify(&attach, publishing("a").1, 0).unwrap_err(), DescriptorError::Roles);
    }

    #[test]
    fn one_to_connect_by_is_neither_bound_nor_connected_nor_a_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bound = outgoing(Family::V4);
        rustix::net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        for (bad, needle) in [
            (OwnedFd::from(connected), "or connected"),
            (bound, "bound to"),
            (listener.into(), "it listens"),
            (outgoing(Family::V6), "family"),
            (udp("127.0.0.1:0"), "type"),
        ] {
            let (attach, mut descriptors) = publishing("a");
            descriptors[6] = bad;
            let error = verify(&attach, descriptors, 0).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains("descriptor 6"), "{error}");
        }
    }

    #[test]
    fn the_sidecars_own_namespace_is_refused() {
        let (attach, descriptors) = good("a");
        let own = attach.netns.cookie;
        assert_eq!(verify(&attach, descriptors, own).unwrap_err(), DescriptorError::OwnNetns);
    }

    #[test]
    fn another_number_or_order_of_roles_is_refused() {
        let (mut attach, mut descriptors) = good("a");
        descriptors.pop();
        assert!(matches!(verify(&attach, descriptors, 0), Err(DescriptorError::Count { found: 5, .. })));
        attach.sockets.swap(0, 1);
        assert_eq!(verify(&attach, good("a").1, 0).unwrap_err(), DescriptorError::Roles);
    }

    #[test]
    fn a_descriptor_of_another_kind_is_named() {
        let wrong = |index: usize, bad: OwnedFd, needle: &str| {
            let (attach, mut descriptors) = good("a");
            descriptors[index] = bad;
            let error = verify(&attach, descriptors, 0).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains(&format!("descriptor {index}")), "{error}");
        };
        wrong(0, std::fs::File::open("/dev/null").unwrap().into(), "not a socket");
        wrong(0, UdpSocket::bind("127.0.0.1:0").unwrap().into(), "type");
        wrong(0, TcpListener::bind("[::1]:0").unwrap().into(), "family");
        wrong(0, TcpListener::bind("127.0.0.1:0").unwrap().into(), "SO_REUSEADDR");
        wrong(1, UdpSocket::bind("0.0.0.0:0").unwrap().into(), "0.0.0.0");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        wrong(2, connected.into(), "does not listen");
        let unbound = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        wrong(1, unbound, "bound to");
    }

    #[test]
    fn sockets_of_another_namespace_than_told_are_refused() {
        let (mut attach, descriptors) = good("a");
        attach.netns.cookie ^= 1;
        assert!(
            verify(&attach, descriptors, 0).unwrap_err().to_string().contains("another network namespace")
        );
    }
}
