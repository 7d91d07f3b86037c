//! The createRuntime stage: seals the container's network namespace and hands its sockets to the sidecar.

mod environment;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use understudy_control::{Request, published};

use crate::installation::Installation;
use crate::network;
use crate::network::mode::Mode;
use crate::network::netns::{Forbidden, Netns};
use crate::process::Process;
use crate::record::{Record, Running};
use crate::shared::{self, Neighbour, Turn};
use crate::sidecar;
use crate::state::State;
use crate::workspace::watch;

/// An error is an exit status other than 0, and then the runtime does not start the container.
pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    attach(state, io::stdin().lock()).context("createRuntime: the container is not started")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn attach(state: &Path, stdin: impl io::Read) -> Result<()> {
    let installation = Installation::load(state)?;
    let container = State::read(stdin)?;
    let process = Process::open(container.process(&["created", "creating"])?)?;
    let mut record = match Record::load(&installation, &container.id)? {
        Some(record) => record,
        // The hook files match it too. It has its own network and is given no credentials by a hook.
        None if container.is_sidecar() => return Ok(()),
        None => bail!("it was never prepared: the precreate hook did not run (run: understudy-hook doctor)"),
    };

    environment::unchanged(&record.environment, &container.bundle)?;
    let netns = Netns::of_container(&process, &Forbidden::host()?)?;
    watch::start(&installation, &record, &process)?;
    // Until the record says that it runs.
    let _turn = record.shared.then(|| Turn::wait(&installation)).transpose()?;
    let neighbour = if record.shared { shared::neighbour(&installation, &netns)? } else { None };
    let enclosed = match neighbour {
        Some(Neighbour { id: with, netns: enclosed }) => {
            let join = Request::Join { id: container.id, with };
            sidecar::hand_over(&installation, &netns, join, &[])?;
            enclosed
        }
        None => {
            let annotations = &record.prepare.annotations;
            let (mode, publishes) = (Mode::asked(annotations)?, !published(annotations)?.is_empty());
            let enclosed = network::enclose(&netns, None, &mode, &installation.nft)?;
            let enclosed = enclosed.publishing(&netns, publishes)?;
            let attach = Request::Attach(enclosed.attach(container.id));
            sidecar::hand_over(&installation, &netns, attach, &enclosed.sockets.descriptors())?;
            enclosed.netns
        }
    };
    let (pid, start_time) = (process.pid(), process.start_time());
    record.running = Some(Running { pid, start_time, netns: enclosed });
    record.environment.clear();
    record.save(&installation)
}
