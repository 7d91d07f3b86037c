//! Which addresses are not the public Internet: what a name must not lead to unless the operator says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// IANA's special-purpose IPv4 blocks (RFC 6890 and its registry), multicast and class E.
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 31, 196, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// Parts of the global unicast block 2000::/3 that carry IPv4 addresses inside or are for documentation. All that is
/// outside of that block (loopback, link-local, unique local, mapped, NAT64, multicast) is special anyway.
const SPECIAL_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Whether `address` is anything but an ordinary public unicast address.
pub fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => SPECIAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            !GLOBAL_UNICAST.contains(&address) || SPECIAL_V6.iter().any(|net| net.contains(&address))
        }
    }
}

/// Private networks (RFC 1918, RFC 6598, RFC 4193), which a rule can open: never loopback, the link with its metadata
/// services, or an IPv4 address inside an IPv6 one.
const PRIVATE_V4: [Ipv4Net; 4] =
    [v4(10, 0, 0, 0, 8), v4(100, 64, 0, 0, 10), v4(172, 16, 0, 0, 12), v4(192, 168, 0, 0, 16)];
const PRIVATE_V6: Ipv6Net = v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7);

/// Metadata services of clouds that are within them (AWS over IPv6, Alibaba).
const METADATA: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

/// Whether `private = true` is enough for `address`.
pub fn is_private(address: IpAddr) -> bool {
    !METADATA.contains(&address)
        && match address {
            IpAddr::V4(address) => PRIVATE_V4.iter().any(|net| net.contains(&address)),
            IpAddr::V6(address) => PRIVATE_V6.contains(&address),
        }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(s: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_addresses_in_every_form_are_special() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(is_special(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        for address in
            ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::8888"]
        {
            assert!(!is_special(address.parse().unwrap()), "{address}");
        }
    }
}
