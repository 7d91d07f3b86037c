//! From an accepted socket to a stream of requests with one known name.

pub mod accept;
pub mod classify;
pub mod connect;
pub mod doors;
pub mod identity;
mod line;
pub mod original;
pub mod postgres;
pub mod published;
pub mod raw;
mod refusal;
mod relay;
mod splice;
pub mod ssh;

pub use accept::serve;
pub use classify::{Classified, classify};
pub use identity::{Identity, Standing};
pub use original::{OriginalDestination, Redirected};
