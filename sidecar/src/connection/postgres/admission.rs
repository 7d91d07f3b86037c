//! Whom the sidecar lets in where a password of PostgreSQL is for a server. Pure: the door asks it of a connection,
//! `explain` of none.

use understudy_policies::HostName;

use crate::credentials::{Grants, Secret, Vault};
use crate::reason::Reason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Nobody under this name; why, and what to do.
    Closed(Reason, String),
    /// Who knows the stand-in of one of these secrets.
    By(Vec<String>),
}

pub fn admission(vault: &Vault, grants: &Grants, host: &HostName, port: u16, user: &str) -> Admission {
    let quoted =
        |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    let declared: Vec<&str> =
        vault.postgres_at(host, port).map(|declaration| declaration.name.as_str()).collect();
    if declared.is_empty() {
        return Admission::Closed(
            Reason::CredentialNotGranted,
            format!("no secret of kind \"postgres\" is for {host}:{port}; declare one in secrets.toml"),
        );
    }
    let granted: Vec<(&Secret, &str)> =
        here(vault, host, port).filter(|(secret, _)| grants.contains(secret.name())).collect();
    if granted.is_empty() {
        return Admission::Closed(
            Reason::CredentialNotGranted,
            format!(
                "secret {} is for {host}:{port}, and this container was not given it, or it cannot be used (understudy \
                 secrets); start it with --annotation understudy.secrets=NAME",
                quoted(declared)
            ),
        );
    }
    let fitting: Vec<String> =
        granted.iter().filter(|(_, own)| *own == user).map(|(secret, _)| secret.name().to_owned()).collect();
    if fitting.is_empty() {
        let users: Vec<&str> = granted.iter().map(|(_, own)| *own).collect();
        return Admission::Closed(
            Reason::CredentialRestricted,
            format!("the password is that of {} alone; connect as that (PGUSER)", quoted(users)),
        );
    }
    Admission::By(fitting)
}

/// Every usable secret for this server, with its user.
pub(super) fn here<'v>(
    vault: &'v Vault,
    host: &'v HostName,
    port: u16,
) -> impl Iterator<Item = (&'v Secret, &'v str)> {
    vault.secrets().iter().filter_map(move |secret| {
        let server = secret.declaration().postgres.as_ref()?;
        server.is_at(host, port).then(|| (secret, server.user()))
    })
}
