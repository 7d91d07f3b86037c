//! Synthetic addresses: one for each name that policy could permit, one sink for all others. Stub: signatures only.

use std::net::IpAddr;

use understudy_policies::HostName;

/// What a destination address stands for in one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// This name was looked up and answered with this address.
    Name(HostName),
    /// The address that all names get which policy cannot permit.
    Sink,
    /// In the synthetic range, and nothing was looked up for it.
    NeverLookedUp,
    /// An address of the real world (or of nobody): a literal.
    Literal,
}

#[derive(Debug, Default)]
pub struct SyntheticNames {
    origins: std::collections::HashMap<IpAddr, Origin>,
}

impl SyntheticNames {
    pub fn stating(origins: impl IntoIterator<Item = (IpAddr, Origin)>) -> Self {
        Self { origins: origins.into_iter().collect() }
    }

    pub fn origin(&self, address: IpAddr) -> Origin {
        self.origins.get(&address).cloned().unwrap_or(Origin::Literal)
    }
}
