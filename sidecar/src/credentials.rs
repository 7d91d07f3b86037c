//! Secrets, the stand-ins that containers see, and the plan of swaps for one request.
//!
//! `catalogue` knows the credentials of well-known services, `declaration` reads what the operator wrote, `source` where
//! a value is, `loading` whether it can be used, `vault` holds the real values, `stand_in` derives what containers see
//! instead, `grants` decides who gets what, `examine` decides on one request, with `placement` (where a credential may
//! stand), `slots` (where that is in a request head; `body` does the same for a body), `scope` (with which methods and
//! paths) and `finder` (where one does stand). `minted` is about what upstreams make for one container, `holdings` about what
//! a container holds beside its grants. `terms` puts together what a container that starts is given.

pub mod assertions;
pub mod aws;
mod body;
pub mod catalogue;
pub mod declaration;
pub mod examine;
pub mod expiry;
pub mod finder;
pub mod foreign;
pub mod grants;
pub mod holdings;
pub mod installation_key;
pub mod known;
pub mod ledger;
pub mod loading;
pub mod minted;
pub mod minting;
pub mod path_template;
pub mod placement;
pub mod postgres;
pub mod report;
mod retired;
pub mod rights;
pub mod scope;
pub mod scrub;
pub mod secret;
mod servers;
mod slots;
pub mod source;
pub mod ssh;
pub mod stand_in;
pub mod terms;
pub mod texts;
pub mod vault;

#[cfg(test)]
pub(crate) mod fixture;

pub use aws::Signing;
pub use body::{Fields, SwappedBody, examine_body, fields, no_override, overriding};
pub use catalogue::Catalogue;
pub use declaration::{Declaration, Foreign, GrantTo};
pub use examine::{CredentialDenial, RequestHead, SwappedPath, Swaps, examine};
pub use grants::Grants;
pub use holdings::{HeldValue, Holdings, MintedNow};
pub use installation_key::InstallationKey;
pub use known::KnownStandIns;
pub use loading::Loading;
pub use minted::{MintError, Minting};
pub use minting::mutations;
pub use placement::Placement;
pub use rights::{Asked, Rights, rights};
pub use secret::SecretValue;
pub use source::{Source, Surroundings};
pub use terms::{DEFAULT_HARNESS, Terms, terms};
pub use vault::{Secret, Vault, VaultError};
