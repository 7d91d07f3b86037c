//! Whom the sidecar lets in where an SSH key is for a server. Pure: the door asks it of a connection, `explain` of none.

use understudy_policies::HostName;

use crate::credentials::{Grants, Vault};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// No key of the installation is for this server: bytes pass there by a rule with `tcp = true`, or not at all.
    NoKey,
    /// One is, and this container cannot use it; why, and what to do.
    Closed(String),
    /// Whoever logs in as one of these users, each with the key that is for that user.
    As(Vec<String>),
}

pub fn admission(vault: &Vault, grants: &Grants, host: &HostName, port: u16) -> Admission {
    let names: Vec<String> =
        vault.ssh_keys_at(host, port).map(|declaration| format!("`{}`", declaration.name)).collect();
    if names.is_empty() {
        return Admission::NoKey;
    }
    let servers = vault.secrets().iter().filter(|secret| secret.ssh_key().is_some()).filter_map(|secret| {
        let server = secret.declaration().ssh.as_ref()?;
        (server.is_at(host, port) && grants.contains(secret.name())).then_some(server)
    });
    let users: Vec<String> = servers.map(|server| server.user().to_owned()).collect();
    if users.is_empty() {
        return Admission::Closed(format!(
            "secret {} is for {host}, and this container was not given it, or it cannot be used (understudy \
             secrets); start it with --annotation understudy.secrets=NAME",
            names.join(" or ")
        ));
    }
    Admission::As(users)
}

/// What is said to one who logs in as another than `own`.
pub fn another_user(own: &[String]) -> String {
    let own = own.join(" or ");
    format!("the key logs in as {own} only; write {own}@HOST (or `user` in secrets.toml)")
}
