//! What listens in a network namespace before the container's first process, proc_pid_net(5).
//!
//! Podman's pasta can listen inside for a port of the host's (`--network=pasta:-T,5432`): a way out over loopback, which no
//! rule closes.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// TCP_LISTEN, and what a UDP socket without a peer has (include/net/tcp_states.h).
const LISTENING: &str = "0A";
const UNCONNECTED: &str = "07";

/// Fails unless the sockets of the sidecar's are all that listens, in the calling process's network namespace.
pub(crate) fn only_the_sidecars(proc: &Path) -> Result<()> {
    for (file, state, own) in
        [("tcp", LISTENING, 2), ("tcp6", LISTENING, 2), ("udp", UNCONNECTED, 1), ("udp6", UNCONNECTED, 1)]
    {
        let path = proc.join("net").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let ports = ports(&text, state).with_context(|| format!("{} is not understood", path.display()))?;
        if ports.len() != own {
            bail!(
                "besides the sidecar something listens in the container's network before its first process: {file} \
                 ports {ports:?}, expected {own} of them (with pasta, leave out -T and -U)"
            );
        }
    }
    Ok(())
}

/// `sl local_address rem_address st …`, addresses as `HEX:PORT`.
fn ports(text: &str, state: &str) -> Option<Vec<u16>> {
    let mut ports = Vec::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, st) = (fields.next()?, fields.next()?, fields.next()?);
        if st == state {
            ports.push(u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?);
        }
    }
    Some(ports)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::mode::Mode;
    use super::super::prepare;
    use super::*;
    use crate::testing::in_private_netns;

    #[test]
    fn another_listener_is_found_in_each_family() {
        if !in_private_netns("network::listeners::tests::another_listener_is_found_in_each_family") {
            return;
        }
        let proc = Path::new("/proc/thread-self");
        let _sockets = prepare(&Mode::Guarded { inbound: Vec::new() }, None).unwrap();
        only_the_sidecars(proc).unwrap();
        for address in ["127.0.0.1:5432", "[::1]:5432"] {
            let _other = TcpListener::bind(address).unwrap();
            let error = only_the_sidecars(proc).unwrap_err().to_string();
            assert!(error.contains("5432") && error.contains("-T"), "{error}");
        }
        let _udp = std::net::UdpSocket::bind("0.0.0.0:5353").unwrap();
        assert!(only_the_sidecars(proc).unwrap_err().to_string().contains("udp"));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert_eq!(ports("header\n 0: 0100007F:1F90 00000000:0000 0A 0\n", LISTENING), Some(vec![8080]));
        assert_eq!(ports("header\n 0: 0100007F 00000000:0000 0A\n", LISTENING), None);
        assert_eq!(ports("header\n 0:\n", LISTENING), None);
    }
}
