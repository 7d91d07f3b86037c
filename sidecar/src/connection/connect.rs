//! CONNECT from inside: a client that was told of a proxy asks for a tunnel, and gets one to the sidecar itself. What
//! comes through it is classified and policed as if the container had connected to the target. Pure, but for reading.

use std::net::IpAddr;

use understudy_policies::{HostName, NameError};

use crate::dns::{Origin, SyntheticNames};

/// What is answered once the target is known: RFC 9110 section 9.3.6.
pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The target of a tunnel (authority-form, RFC 9112 section 3.2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    pub host: TunnelHost,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelHost {
    Name(HostName),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Ask again once there is more; there is no end of the head yet.
    NeedMore,
    /// The target, and the length of the head. What follows it is the tunnel's.
    Tunnel(Tunnel, usize),
    /// Another request, or one that must not be understood: it is answered as any request is.
    Other,
}

/// More headers than any client sends with it.
const MOST_HEADERS: usize = 64;

/// What is asked for, from the first bytes of a connection that [`super::classify()`] takes for HTTP/1. Pure.
pub fn asked(bytes: &[u8]) -> Asked {
    if !bytes.starts_with(b"CONNECT ") {
        return Asked::Other;
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Asked::NeedMore,
        Err(_) => return Asked::Other,
    };
    match tunnel(&request) {
        Some(tunnel) => Asked::Tunnel(tunnel, length),
        None => Asked::Other,
    }
}

/// A body or two targets would leave it open where the tunnel begins, or to whom.
fn tunnel(request: &httparse::Request<'_, '_>) -> Option<Tunnel> {
    let (host, port) = authority(request.path?.as_bytes())?;
    let port = port?;
    let mut named = 0;
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        match name.as_str() {
            "host" => {
                let (stated, stated_port) = authority(header.value.trim_ascii())?;
                named += 1;
                if named > 1 || stated != host || stated_port.is_some_and(|stated| stated != port) {
                    return None;
                }
            }
            "transfer-encoding" => return None,
            "content-length" if header.value.trim_ascii() != b"0" => return None,
            _ => {}
        }
    }
    Some(Tunnel { host, port })
}

/// `host`, `host:port`, `[v6]:port`.
fn authority(text: &[u8]) -> Option<(TunnelHost, Option<u16>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            let address = IpAddr::V6(address.parse().ok()?);
            (
                TunnelHost::Address(address),
                rest.strip_prefix(':').map_or((rest, None), |port| ("", Some(port))),
            )
        }
        None => {
            let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
            let host = match name.parse::<std::net::Ipv4Addr>() {
                Ok(address) => TunnelHost::Address(address.into()),
                Err(_) => match HostName::from_wire(name.as_bytes()) {
                    Ok(name) => TunnelHost::Name(name),
                    Err(NameError::Address) | Err(_) => return None,
                },
            };
            (host, ("", port))
        }
    };
    let (rest, port) = port;
    if !rest.is_empty() {
        return None;
    }
    let number = |digits: &str| {
        let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|port| all && *port != 0)
    };
    match port {
        None => Some((host, None)),
        Some(digits) => Some((host, Some(number(digits)?))),
    }
}

impl Tunnel {
    /// What the target stands for in a container, as its own connections' destinations do: a name counts as looked up.
    pub fn origin(&self, names: &SyntheticNames) -> Origin {
        match &self.host {
            TunnelHost::Name(name) => Origin::Name(name.clone()),
            TunnelHost::Address(address) => names.origin(*address),
        }
    }

    /// For the audit.
    pub fn shown_host(&self) -> String {
        match &self.host {
            TunnelHost::Name(name) => name.to_string(),
            TunnelHost::Address(address) => address.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Asked {
        asked(head.as_bytes())
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let name = |text: &str| TunnelHost::Name(text.parse().unwrap());
        let address = |text: &str| TunnelHost::Address(text.parse().unwrap());
        for (target, host, port) in [
            ("api.example.com:443", name("api.example.com"), 443),
            ("API.Example.com.:8443", name("api.example.com"), 8443),
            ("192.0.2.1:1", address("192.0.2.1"), 1),
            ("[2001:db8::1]:65535", address("2001:db8::1"), 65535),
        ] {
            let head = format!("CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\r\n");
            assert_eq!(
                of(&format!("{head}rest")),
                Asked::Tunnel(Tunnel { host, port }, head.len()),
                "{target}"
            );
        }
        for bad in [
            "api.example.com",
            "api.example.com:",
            "api.example.com:0",
            "api.example.com:+1",
            "a.b:65536",
            ":443",
            "me@api.example.com:443",
            "http://api.example.com:443",
            "api.example.com:443/x",
            "[::1]443",
            "[::1]",
            "[192.0.2.1]:1",
            "::1:443",
            "0x7f.1:443",
            "127.1:443",
            "a..b:443",
            "api.example.com%2e:443",
        ] {
            assert_eq!(of(&format!("CONNECT {bad} HTTP/1.1\r\n\r\n")), Asked::Other, "{bad}");
        }
    }

    #[test]
    fn nothing_may_contradict_it() {
        for (headers, good) in [
            ("Host: a.example:443\r\n", true),
            ("Host: A.example\r\nContent-Length: 0\r\n", true),
            ("Host: b.example:443\r\n", false),
            ("Host: a.example:80\r\n", false),
            ("Host: a.example:443\r\nHost: a.example:443\r\n", false),
            ("Host: \r\n", false),
            ("Content-Length: 5\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
            (" folded\r\n", false),
        ] {
            let asked = of(&format!("CONNECT a.example:443 HTTP/1.1\r\n{headers}\r\n"));
            assert_eq!(matches!(asked, Asked::Tunnel(..)), good, "{headers}: {asked:?}");
        }
        assert_eq!(of("CONNECT a.example:443 HTTP/1.1\r\nHost: a.ex"), Asked::NeedMore);
        assert_eq!(of("GET http://a.example/ HTTP/1.1\r\n\r\n"), Asked::Other);
    }
}
