//! The installation's certificate authority, the leaves that it signs, and the roots that upstreams are held to.

pub mod authorities;
pub mod authority;
pub mod leaf;
mod replace;
pub mod roots;

pub use authorities::Authorities;
pub use authority::{Authority, AuthorityError};
pub use leaf::{LeafError, Leaves};
pub use roots::{RootsError, write_roots};
