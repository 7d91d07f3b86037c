//! AWS Signature Version 4, from the side of somebody between client and service: what a request claims ([`Claim`]),
//! whether it was signed with a key ([`Claim::verify`]), and the same signature with another key ([`Verified::sign`]).
//!
//! Pure, over plain data: no clock, no socket, nothing kept. Follows "Signature Version 4" of the IAM User Guide and
//! "Authenticating Requests" of the Amazon S3 API Reference.

mod canonical;
mod claim;
mod key;
mod scope;
mod sign;
mod time;
mod verify;

pub use claim::{Claim, ClaimError, Form, Unsupported, claim, is_signed, service};
pub use scope::Scope;
pub use sign::{Credentials, SignError, Signed};
pub use time::{Time, Untimely};
pub use verify::{NotVerified, Verified};

use http::HeaderMap;

/// What of a request a signature is over, as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Percent-encoded, from `/` on.
    pub path: &'a str,
    /// Without its `?`; empty if there is none.
    pub query: &'a str,
    /// `Host`, or `:authority` of HTTP/2.
    pub host: &'a str,
    /// A `host` in it does not count.
    pub headers: &'a HeaderMap,
}

/// The header and the query parameter that hold the token of a session, in lower case.
pub const TOKEN: &str = "x-amz-security-token";
