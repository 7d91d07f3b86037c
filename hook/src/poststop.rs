//! The poststop stage: the container is gone, so its sockets and grants go, and then its record.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::generation;
use crate::installation::Installation;
use crate::reap;
use crate::record::Record;
use crate::refusals;
use crate::sidecar;
use crate::state::State;

/// Podman ignores this stage's exit status.
pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    detach(state, io::stdin().lock()).context("poststop")
}

pub(crate) fn detach(state: &Path, stdin: impl io::Read) -> Result<ExitCode> {
    let installation = Installation::load(state)?;
    let id = State::read(stdin)?.id;
    // Without a record the container was not one of ours, or is gone already.
    if Record::directory(&installation, &id).exists() {
        // The record stays where this fails, and by it the next hook run, or the next sidecar, tells what is gone.
        sidecar::detach(&installation, &id).context("the sidecar was not told yet")?;
        Record::remove(&installation, &id)?;
    }
    generation::keep(&installation);
    reap::run(&installation);
    refusals::forget_silent(&installation, &id)?;
    Ok(ExitCode::SUCCESS)
}
