//! Understudy's policies: which host and port a container may reach.
//!
//! `name` holds the one canonical form of a host name, `model` what a policy is, `parse` how it is read from
//! TOML, `decide` the pure decision, `builtin` the policies that are compiled in.

pub mod name;

pub use name::{HostName, NameError};

/// Stub, to be replaced.
#[derive(Debug, Default)]
pub struct PolicySet {}

impl PolicySet {
    /// The names of the policies in it, joined by `+`.
    pub fn label(&self) -> &str {
        "stub"
    }

    /// Whether any rule could allow this host on some port: such names get a synthetic address of their own.
    pub fn may_permit(&self, _host: &HostName) -> bool {
        false
    }
}
