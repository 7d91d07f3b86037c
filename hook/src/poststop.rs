//! Stub.
use std::{path::Path, process::ExitCode};
pub fn run(_state: &Path) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
