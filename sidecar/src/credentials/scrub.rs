//! Finds known values in a stream of bytes, however it is cut, and puts their counterparts in their places.
//!
//! `form` knows the ways in which a value can be written (plain or with escapes, hex, Base64), `patterns` has all values
//! of one search together, `starts` where one could start, `stream` is the search through one body or message, `searches` what one vault's secrets call for. Answers are searched for real values,
//! which leave as stand-ins; requests are searched for real values, which must not leave.

mod base64;
mod escaped;
mod form;
mod hex;
mod patterns;
mod searches;
mod starts;
mod stream;

pub use form::Forms;
pub use patterns::{Pair, Patterns};
pub use searches::Watched;
pub(super) use searches::{Searches, as_long};
pub use stream::{Detector, Replacer};

#[cfg(test)]
mod tests;
