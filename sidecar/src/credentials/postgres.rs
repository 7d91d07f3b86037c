//! Passwords of PostgreSQL: where one logs in, as whom and how ([`Server`]), how it is proved without being sent
//! ([`scram`]) or sent where the secret says so ([`Password`]), and what a container is given instead ([`environment`],
//! [`passfile`]).

mod binding;
mod given;
mod password;
pub mod scram;

pub(super) use self::binding::Written;
pub use self::binding::{Login, Method, Server};
pub(super) use self::given::environment;
pub use self::given::{login_file, passfile};
pub use self::password::Password;

#[cfg(test)]
mod tests;
