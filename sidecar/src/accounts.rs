//! Accounts: logins whose tokens are renewed (RFC 6749), and which many containers can share.
//!
//! `record` is one account, `store` its file, `seal` how that is encrypted, `import` reads the login files of programs into it. `token` is the exchange
//! with a token endpoint, `client` sends it, `keeper` decides when, one at a time for each account, and nobody hears of new
//! tokens before they are on disk. `broker` answers what a container itself asks of a token endpoint, `arming` says which may
//! log in themselves, and `login` makes accounts of that, by `token` or, for a key that is not renewed, by `key`.

pub mod arming;
pub mod broker;
pub mod client;
pub mod import;
pub mod keeper;
mod key;
pub mod login;
pub mod record;
pub mod seal;
pub mod store;
pub mod token;

pub use arming::Arming;
pub use broker::Asked;
pub use client::Client;
pub use keeper::{Keeper, RenewError};
pub use record::{Account, Millis, Record, Token};
pub use store::Store;
