//! What a container may have of a network besides the sidecar: nothing (sealed), or one that only lets in (guarded).

use std::collections::BTreeMap;

use understudy_control::annotation::{self, GUARDED, INBOUND, NETWORK, PUBLISH, SEALED};
use understudy_control::{Refusal, publish, published};

/// Ports at the most: each is a rule.
const MOST: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No interface but `lo`: the kernel itself knows no other way.
    Sealed,
    /// Any network of the container's own. The rules alone keep it from being used: nothing goes out, and what comes in
    /// reaches these TCP ports only. (What they answer can carry data out.)
    Guarded { inbound: Vec<u16> },
}

impl Mode {
    /// `annotations` are those of ours.
    pub(crate) fn asked(annotations: &BTreeMap<String, String>) -> Result<Self, Refusal> {
        let inbound = annotations.get(INBOUND);
        let published = published(annotations)?;
        match annotations.get(NETWORK).map(String::as_str) {
            Some(GUARDED) if !published.is_empty() => Err(Refusal::new(
                format!("annotation {PUBLISH} is for sealed containers: this one has a network of its own"),
                format!("publish with podman run -p HOST:PORT and name the port in {INBOUND}"),
            )),
            Some(GUARDED) => {
                Ok(Self::Guarded { inbound: inbound.map_or(Ok(Vec::new()), |list| ports(list))? })
            }
            None | Some(SEALED | "none") => match inbound {
                None => Ok(Self::Sealed),
                Some(_) => Err(Refusal::new(
                    format!(
                        "annotation {INBOUND} is of no use: a sealed container has no network to let in from"
                    ),
                    format!("remove it, or give the container a network and {NETWORK}={GUARDED}"),
                )),
            },
            Some(other) => Err(Refusal::new(
                format!("annotation {NETWORK}={other:?} is not known"),
                format!("write {NETWORK}={SEALED} (with --network=none) or {NETWORK}={GUARDED}"),
            )),
        }
    }

    pub(crate) fn is_guarded(&self) -> bool {
        matches!(self, Self::Guarded { .. })
    }
}

fn ports(list: &str) -> Result<Vec<u16>, Refusal> {
    let mut ports = Vec::new();
    for item in annotation::list(list) {
        match publish::port(item) {
            Some(port) => ports.push(port),
            None => {
                return Err(Refusal::new(
                    format!("annotation {INBOUND}: {item:?} is not a TCP port"),
                    "write the container's own ports, 1 to 65535, with commas between them",
                ));
            }
        }
    }
    ports.sort_unstable();
    ports.dedup();
    if ports.len() > MOST {
        return Err(Refusal::new(format!("annotation {INBOUND} names more than {MOST} ports"), "name fewer"));
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Result<Mode, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Mode::asked(&pairs).map_err(|refusal| format!("{} {}", refusal.reason, refusal.remedy))
    }

    #[test]
    fn without_a_word_a_container_is_sealed() {
        for pairs in [&[][..], &[(NETWORK, "sealed")], &[(NETWORK, "none")]] {
            assert_eq!(asked(pairs), Ok(Mode::Sealed));
        }
    }

    #[test]
    fn ports_are_separated_by_commas_or_blanks() {
        for (list, expected) in
            [("3000", &[3000][..]), ("8080, 3000,3000", &[3000, 8080]), ("1 65535", &[1, 65535]), ("", &[])]
        {
            let mode = asked(&[(NETWORK, GUARDED), (INBOUND, list)]);
            assert_eq!(mode, Ok(Mode::Guarded { inbound: expected.to_vec() }));
        }
        assert_eq!(asked(&[(NETWORK, GUARDED)]), Ok(Mode::Guarded { inbound: Vec::new() }));
    }

    #[test]
    fn only_a_sealed_container_publishes_through_the_sidecar() {
        assert_eq!(asked(&[(PUBLISH, "3000")]), Ok(Mode::Sealed));
        let guarded = asked(&[(NETWORK, GUARDED), (PUBLISH, "3000")]).unwrap_err();
        assert!(guarded.contains("podman run -p") && guarded.contains(INBOUND), "{guarded}");
        assert!(asked(&[(PUBLISH, "web")]).unwrap_err().contains("neither a TCP port"));
    }

    #[test]
    fn what_is_no_port_or_no_mode_is_refused() {
        for list in ["0", "65536", "http", "3000/udp", "3000-3005", "-1", "+1", "3000;drop"] {
            assert!(
                asked(&[(NETWORK, GUARDED), (INBOUND, list)]).unwrap_err().contains("not a TCP port"),
                "{list}"
            );
        }
        let many = (1..=65).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        assert!(asked(&[(NETWORK, GUARDED), (INBOUND, &many)]).unwrap_err().contains("more than 64"));
        assert!(asked(&[(NETWORK, "Guarded")]).unwrap_err().contains("write understudy.network=sealed"));
        assert!(asked(&[(NETWORK, "")]).is_err());
        for pairs in [&[(INBOUND, "3000")][..], &[(INBOUND, ""), (NETWORK, "sealed")]] {
            assert!(asked(pairs).unwrap_err().contains("understudy.network=guarded"));
        }
    }
}
