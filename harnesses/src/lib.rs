//! Understudy's harness descriptors: what each agent's command line needs in a container, as data.
//!
//! `descriptor` is the schema, `check` what a well-formed one must also hold to, `template` how stand-ins get into
//! variables and files, `library` the descriptors that are compiled in and those of a directory.

mod check;
pub mod descriptor;
pub mod library;
pub mod template;

pub use descriptor::{
    Adapter, Descriptor, Endpoint, Hosts, Login, LoginFile, Moved, NamedHost, Pattern, PlacedFile, Privacy,
    Purpose, SecretKind, Trap, TrapAction, Write,
};
pub use library::{HarnessError, Harnesses};
pub use template::{Filling, Template, TemplateError};
