//! The sockets of a container, made inside its network namespace.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt};
use understudy_control::{Family, SocketKind, SocketRole, sys};

/// The kernel caps it at `net.core.somaxconn`, which is 4096 in a new namespace.
const BACKLOG: i32 = 4096;

/// In the order of `SocketRole::of`. Those that are listened on are bound to loopback addresses, to which a redirect rewrites
/// destinations: an answer from a wildcard socket would have another source, and connection tracking would not know it.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<(SocketRole, OwnedFd)>);

/// Where a ruleset redirects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    pub v4: FamilyPorts,
    pub v6: FamilyPorts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FamilyPorts {
    pub(crate) tcp: u16,
    pub(crate) dns_udp: u16,
    pub(crate) dns_tcp: u16,
}

impl Sockets {
    /// Makes them in the calling thread's network namespace, whose `lo` must be up.
    pub(crate) fn bind() -> Result<Self> {
        let mut taken = Vec::new();
        SocketRole::ALL
            .iter()
            .map(|role| Ok((*role, apart(*role, &mut taken).with_context(|| format!("{role:?} socket"))?)))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Adds those by which the sidecar reaches what listens in the calling thread's network namespace. A socket stays in
    /// the namespace that it was made in, whoever connects it, and can be connected again once it was disconnected.
    pub(crate) fn add_outgoing(&mut self) -> Result<()> {
        for role in SocketRole::OUTGOING {
            self.0.push((role, made(role)?));
        }
        Ok(())
    }

    /// What each of `descriptors` is.
    pub(crate) fn roles(&self) -> Vec<SocketRole> {
        self.0.iter().map(|(role, _)| *role).collect()
    }

    pub(crate) fn ports(&self) -> Result<Ports> {
        let mut ports = Ports { v4: FamilyPorts::default(), v6: FamilyPorts::default() };
        for (role, socket) in &self.0 {
            let family = match role.family {
                Family::V4 => &mut ports.v4,
                Family::V6 => &mut ports.v6,
            };
            match role.kind {
                SocketKind::Tcp => family.tcp = port(socket)?,
                SocketKind::DnsUdp => family.dns_udp = port(socket)?,
                SocketKind::DnsTcp => family.dns_tcp = port(socket)?,
                SocketKind::Outgoing => {}
            }
        }
        Ok(ports)
    }

    /// The cookie of the network namespace that they were made in.
    pub(crate) fn cookie(&self) -> Result<u64> {
        let (_, socket) = self.0.first().ok_or_else(|| anyhow!("no sockets"))?;
        sys::netns_cookie(socket).context("SO_NETNS_COOKIE (needs Linux 5.14)")
    }

    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|(_, socket)| socket.as_fd()).collect()
    }
}

/// On a port that stands for no other socket, whatever its family: the kernel chooses for each family alone, and the
/// sidecar refuses doubles. Those that clash are held until there is one that does not, or they would come again.
fn apart(role: SocketRole, taken: &mut Vec<(bool, u16)>) -> Result<OwnedFd> {
    let mut clashing = Vec::new();
    loop {
        let socket = bound(role)?;
        let choice = (role.kind == SocketKind::DnsUdp, port(&socket)?);
        if !taken.contains(&choice) {
            taken.push(choice);
            return Ok(socket);
        }
        clashing.push(socket);
    }
}

fn port(socket: &OwnedFd) -> Result<u16> {
    let address: SocketAddr = getsockname(socket)?.try_into().map_err(io::Error::from)?;
    Ok(address.port())
}

/// Without any reuse option, so that no other socket can share the port: std's listeners set SO_REUSEADDR.
fn bound(role: SocketRole) -> Result<OwnedFd> {
    let address: IpAddr = match role.family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    let socket = made(role)?;
    bind(&socket, &SocketAddr::new(address, 0))
        .map_err(io::Error::from)
        .with_context(|| format!("bind to {address}"))?;
    if kind(role) == SocketType::STREAM {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

fn kind(role: SocketRole) -> SocketType {
    match role.kind {
        SocketKind::Tcp | SocketKind::DnsTcp | SocketKind::Outgoing => SocketType::STREAM,
        SocketKind::DnsUdp => SocketType::DGRAM,
    }
}

fn made(role: SocketRole) -> Result<OwnedFd> {
    let family = match role.family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind(role), flags, None).map_err(|errno| match errno {
        rustix::io::Errno::AFNOSUPPORT => {
            anyhow!("this kernel has IPv6 switched off (remove ipv6.disable=1 from its command line)")
        }
        other => io::Error::from(other).into(),
    })?;
    if role.family == Family::V6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Gives `lo` its IPv6 address back where the host's settings took it from new namespaces. A kernel without IPv6
/// has none of these files; the sockets say so.
pub(crate) fn enable_ipv6() -> Result<()> {
    for link in ["all", "lo"] {
        let path = format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6");
        match fs::read_to_string(&path) {
            Ok(value) if value.trim() == "0" => {}
            Ok(_) => fs::write(&path, "0").with_context(|| {
                format!("IPv6 is off in the container and {path} cannot be written (set net.ipv6.conf.{link}.disable_ipv6=0 on the host)")
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => bail!("{path} cannot be read: {error}"),
        }
    }
    Ok(())
}
