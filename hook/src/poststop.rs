//! The poststop stage: the container is gone, so its sockets, grants and record go too.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::installation::Installation;
use crate::reap;
use crate::record::Record;
use crate::sidecar;
use crate::state::State;

/// Podman ignores this stage's exit status; all that can be done is done whatever fails.
pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    detach(state, io::stdin().lock()).context("poststop")
}

pub(crate) fn detach(state: &Path, stdin: impl io::Read) -> Result<ExitCode> {
    let installation = Installation::load(state)?;
    let id = State::read(stdin)?.id;
    // Without a record the container was not one of ours, or is gone already.
    let known = Record::directory(&installation, &id).exists();
    if known && let Err(error) = sidecar::detach(&installation, &id) {
        eprintln!("understudy-hook: poststop: the sidecar was not told: {error:#}");
    }
    Record::remove(&installation, &id)?;
    reap::run(&installation);
    Ok(ExitCode::SUCCESS)
}
