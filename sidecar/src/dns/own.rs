//! Which addresses are the sidecar's own: what listens there listens for its operator, and for no container.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use crate::publish::Ports;

/// What of this machine may not be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Closed {
    /// All of it.
    Whole,
    /// The operator pinned a name to it: the sidecar's own ports alone.
    Ports(Arc<Ports>),
}

impl Closed {
    pub(super) fn refuses(&self, address: SocketAddr) -> bool {
        match self {
            Self::Ports(ports) if !ports.contain(address.port()) => false,
            Self::Whole | Self::Ports(_) => is_own(address.ip()),
        }
    }
}

/// Asks the kernel: it sends to an address of its own from that very address. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Whatever there is no way to is nobody's that could be reached.
    let source = UdpSocket::bind((any, 0)).and_then(|probe| {
        probe.connect((address, 9))?;
        probe.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address of this machine by which it reaches others, if it has one.
    fn outward() -> Option<IpAddr> {
        let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
        probe.connect("192.0.2.1:9").ok()?;
        Some(probe.local_addr().unwrap().ip())
    }

    #[test]
    fn its_own_addresses_are_told_from_others() {
        for own in ["127.0.0.1", "127.8.9.10", "0.0.0.0", "::1", "::"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        for other in ["192.0.2.1", "1.1.1.1", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
        assert!(outward().is_none_or(is_own), "{:?}", outward());
    }

    #[test]
    fn a_pinned_name_reaches_all_of_this_machine_but_the_ports_of_the_sidecar() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(Closed::Whole.refuses(at("127.0.0.1:443")) && !Closed::Whole.refuses(at("192.0.2.1:443")));
        let closed = Closed::Ports(Arc::new(Ports::default().with(Some(9464))));
        assert!(closed.refuses(at("127.0.0.1:9464")) && closed.refuses(at("[::1]:9464")));
        assert!(!closed.refuses(at("127.0.0.1:443")) && !closed.refuses(at("192.0.2.1:9464")));
        assert!(!Closed::Ports(Arc::default()).refuses(at("127.0.0.1:9464")));
    }
}
