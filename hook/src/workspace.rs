//! What a mounted project can do to its owner later: files in it that programs of the host run, or take their
//! configuration from. Guarded while a container has them (`guard`), and looked for afterwards (`scan`).

pub(crate) mod config;
pub(crate) mod folder;
pub(crate) mod git;
pub(crate) mod guard;
mod index;
pub(crate) mod plan;
pub(crate) mod protected;
#[cfg(test)]
mod race;
mod run;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod watch;
