//! Names: the answers that containers get, and the real addresses that only the sidecar asks for.
//!
//! Nothing that a container looks up leaves the host. It gets a synthetic address; the real one is resolved after a
//! permit, checked, and dialled as it was checked.

pub mod answer;
pub mod hop;
pub mod names;
mod own;
pub mod resolve;
pub mod serve;
pub mod special;
mod told;
pub mod upstream_proxy;

pub use hop::{DialError, Hop};
pub use names::{Origin, RangeTooSmall, SyntheticNames, SyntheticRange};
pub use resolve::{PinnedAddress, ResolveDenial, Resolver, ResolverError, Upstream};
pub use upstream_proxy::{ProxyCredentials, ProxyHost, TunnelError, UpstreamProxy};
