//! Ports of the sidecar's own that lead to what listens inside sealed containers (`understudy.publish`): which there may be,
//! and who has which.

mod leases;

pub use leases::{Leased, Leases};

use std::ops::RangeInclusive;

use understudy_control::publish::port;
use understudy_control::{Prepare, Published, Refusal, annotation, published};

use crate::config::Settings;

/// Ports of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    pub fn contain(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// Takes the ports of `3000` or `3000-3009` in, too.
    ///
    /// # Errors
    /// What was expected.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => {
                self.0.push(first..=last);
                Ok(())
            }
            _ => Err(format!("{text:?} is neither a port nor a range of them, as \"3000\" or \"3000-3009\"")),
        }
    }

    #[must_use]
    pub fn with(mut self, port: Option<u16>) -> Self {
        self.0.extend(port.map(|port| port..=port));
        self
    }
}

/// What a container asks for, if `settings` let it have it: the annotation can be a stranger's. Pure.
///
/// # Errors
/// The first port that it may not have, with the line to write.
pub fn permitted(prepare: &Prepare, settings: &Settings) -> Result<Vec<Published>, Refusal> {
    let all = published(&prepare.annotations)?;
    for Published { outside, .. } in &all {
        if settings.metrics.is_some_and(|address| address.port() == *outside) {
            return Err(Refusal::new(
                format!("port {outside} of the sidecar is its `metrics` port"),
                format!("name another one in annotation {}", annotation::PUBLISH),
            ));
        }
        if !settings.publish.contain(*outside) {
            return Err(Refusal::new(
                format!(
                    "annotation {} opens port {outside} of the sidecar, which needs your word",
                    annotation::PUBLISH
                ),
                format!(
                    "write `publish = {outside}` into sidecar.toml (or a range, as \"3000-3009\"), and start the sidecar again \
                     with --publish 127.0.0.1:{outside}:{outside}; or leave the annotation out"
                ),
            ));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_both_its_ends() {
        let mut ports = Ports::default();
        ports.add("3000-3009").unwrap();
        ports.add("8080").unwrap();
        for (port, is_in) in
            [(2999, false), (3000, true), (3009, true), (3010, false), (8080, true), (8081, false)]
        {
            assert_eq!(ports.contain(port), is_in, "{port}");
        }
        for wrong in ["", "0", "3009-3000", "3000-", "-1", "3000-3009-3010", "http", "+1", "65536"] {
            assert!(ports.clone().add(wrong).is_err(), "{wrong}");
        }
        let ports = ports.with(Some(9464));
        assert!(ports.contain(9464) && ports.contain(3000) && !Ports::default().with(None).contain(1));
    }
}
