//! Secrets, the stand-ins that containers see, and the plan of swaps for one request.
//!
//! `declaration` reads what the operator wrote, `vault` holds the real values, `stand_in` derives what containers see
//! instead, `grants` decides who gets what, `examine` decides on one request, with `placement` (where a credential may
//! stand), `slots` (where that is in a request), `scope` (with which methods and paths) and `finder` (where one does
//! stand). `terms` puts together what a container that starts is given.

pub mod declaration;
pub mod examine;
pub mod finder;
pub mod foreign;
pub mod grants;
pub mod installation_key;
pub mod path_pattern;
pub mod placement;
pub mod scope;
pub mod secret;
mod slots;
pub mod stand_in;
pub mod terms;
pub mod vault;

#[cfg(test)]
pub(crate) mod fixture;

pub use declaration::{Declaration, Foreign, GrantTo};
pub use examine::{CredentialDenial, RequestHead, SwappedPath, Swaps, examine};
pub use grants::Grants;
pub use installation_key::InstallationKey;
pub use placement::Placement;
pub use secret::SecretValue;
pub use terms::{Terms, terms};
pub use vault::{Secret, Vault, VaultError};
