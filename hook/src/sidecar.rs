//! The sidecar, as the stages see it: the process behind the control socket.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use understudy_control::{CallError, Client, Connection, ContainerId, Reply, Request, Status};

use crate::installation::Installation;
use crate::network::netns::Forbidden;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn client(installation: &Installation) -> Client {
    Client::new(installation.control(), PATIENCE)
}

pub(crate) fn connect(installation: &Installation) -> Result<Connection> {
    client(installation).connect().map_err(told)
}

/// Adds the sidecar's own namespace, if it may be looked at. (The sidecar itself compares cookies as well.)
pub(crate) fn forbid_netns(connection: &Connection, forbidden: &mut Forbidden) -> Result<()> {
    let pid = connection.peer_pid().context("the sidecar's process")?;
    if pid > 0 {
        forbidden.add_process("the sidecar", pid);
    }
    Ok(())
}

/// Asks for something that is answered by a plain `Done`.
pub(crate) fn ask(connection: Connection, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    match connection.ask(request, descriptors).map_err(told)? {
        Reply::Done => Ok(()),
        _ => Err(told(CallError::Unexpected)),
    }
}

pub(crate) fn detach(installation: &Installation, id: &ContainerId) -> Result<()> {
    ask(connect(installation)?, Request::Detach { id: id.clone() }, &[])
}

pub(crate) fn status(installation: &Installation) -> Result<Status> {
    match client(installation).call(Request::Status, &[]).map_err(told)? {
        Reply::Status(status) => Ok(status),
        _ => Err(told(CallError::Unexpected)),
    }
}

/// Its text alone, which holds its causes already; as a chain they would be printed twice.
fn told(error: CallError) -> anyhow::Error {
    anyhow!("{error}")
}
