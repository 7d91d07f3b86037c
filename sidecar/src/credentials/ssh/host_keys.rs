//! By which host keys a server is known: those that the operator wrote down, and those that big forges publish. None is
//! ever learnt from a server.

use std::sync::LazyLock;

use russh::keys::ssh_key::Fingerprint;
use understudy_policies::HostName;

use super::fingerprint;

/// Lines as of `known_hosts` (sshd(8)).
const PUBLISHED: &str = include_str!("../../../data/ssh-host-keys");

static BUILTIN: LazyLock<Vec<(&str, Fingerprint)>> = LazyLock::new(|| {
    let lines = PUBLISHED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(host, key)| Some((host, parse(key).ok()?)))
        .collect()
});

pub(super) fn builtin(host: &HostName) -> Vec<Fingerprint> {
    let of_host = |(name, key): &(&str, Fingerprint)| (*name == host.as_str()).then_some(*key);
    BUILTIN.iter().filter_map(of_host).collect()
}

/// A public key as in `known_hosts`, or its fingerprint. An error says nothing of what was written.
pub(super) fn parse(written: &str) -> Result<Fingerprint, String> {
    fingerprint(written).ok_or_else(|| {
        "`host-keys`: a host key is written as \"ssh-ed25519 AAAA…\" (a line of known_hosts without the host) or \
         \"SHA256:…\" (as `ssh-keygen -l` prints it)"
            .to_owned()
    })
}

pub(super) fn missing(host: &HostName) -> String {
    let known: Vec<&str> = BUILTIN
        .iter()
        .map(|(host, _)| *host)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    format!(
        "`host-keys` is missing: that of {host} is not built in (those of {} are); copy it from where its operator \
         publishes it, as host-keys = [\"SHA256:…\"]",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_line_is_a_key() {
        let lines = PUBLISHED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert!(lines > 0 && BUILTIN.len() == lines);
        // As the forge's documentation prints them.
        for (host, printed) in [
            ("github.com", "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"),
            ("github.com", "SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM"),
            ("gitlab.com", "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8"),
            ("gitlab.com", "SHA256:HbW3g8zUjNSksFbqTiUWPWg2Bq1x8xdGUrliXFzSnUw"),
        ] {
            let published = builtin(&host.parse().unwrap());
            assert!(
                published.len() == 2 && published.contains(&parse(printed).unwrap()),
                "{host}: {printed}"
            );
        }
        assert!(builtin(&"github.example".parse().unwrap()).is_empty());
    }
}
