//! Stub.
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub struct Arguments {}
pub fn run(_arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
