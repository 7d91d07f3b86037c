//! Stub.
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub struct Arguments {}
#[derive(Debug, clap::Args)]
pub struct UninstallArguments {}
pub fn install(_arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
pub fn uninstall(_arguments: &UninstallArguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
