//! Understudy's policies: which requests a container may make.
//!
//! `name` holds the one canonical form of a host name, `pattern` what a rule says about hosts, `path` what it says about
//! paths, `git` about repositories, `protocol` about upgrades, `plain` what of a text is shown, `condition` what it asks of a `request`, `model` what a policy is, `lint` what its
//! author probably did not mean, `parse` and `annotation` how it is read, `decide` the pure decision, `builtin` the policies that are
//! compiled in, `library` the ones of a directory, `ceiling` what none of them may go beyond, `from` proposes one for a project. `unique` reads JSON that names nothing twice, `document` turns TOML into values or into an error with a place.

pub mod annotation;
pub mod builtin;
pub mod ceiling;
pub mod condition;
pub mod decide;
pub mod document;
pub mod explain;
pub mod from;
pub mod git;
#[cfg(test)]
mod hostile;
mod index;
pub mod library;
mod lint;
pub mod model;
pub mod name;
mod parse;
pub mod path;
pub mod pattern;
mod plain;
pub mod protocol;
pub mod request;
mod show;
pub mod terms;
pub mod unique;
#[cfg(test)]
mod written;

pub use annotation::AnnotationError;
pub use ceiling::{Asked, Beyond, Ceiling, Log, SharedMounts};
pub use condition::Conditions;
pub use decide::{PolicySet, Verdict};
pub use document::DocumentError;
pub use explain::{Considered, Outcome};
pub use git::Git;
pub use library::Policies;
pub use model::{Effect, Policy, Ports, Rule};
pub use name::{HostName, NameError};
pub use path::{PathError, PathPattern, PathPatternError, Readings, RequestPath};
pub use pattern::{HostPattern, PatternError};
pub use plain::is_plain;
pub use protocol::{Protocol, ProtocolError};
pub use request::Request;
pub use terms::{Given, Limits, Rate, Terms};
