//! What an operator's command prints: text for a person, or with `--json` one document for a program.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The switch that is the same at every command.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints `value` in one of the two forms. What is wrong, commands say on standard error in either.
    ///
    /// # Errors
    /// If standard output takes nothing, as a pipe that nobody reads any more.
    pub fn print<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let printed = self.form(value, text)?;
        let mut out = std::io::stdout().lock();
        out.write_all(printed.as_bytes()).and_then(|()| out.flush()).context("standard output")
    }

    /// What `print` prints.
    ///
    /// # Errors
    /// As of `document`.
    pub fn form<T: Serialize + ?Sized>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<String> {
        if self.json { document(value) } else { Ok(text(value)) }
    }
}

/// One JSON document (RFC 8259), indented, with a line feed at its end.
///
/// # Errors
/// If `value` is none that JSON has, as a map whose keys are no strings.
pub fn document(value: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
