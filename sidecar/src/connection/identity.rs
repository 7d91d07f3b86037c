//! One name for a connection, from its destination and its SNI. Pure.

use understudy_policies::HostName;

use crate::dns::Origin;
use crate::reason::Reason;

/// Which host all requests of a connection are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Always there after TLS. Without TLS a refused connection may have none: its requests then say what to tell.
    pub name: Option<HostName>,
    pub standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The container looked the name up and connects to what it was answered.
    LookedUp,
    /// The address of all names that policy cannot permit. Requests are answered with the refusal.
    Sink,
    /// Every request is refused for this reason.
    Refused(Reason),
}

/// The identity of a TLS connection, or why there can be none: then not even a refusal can be served, as there is no
/// name to make a leaf for.
pub fn of_tls(origin: Origin, sni: Option<&[u8]>) -> Result<Identity, Reason> {
    let sni = HostName::from_wire(sni.ok_or(Reason::NameMissing)?).map_err(|_| Reason::Malformed)?;
    let standing = match origin {
        Origin::Name(looked_up) if looked_up == sni => Standing::LookedUp,
        Origin::Name(_) => Standing::Refused(Reason::NameMismatch),
        Origin::Sink => Standing::Sink,
        Origin::NeverLookedUp | Origin::Literal => Standing::Refused(Reason::AddressLiteral),
    };
    Ok(Identity { name: Some(sni), standing })
}

pub fn of_plain(origin: Origin) -> Identity {
    match origin {
        Origin::Name(name) => Identity { name: Some(name), standing: Standing::LookedUp },
        Origin::Sink => Identity { name: None, standing: Standing::Sink },
        Origin::NeverLookedUp | Origin::Literal => {
            Identity { name: None, standing: Standing::Refused(Reason::AddressLiteral) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_looked_up_name_stands() {
        let looked_up = || Origin::Name(name("api.example.com"));
        for sni in [&b"api.example.com"[..], b"API.Example.com", b"api.example.com."] {
            assert_eq!(of_tls(looked_up(), Some(sni)).unwrap().standing, Standing::LookedUp);
        }
        for (origin, sni, standing) in [
            (looked_up(), "example.com", Standing::Refused(Reason::NameMismatch)),
            (looked_up(), "x.api.example.com", Standing::Refused(Reason::NameMismatch)),
            (Origin::Sink, "evil.example", Standing::Sink),
            (Origin::Literal, "api.example.com", Standing::Refused(Reason::AddressLiteral)),
            (Origin::NeverLookedUp, "api.example.com", Standing::Refused(Reason::AddressLiteral)),
        ] {
            let wanted = Identity { name: Some(name(sni)), standing };
            assert_eq!(of_tls(origin, Some(sni.as_bytes())), Ok(wanted));
        }
    }

    #[test]
    fn without_a_well_formed_name_there_is_no_identity() {
        for origin in [Origin::Name(name("a.example")), Origin::Sink, Origin::Literal] {
            assert_eq!(of_tls(origin.clone(), None), Err(Reason::NameMissing));
            for bad in [&b""[..], b"a.example\0.evil", b"192.0.2.1", b"a..example", b"a.example/x"] {
                assert_eq!(of_tls(origin.clone(), Some(bad)), Err(Reason::Malformed));
            }
        }
    }

    #[test]
    fn plain_connections_take_their_name_from_the_lookup_alone() {
        assert_eq!(of_plain(Origin::Name(name("a.example"))).name, Some(name("a.example")));
        assert_eq!(of_plain(Origin::Sink).standing, Standing::Sink);
        for origin in [Origin::Literal, Origin::NeverLookedUp] {
            assert_eq!(of_plain(origin).standing, Standing::Refused(Reason::AddressLiteral));
        }
    }
}
