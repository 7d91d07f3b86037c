//! `understudy.publish`: ports of the sidecar's by which a person reaches what listens on a container's loopback.

use std::collections::BTreeMap;

use crate::Refusal;
use crate::annotation::{self, PUBLISH};

/// Ports of one container at the most.
const MOST: usize = 16;

/// A port of the sidecar's and the container's own port that it leads to, 1 to 65535 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    pub outside: u16,
    pub inside: u16,
}

impl std::fmt::Display for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.outside, self.inside)
    }
}

/// What the annotation asks for, in order, each port of the sidecar's once; nothing without it. Pure.
///
/// # Errors
/// The first item that is neither `PORT` nor `PORT:PORT`.
pub fn published(annotations: &BTreeMap<String, String>) -> Result<Vec<Published>, Refusal> {
    let Some(value) = annotations.get(PUBLISH) else { return Ok(Vec::new()) };
    let mut all = annotation::list(value).map(one).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    all.dedup();
    let wrong = |why: &str, remedy: &str| Refusal::new(format!("annotation {PUBLISH}: {why}"), remedy);
    if all.is_empty() {
        return Err(wrong("it names no port", "name one, as 3000, or leave it out"));
    }
    if all.len() > MOST {
        return Err(wrong(&format!("it names more than {MOST} ports"), "name fewer"));
    }
    let twice = all.windows(2).find_map(|two| match two {
        [a, b] if a.outside == b.outside => Some(a.outside),
        _ => None,
    });
    match twice {
        Some(port) => Err(wrong(
            &format!("port {port} of the sidecar would lead to two ports"),
            "name it once, as OUTSIDE:INSIDE",
        )),
        None => Ok(all),
    }
}

fn one(item: &str) -> Result<Published, Refusal> {
    let (outside, inside) = item.split_once(':').unwrap_or((item, item));
    match (port(outside), port(inside)) {
        (Some(outside), Some(inside)) => Ok(Published { outside, inside }),
        _ => Err(Refusal::new(
            format!("annotation {PUBLISH}: {item:?} is neither a TCP port nor two of them"),
            "write the container's port, as 3000, or the sidecar's and the container's, as 8080:3000; which address of \
             the host it is bound to is said with the sidecar's own --publish",
        )),
    }
}

/// Digits alone: 1 to 65535.
pub fn port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: &str) -> Result<Vec<String>, String> {
        let annotations = BTreeMap::from([(PUBLISH.to_owned(), value.to_owned())]);
        let all = published(&annotations).map_err(|refusal| refusal.to_string())?;
        Ok(all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_port_stands_for_itself_and_two_for_the_sidecars_and_the_containers() {
        assert_eq!(published(&BTreeMap::new()), Ok(Vec::new()));
        assert_eq!(asked("3000").unwrap(), ["3000:3000"]);
        assert_eq!(asked("8080:3000, 3000 3000,1:65535").unwrap(), ["1:65535", "3000:3000", "8080:3000"]);
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for item in [
            "0",
            "65536",
            "+1",
            "-1",
            "http",
            "3000/udp",
            "3000-3005",
            ":3000",
            "3000:",
            "127.0.0.1:3000:3000",
            "3000:0",
            "１",
        ] {
            assert!(asked(item).unwrap_err().contains("neither a TCP port"), "{item}");
        }
        assert!(asked(" ,").unwrap_err().contains("names no port"));
        assert!(asked("8080:3000,8080:3001").unwrap_err().contains("port 8080 of the sidecar"));
        let many = (1..=17).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        assert!(asked(&many).unwrap_err().contains("more than 16"));
    }
}
