//! The ways to an origin that are compared.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Route {
    /// From the origin's own network.
    Direct,
    /// By nginx as a TLS proxy in the origin's network, from the same.
    Nginx,
    /// From a sealed container, inspected.
    Sidecar,
    /// The same with a stand-in that is swapped.
    Swap,
}

impl Route {
    pub(super) const ALL: [Self; 4] = [Self::Direct, Self::Nginx, Self::Sidecar, Self::Swap];

    pub(super) fn through_sidecar(self) -> bool {
        matches!(self, Self::Sidecar | Self::Swap)
    }

    pub(super) fn swaps(self) -> bool {
        self == Self::Swap
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx proxy",
            Self::Sidecar => "sidecar",
            Self::Swap => "sidecar, swapped",
        }
    }

    /// All of them, another one first in each round.
    pub(super) fn turn(round: usize) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().cycle().skip(round % Self::ALL.len()).take(Self::ALL.len())
    }
}
