//! What the tests on real Podman are made of: a mock of every provider, a stand (a world, a sidecar, agents), and the
//! programs that run inside an agent's container.

pub mod bench;
pub mod compose;
pub mod load;
pub mod mock;
pub mod podman;
pub mod search;
pub mod stand;
