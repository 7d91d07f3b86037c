//! Whom the relays of other protocols let in at one host and port, of a container with these grants. Pure.

use understudy_policies::HostName;

use super::postgres::admission::{self, Door};
use super::ssh::admission::{Admission, admission};
use crate::credentials::{Grants, Vault};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doors {
    pub ssh: Admission,
    pub postgres: Door,
    /// Whether TLS is decrypted there, whatever a rule says: a secret of the installation is for that host, or gets its
    /// tokens there.
    pub decrypted: bool,
}

impl Doors {
    pub fn of(vault: &Vault, grants: &Grants, host: &HostName, port: u16) -> Self {
        Self {
            ssh: admission(vault, grants, host, port),
            postgres: admission::door(vault, grants, host, port),
            decrypted: vault.bound_to(host).next().is_some() || vault.has_token_endpoint(host, false),
        }
    }

    /// Where nothing is declared.
    pub fn none() -> Self {
        Self { ssh: Admission::NoKey, postgres: Door::NoSecret, decrypted: false }
    }
}
