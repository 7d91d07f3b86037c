//! What travels beside the descriptors of an `Attach`.

use serde::{Deserialize, Serialize};

use crate::ContainerId;

/// Which network namespace the sockets were made in. All three together, since an inode number is used again
/// once a namespace is gone and a cookie is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetnsId {
    /// `st_dev` of the nsfs file.
    pub device: u64,
    /// `st_ino` of the nsfs file.
    pub inode: u64,
    /// `SO_NETNS_COOKIE` of a socket made inside (Linux 5.14).
    pub cookie: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    V4,
    V6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketKind {
    /// A listening TCP socket, to which every TCP port but 53 is redirected.
    Tcp,
    /// A bound UDP socket, to which UDP port 53 is redirected.
    DnsUdp,
    /// A listening TCP socket, to which TCP port 53 is redirected.
    DnsTcp,
    /// A TCP socket that is neither bound nor connected, by which the sidecar reaches what listens inside.
    Outgoing,
}

/// Connections at once to what a container publishes, in each address family.
const AT_ONCE: usize = 16;

/// What one descriptor of the packet is, in the packet's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketRole {
    pub family: Family,
    pub kind: SocketKind,
}

impl SocketRole {
    /// The six sockets of every container, in the order in which they are sent.
    pub const ALL: [SocketRole; 6] = [
        SocketRole { family: Family::V4, kind: SocketKind::Tcp },
        SocketRole { family: Family::V4, kind: SocketKind::DnsUdp },
        SocketRole { family: Family::V4, kind: SocketKind::DnsTcp },
        SocketRole { family: Family::V6, kind: SocketKind::Tcp },
        SocketRole { family: Family::V6, kind: SocketKind::DnsUdp },
        SocketRole { family: Family::V6, kind: SocketKind::DnsTcp },
    ];

    /// Those that follow them for a container with `understudy.publish`.
    pub const OUTGOING: [SocketRole; 2 * AT_ONCE] = {
        let mut all = [SocketRole { family: Family::V4, kind: SocketKind::Outgoing }; 2 * AT_ONCE];
        let (_, second) = all.split_at_mut(AT_ONCE);
        let mut at = 0;
        while at < second.len() {
            second[at].family = Family::V6;
            at += 1;
        }
        all
    };

    /// All of a container's, in their order.
    pub fn of(publishes: bool) -> Vec<Self> {
        let outgoing: &[Self] = if publishes { &Self::OUTGOING } else { &[] };
        [&Self::ALL, outgoing].concat()
    }
}

/// Hands a prepared container's sockets over. The packet carries one descriptor for each role, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    pub id: ContainerId,
    pub netns: NetnsId,
    pub sockets: Vec<SocketRole>,
}
