//! Names: the answers that containers get, and the real addresses that only the sidecar asks for.

pub mod names;
pub mod resolve;

pub use names::{Origin, SyntheticNames};
pub use resolve::{Resolver, Upstream};
