//! Stub.
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub struct Arguments {}
pub fn run(_arguments: &Arguments) -> ExitCode {
    ExitCode::from(126)
}
