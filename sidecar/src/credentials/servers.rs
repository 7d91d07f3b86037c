//! Servers that a secret is for which logs in there itself: by name, each in full, and one port.

use toml::Spanned;
use understudy_policies::HostName;
use understudy_policies::document::OneOrMany;

/// Of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Servers {
    /// Never empty.
    hosts: Vec<HostName>,
    port: u16,
    /// That of the protocol.
    usual: u16,
}

impl Servers {
    /// As declared. `at` is where the secret's table begins, `of` what the secret is. An error is a place in the file and what
    /// is wrong there.
    pub(super) fn read(
        hosts: Option<&Spanned<OneOrMany<String>>>,
        port: Option<&Spanned<u16>>,
        usual: u16,
        at: usize,
        of: &str,
    ) -> Result<Self, (usize, String)> {
        let hosts = hosts.ok_or_else(|| (at, "missing field `hosts`".to_owned()))?;
        let at_hosts = hosts.span().start;
        if hosts.get_ref().0.is_empty() {
            return Err((at_hosts, "`hosts` is empty, so the secret could never be used".to_owned()));
        }
        let host = |host: &String| match host.parse() {
            Ok(host) => Ok(host),
            Err(_) if host.contains('*') => {
                Err((at_hosts, format!("`hosts`: {host:?}: each server of {of} is named in full")))
            }
            Err(error) => Err((at_hosts, format!("`hosts`: {host:?}: {error}"))),
        };
        let hosts = hosts.get_ref().0.iter().map(host).collect::<Result<_, _>>()?;
        let port = match port {
            Some(port) if *port.get_ref() == 0 => {
                return Err((port.span().start, "`port` must be 1 to 65535".to_owned()));
            }
            port => port.map_or(usual, |port| *port.get_ref()),
        };
        Ok(Self { hosts, port, usual })
    }

    pub(super) fn is_at(&self, host: &HostName, port: u16) -> bool {
        self.port == port && self.hosts.contains(host)
    }

    pub(super) fn hosts(&self) -> &[HostName] {
        &self.hosts
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// `db.example.com`, or `db.example.com:6432`.
    pub(super) fn shown(&self) -> Vec<String> {
        let shown = |host: &HostName| match self.port == self.usual {
            true => host.to_string(),
            false => format!("{host}:{}", self.port),
        };
        self.hosts.iter().map(shown).collect()
    }
}
