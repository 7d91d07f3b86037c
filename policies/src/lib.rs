//! Understudy's policies: which host and port a container may reach.
//!
//! `name` holds the one canonical form of a host name, `model` what a policy is, `parse` how it is read from
//! TOML, `decide` the pure decision, `builtin` the policies that are compiled in.

pub mod name;

pub use name::{HostName, NameError};

/// Stub, to be replaced.
#[derive(Debug, Default)]
pub struct PolicySet {
    allowed: Vec<(HostName, u16)>,
}

impl PolicySet {
    pub fn allowing(allowed: impl IntoIterator<Item = (HostName, u16)>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }

    /// The names of the policies in it, joined by `+`.
    pub fn label(&self) -> &str {
        "stub"
    }

    /// Whether any rule could allow this host on some port: such names get a synthetic address of their own.
    pub fn may_permit(&self, host: &HostName) -> bool {
        self.allowed.iter().any(|(allowed, _)| allowed == host)
    }

    pub fn allows(&self, host: &HostName, port: u16) -> bool {
        self.allowed.iter().any(|(allowed, on)| allowed == host && *on == port)
    }
}
