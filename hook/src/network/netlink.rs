//! What the hook asks of rtnetlink(7), in the calling thread's network namespace.

use std::io;

use anyhow::{Context as _, Result, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{
    Socket, SocketAddr,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};

use super::mode::Mode;

/// `LOOPBACK_IFINDEX` of the kernel: `lo` is the first link of every network namespace.
const LOOPBACK: u32 = 1;

/// A metric beyond all that are in use, and below what the kernel keeps for itself.
const LAST: u32 = 0x7fff_ffff;

/// `RT_TABLE_LOCAL` of rtnetlink(7), where ip-route(8) puts routes of type `local` too.
const TABLE_LOCAL: u8 = 255;

/// `ip link set lo up`, after which `lo` has 127.0.0.1/8 and, if IPv6 is on, ::1/128.
pub(crate) fn loopback_up() -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = LOOPBACK;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(message), 0).context("lo cannot be brought up")
}

/// So that connect(2) to any address finds a route and is redirected, also where the network has none (an `--internal`
/// one, or one without IPv6). Routes that are there already are fine.
pub(crate) fn default_routes(mode: &Mode) -> Result<()> {
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let route = match mode {
            Mode::Sealed => local_default(family),
            Mode::Guarded { .. } => last_default(family),
        };
        match request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => {
                other.with_context(|| format!("the default route of {family:?} cannot be made"))?;
            }
        }
    }
    Ok(())
}

/// Fails if the namespace has a link besides `lo` that is up: then it is not sealed, whatever the rules say. Links that
/// are down are the kernel's own (`sit0`, `tunl0`), or need a capability to be brought up.
pub(crate) fn only_loopback() -> Result<()> {
    match other_links().context("the container's network interfaces cannot be listed")?.as_slice() {
        [] => Ok(()),
        [name, ..] => bail!("it has a network: interface {name} is up (add --network=none)"),
    }
}

fn other_links() -> io::Result<Vec<String>> {
    let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let socket = opened(NETLINK_ROUTE)?;
    socket.send(&serialized(message, NLM_F_REQUEST | NLM_F_DUMP), 0)?;
    let mut up = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(up),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => up.extend(other(&link)),
                other => return Err(io::Error::other(format!("unexpected answer of netlink: {other:?}"))),
            }
            // NLMSG_ALIGN of netlink(3).
            let length =
                usize::try_from(message.header.length).map_or(0, |length| length.next_multiple_of(4));
            rest = rest.get(length.max(4)..).unwrap_or_default();
        }
    }
}

fn other(link: &LinkMessage) -> Option<String> {
    if !link.header.flags.contains(LinkFlags::Up) || link.header.flags.contains(LinkFlags::Loopback) {
        return None;
    }
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    Some(name.unwrap_or_else(|| link.header.index.to_string()))
}

/// Forgets every connection, `conntrack -F`: one that is known keeps the port that it was redirected to, so a resolver
/// with one source port would go on asking a socket that is gone. Nothing opens by it: what comes next is matched anew.
pub(crate) fn forget_connections() -> io::Result<()> {
    // linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h. A message without attributes means all.
    const CTNETLINK: u16 = 1;
    const DELETE: u16 = 2;
    let mut bytes = Vec::new();
    bytes.extend(20_u32.to_ne_bytes());
    bytes.extend(((CTNETLINK << 8) | DELETE).to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    // struct nfgenmsg: any family, version 0, resource 0.
    bytes.extend([0; 4]);
    exchange(NETLINK_NETFILTER, &bytes)
}

/// `ip [-6] route add local default dev lo`: every address is one of this namespace's own.
fn local_default(family: AddressFamily) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = TABLE_LOCAL;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes.push(RouteAttribute::Oif(LOOPBACK));
    message
}

/// `ip [-6] route add default dev lo metric N`, after every route that a network may have. No address becomes local by it,
/// which would let in what is for another.
fn last_default(family: AddressFamily) -> RouteMessage {
    let mut message = local_default(family);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.scope =
        if family == AddressFamily::Inet { RouteScope::Link } else { RouteScope::Universe };
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Priority(LAST));
    message
}

/// Sends one request and waits for the kernel's answer, which it gives before sendto(2) returns.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    exchange(NETLINK_ROUTE, &serialized(message, NLM_F_REQUEST | NLM_F_ACK | flags))
}

fn serialized(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

fn opened(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn exchange(protocol: isize, bytes: &[u8]) -> io::Result<()> {
    let socket = opened(protocol)?;
    socket.send(bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) => match error.code {
            None => Ok(()),
            Some(_) => Err(error.to_io()),
        },
        other => Err(io::Error::other(format!("unexpected answer of netlink: {other:?}"))),
    }
}
