//! The hook's counterpart: control requests, the containers they are about, their sockets.

pub mod descriptors;
pub mod own_logins;
pub mod registry;
pub mod revocations;
pub mod server;

pub use registry::Registry;
