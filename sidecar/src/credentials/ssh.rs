//! SSH keys: where one logs in and by which host keys those servers are known ([`Server`]), the key itself with its
//! stand-in ([`SshKey`]), and what is placed in a container so that an unmodified `ssh` uses it ([`files`]).

mod files;
mod host_keys;
mod key;
mod rsa;

pub use self::files::{SshFiles, files};
pub(crate) use self::key::Real;
pub use self::key::{HostKey, KeyError, SshKey};
pub(crate) use self::rsa::{RsaSigner, SignError};

use russh::keys::PublicKey;
use russh::keys::ssh_key::{Fingerprint, HashAlg};
use toml::Spanned;
use understudy_policies::HostName;
use understudy_policies::document::OneOrMany;

use super::servers::Servers;

/// The port of SSH (RFC 4253 section 4).
const PORT: u16 = 22;

/// Whom forges let in.
const USER: &str = "git";

/// Where a key logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    servers: Servers,
    user: String,
    /// SHA-256. Empty: those that are built in for each host.
    host_keys: Vec<Fingerprint>,
}

/// The keys of a declaration that are about it.
pub(super) struct Written<'a> {
    pub(super) hosts: &'a Option<Spanned<OneOrMany<String>>>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) user: Option<Spanned<String>>,
    pub(super) host_keys: Option<Spanned<OneOrMany<String>>>,
}

impl Server {
    pub fn is_at(&self, host: &HostName, port: u16) -> bool {
        self.servers.is_at(host, port)
    }

    pub fn hosts(&self) -> &[HostName] {
        self.servers.hosts()
    }

    pub fn port(&self) -> u16 {
        self.servers.port()
    }

    /// As whom it logs in, whoever the container asks for.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether a server that shows this host key is `host`.
    pub fn knows(&self, host: &HostName, host_key: &Fingerprint) -> bool {
        match self.host_keys.as_slice() {
            [] => host_keys::builtin(host).contains(host_key),
            own => own.contains(host_key),
        }
    }

    /// `github.com`, or `git.example.com:2222`.
    pub fn shown_hosts(&self) -> Vec<String> {
        self.servers.shown()
    }
}

impl Written<'_> {
    /// `at` is where the secret's table begins. An error is a place in the file and what is wrong there.
    pub(super) fn server(self, at: usize) -> Result<Server, (usize, String)> {
        let servers = Servers::read(self.hosts.as_ref(), self.port.as_ref(), PORT, at, "an SSH key")?;
        let user = match self.user {
            Some(user) if !is_user(user.get_ref()) => {
                let message =
                    "`user` must be the name of an account, 1 to 32 of letters, digits, `.`, `_` and `-`";
                return Err((user.span().start, message.to_owned()));
            }
            user => user.map_or_else(|| USER.to_owned(), Spanned::into_inner),
        };
        let host_keys = match self.host_keys {
            Some(written) => {
                let at = written.span().start;
                let keys = written.get_ref().0.iter().map(|key| host_keys::parse(key));
                let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(|error| (at, error))?;
                if keys.is_empty() {
                    return Err((
                        at,
                        "`host-keys` is empty, so no server could be told from another".to_owned(),
                    ));
                }
                keys
            }
            None => Vec::new(),
        };
        if let Some(unknown) =
            servers.hosts().iter().find(|host| host_keys.is_empty() && host_keys::builtin(host).is_empty())
        {
            return Err((at, host_keys::missing(unknown)));
        }
        Ok(Server { servers, user, host_keys })
    }

    /// For a secret of another kind.
    pub(super) fn none(&self) -> Result<(), (usize, String)> {
        let at = |key: &str, kinds: &str, start: Option<usize>| {
            start.map(|at| (at, format!("`{key}` is for {kinds}; leave it out")))
        };
        let (both, own) = ("`kind = \"ssh-key\"` and `\"postgres\"`", "`kind = \"ssh-key\"`");
        let port = at("port", both, self.port.as_ref().map(|key| key.span().start));
        let user = at("user", both, self.user.as_ref().map(|key| key.span().start));
        let host_keys = at("host-keys", own, self.host_keys.as_ref().map(|key| key.span().start));
        port.or(user).or(host_keys).map_or(Ok(()), Err)
    }
}

/// SHA-256, of a public key as in a file that ends in `.pub`, or as `ssh-keygen -l` prints it.
pub(super) fn fingerprint(written: &str) -> Option<Fingerprint> {
    match written.trim() {
        text if text.starts_with("SHA256:") => text.parse().ok(),
        text => PublicKey::from_openssh(text).ok().map(|key| key.fingerprint(HashAlg::Sha256)),
    }
}

fn is_user(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=32).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests;
