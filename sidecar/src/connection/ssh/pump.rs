//! What passes between a session of the container and the command on the server: data both ways as fast as the slower
//! one takes it, errors and the exit status one way.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use russh::ChannelMsg;
use tokio::time::{sleep, timeout};

use super::super::line::Fault;
use super::super::relay::Passed;
use super::FAREWELL;
use super::door::Guest;
use super::upstream::Upstream;
use crate::reason::Reason;

/// Of extended data (RFC 4254 section 5.2).
const STDERR: u32 = 1;
/// What a shell says of a command that was killed.
const KILLED: u32 = 255;

pub(super) struct Bounds {
    /// Bytes from the container: `max-body` of the rule that allows the command.
    pub(super) up: Option<u64>,
    /// Without a byte either way.
    pub(super) idle: Duration,
}

/// Ok once the command has ended, whatever its exit status.
pub(super) async fn pump(
    guest: &mut Guest,
    upstream: &mut Upstream,
    passed: &Passed,
    bounds: Bounds,
) -> Result<(), Fault> {
    let Guest { reader: from_container, writer: to_container, .. } = guest;
    let Upstream { reader: from_server, writer: to_server, .. } = upstream;
    let container_gone = || Fault::broken_off("the container broke off");
    let server_gone = || Fault::new(Reason::UpstreamFailed, "the server broke off");
    let up = async {
        loop {
            match from_container.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    let length = data.len() as u64;
                    if bounds.up.is_some_and(|most| passed.up.load(Relaxed).saturating_add(length) > most) {
                        return Err(Fault::new(Reason::BodyTooLarge, "more than the rule's `max-body`"));
                    }
                    passed.pass(data.len()).map_err(Fault::of)?;
                    // A server that has ended may have said why: that is waiting to be told.
                    if to_server.data_bytes(data).await.is_err() {
                        return Ok(());
                    }
                    passed.up.fetch_add(length, Relaxed);
                }
                Some(ChannelMsg::Eof) if to_server.eof().await.is_err() => return Ok(()),
                Some(ChannelMsg::Eof) => {}
                Some(ChannelMsg::Close) | None => return Ok(()),
                // Neither windows of terminals nor signals are passed on, nor is a second command.
                Some(_) => {}
            }
        }
    };
    let down = async {
        let mut ended = false;
        loop {
            match from_server.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    let length = data.len() as u64;
                    passed.pass(data.len()).map_err(Fault::of)?;
                    to_container.data_bytes(data).await.map_err(|_| container_gone())?;
                    passed.down.fetch_add(length, Relaxed);
                }
                Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => {
                    let length = data.len() as u64;
                    passed.pass(data.len()).map_err(Fault::of)?;
                    to_container.extended_data_bytes(STDERR, data).await.map_err(|_| container_gone())?;
                    passed.down.fetch_add(length, Relaxed);
                }
                Some(ChannelMsg::Eof) => to_container.eof().await.map_err(|_| container_gone())?,
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    ended = true;
                    to_container.exit_status(exit_status).await.map_err(|_| container_gone())?;
                }
                Some(ChannelMsg::ExitSignal { .. }) => {
                    ended = true;
                    to_container.exit_status(KILLED).await.map_err(|_| container_gone())?;
                }
                Some(ChannelMsg::Failure) => {
                    return Err(Fault::new(Reason::UpstreamFailed, "the server does not run the command"));
                }
                Some(ChannelMsg::Close) | None if ended => {
                    return to_container.close().await.map_err(|_| container_gone());
                }
                Some(ChannelMsg::Close) | None => return Err(server_gone()),
                Some(_) => {}
            }
        }
    };
    tokio::pin!(down);
    // In no order: the first one could always be ready.
    tokio::select! {
        result = &mut down => return result,
        result = up => result?,
        () = stalled(passed, bounds.idle) => {
            return Err(Fault::new(Reason::Timeout, "nothing passed either way for too long"));
        }
    }
    // One of them closes; the container may have heard the end of the command already.
    timeout(FAREWELL, down).await.unwrap_or_else(|_| Err(container_gone()))
}

/// Returns once nothing has passed for `idle`, or for half as long again.
async fn stalled(passed: &Passed, idle: Duration) {
    let all = || passed.up.load(Relaxed).wrapping_add(passed.down.load(Relaxed));
    let (mut before, mut still) = (all(), 0);
    while still < 2 {
        sleep(idle / 2).await;
        let now = all();
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
}
