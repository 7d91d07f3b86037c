//! The sidecar's own poststart stage: gives a new sidecar every container that lives.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use understudy_control::{ContainerId, NetnsId, Prepare, Reattach, Request, Status, published};

use crate::StageArguments;
use crate::generation;
use crate::installation::Installation;
use crate::managed;
use crate::network;
use crate::network::mode::Mode;
use crate::network::netns::{Forbidden, Netns};
use crate::process::Process;
use crate::reap;
use crate::record::Record;
use crate::shared::Turn;
use crate::sidecar;
use crate::state::State;

/// How long the new sidecar may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stage: StageArguments,
    /// The sidecar's first process, where the stage has left the work to a process of its own
    #[arg(long, value_name = "PID", hide = true)]
    sidecar: Option<i32>,
}

/// A container that cannot be given back stays as it is, without a network; the others are not held up by it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let state = &arguments.stage.state;
    let done = match arguments.sidecar {
        Some(sidecar) => give_back_all(state, sidecar),
        None => reattach(state, io::stdin().lock()),
    };
    done.context("reattach: running containers stay without a network")
}

pub(crate) fn reattach(directory: &Path, stdin: impl io::Read) -> Result<ExitCode> {
    let state = State::read(stdin)?;
    let sidecar = state.process(&["creating", "created", "running", "starting"])?;
    if state.status == "running" { give_back_all(directory, sidecar) } else { leave(directory, sidecar) }
}

/// runc before 1.2 runs poststart hooks while it creates the container: a sidecar that is waited for here would never
/// start. A process of its own waits instead; what it has to say is in `reattach.log` in the runtime directory.
fn leave(directory: &Path, sidecar: i32) -> Result<ExitCode> {
    let installation = Installation::load(directory)?;
    let log = installation.runtime.join("reattach.log");
    let log = File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
    Command::new(std::env::current_exe().context("this program cannot find itself")?)
        .arg("reattach")
        .arg("--state")
        .arg(directory)
        .args(["--sidecar", &sidecar.to_string()])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // what a terminal sends to Podman's group is not for it
        .process_group(0)
        .spawn()
        .context("no process of its own can be started")?;
    Ok(ExitCode::SUCCESS)
}

fn give_back_all(directory: &Path, sidecar: i32) -> Result<ExitCode> {
    let installation = Installation::load(directory)?;
    // No container joins another one's network meanwhile: what the sidecar knows then stays true.
    let (_turn, status) = wait(PATIENCE, || {
        let turn = Turn::wait(&installation)?;
        Ok((turn, sidecar::status(&installation)?))
    })?;
    generation::keep(&installation);
    reap::run(&installation);
    let mut forbidden = Forbidden::host()?;
    forbidden.add_process("the sidecar", sidecar);

    let mut failed = false;
    let mut given = Given::default();
    for id in reap::known(&installation) {
        if let Err(error) = give_back(&installation, &id, &status, &forbidden, &mut given) {
            eprintln!("understudy-hook: container {} stays without a network: {error:#}", id.short());
            failed = true;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Asks again and again, at growing intervals, until there is an answer or `patience` is over.
fn wait<T>(patience: Duration, ask: impl Fn() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if start.elapsed() + pause > patience => {
                return Err(error).context(format!("no sidecar answered within {} s", patience.as_secs()));
            }
            Err(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// In which network namespaces the sidecar has sockets again, each with a container of it. None: one there was refused, so
/// nobody there is served.
type Given = Vec<(NetnsId, Option<ContainerId>)>;

fn give_back(
    installation: &Installation,
    id: &ContainerId,
    status: &Status,
    forbidden: &Forbidden,
    given: &mut Given,
) -> Result<()> {
    let Some(record) = Record::load(installation, id)? else { return Ok(()) };
    // Not attached yet: its createRuntime finds out that this sidecar does not know it.
    let Some(running) = record.running else { return Ok(()) };
    // Attached meanwhile by its own createRuntime; or revoked, which a restart of something else must not undo.
    let known = status.containers.iter().find(|container| container.id == *id);
    if let Some(known) = known.filter(|known| known.state != "prepared") {
        given.push((running.netns, (known.state == "attached").then(|| id.clone())));
        return Ok(());
    }
    let process = Process::open(running.pid)?;
    if process.start_time() != running.start_time {
        bail!("process {} is another one now", running.pid);
    }

    let netns = Netns::of_container(&process, forbidden)?;
    // What the administrator has written since holds from now on.
    let managed = managed::sparing(managed::files()?, record.image.as_ref())?;
    let mut prepare = Prepare { managed, joins: None, ..record.prepare };
    if let Some((_, with)) = given.iter().rev().find(|(netns, _)| *netns == running.netns) {
        network::still(&netns, running.netns)?;
        let Some(with) = with else { bail!("another container in its network was refused") };
        prepare.joins = Some(with.clone());
        return sidecar::hand_over(installation, &netns, Request::Rejoin(Box::new(prepare)), &[])
            // The sidecar has cut the others.
            .inspect_err(|_| given.push((running.netns, None)));
    }
    let publishes = !published(&prepare.annotations)?.is_empty();
    let mode = Mode::asked(&prepare.annotations)?;
    let enclosed = network::enclose(&netns, Some(running.netns), &mode, &installation.nft)?;
    let enclosed = enclosed.publishing(&netns, publishes)?;
    let attach = enclosed.attach(id.clone());
    let question = Request::Reattach(Box::new(Reattach { prepare, attach }));
    let done = sidecar::hand_over(installation, &netns, question, &enclosed.sockets.descriptors());
    given.push((enclosed.netns, done.is_ok().then(|| id.clone())));
    done
}
