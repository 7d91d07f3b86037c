//! The sidecar, as the stages see it: the process behind the control socket.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use understudy_control::{CallError, Client, ContainerId, Reply, Request, Status};

use crate::installation::Installation;
use crate::network::netns::{Forbidden, Netns};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

fn client(installation: &Installation) -> Client {
    Client::new(installation.control(), PATIENCE)
}

/// Hands over what was made in `netns`, unless that is the sidecar's own namespace, if that may be looked at. (The sidecar
/// compares cookies as well.)
pub(crate) fn hand_over(
    installation: &Installation,
    netns: &Netns,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> Result<()> {
    let connection = client(installation).connect().map_err(told)?;
    let pid = connection.peer_pid().context("the sidecar's process")?;
    let mut forbidden = Forbidden::default();
    if pid > 0 {
        forbidden.add_process("the sidecar", pid);
    }
    forbidden.check(netns.identity())?;
    done(connection.ask(request, descriptors))
}

pub(crate) fn detach(installation: &Installation, id: &ContainerId) -> Result<()> {
    done(client(installation).call(Request::Detach { id: id.clone() }, &[]))
}

pub(crate) fn status(installation: &Installation) -> Result<Status> {
    match client(installation).call(Request::Status, &[]).map_err(told)? {
        Reply::Status(status) => Ok(status),
        _ => Err(told(CallError::Unexpected)),
    }
}

fn done(answer: Result<Reply, CallError>) -> Result<()> {
    match answer.map_err(told)? {
        Reply::Done => Ok(()),
        _ => Err(told(CallError::Unexpected)),
    }
}

/// Its text alone, which holds its causes already; as a chain they would be printed twice.
fn told(error: CallError) -> anyhow::Error {
    anyhow!("{error}")
}
