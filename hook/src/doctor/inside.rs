//! What createRuntime does, tried in a network namespace that is thrown away.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::{acceptfrom, sockopt};

use crate::network;
use crate::network::mode::Mode;

const LIMIT: Duration = Duration::from_secs(5);

/// Addresses of documentation (RFC 5737, RFC 3849), which nobody answers.
const OUTSIDE: [&str; 2] = ["192.0.2.1:443", "[2001:db8::1]:443"];

/// In the calling thread's network namespace, which must be a new one: what the rules are for must happen.
pub(crate) fn run(nft: &Path) -> Result<()> {
    // Refuses to change a namespace that anything else lives in.
    let links = std::fs::read_to_string("/proc/thread-self/net/dev").context("/proc/thread-self/net/dev")?;
    ensure!(
        links.lines().skip(2).all(|line| line.trim_start().starts_with("lo:")),
        "not a namespace of its own"
    );
    let sockets = network::prepare(&Mode::Sealed, None)?;
    sockets.cookie()?;
    network::redirect(&Mode::Sealed, &sockets, nft)?;
    let descriptors = sockets.descriptors();
    // TCP is the first of each family's three.
    for (outside, listener) in OUTSIDE.iter().zip(descriptors.iter().step_by(3)) {
        let outside: SocketAddr = outside.parse()?;
        redirected(outside, listener).with_context(|| format!("a connection to {outside}"))?;
        let datagram = UdpSocket::bind(if outside.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        datagram.set_read_timeout(Some(LIMIT))?;
        let sent = datagram.connect(outside).and_then(|()| datagram.send(b"x"));
        if sent.and_then(|_| datagram.recv(&mut [0])).is_ok() {
            bail!("a datagram to {outside} was not rejected");
        }
    }
    Ok(())
}

fn redirected(outside: SocketAddr, listener: impl AsFd) -> Result<()> {
    let _client = TcpStream::connect_timeout(&outside, LIMIT).context("was not redirected")?;
    let (accepted, _) = acceptfrom(&listener).context("was redirected elsewhere")?;
    let original: SocketAddr = match outside {
        SocketAddr::V4(_) => sockopt::ip_original_dst(&accepted)?.into(),
        SocketAddr::V6(_) => sockopt::ipv6_original_dst(&accepted)?.into(),
    };
    ensure!(original == outside, "arrived as one to {original}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_private_netns;

    #[test]
    fn a_new_namespace_passes_and_a_missing_nft_is_named() {
        if !in_private_netns("doctor::inside::tests::a_new_namespace_passes_and_a_missing_nft_is_named") {
            return;
        }
        let error = run(Path::new("/no/such/nft")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/nft"), "{error:#}");
        run(Path::new("/usr/sbin/nft")).unwrap();
    }
}
