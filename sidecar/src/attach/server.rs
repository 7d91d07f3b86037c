//! Answers control requests: a thread that accepts, a short-lived one for each caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use understudy_control::server::answer;
use understudy_control::{AcceptError, Channel, Listener, Refusal, Reply, Request};

use crate::attach::Registry;

/// Callers at once. Each is a hook that waits a few milliseconds.
const MAX_CALLERS: usize = 32;
/// From connection to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until `stop` is set. Runs on a thread of its own.
pub fn serve(listener: Listener, registry: Arc<Registry>, stop: Arc<AtomicBool>) {
    let listener = Arc::new(listener);
    let callers = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        // Whether or not anybody calls: who asks for the status all the time must not keep what has expired.
        registry.expire();
        let channel = match listener.accept(Duration::from_millis(500)) {
            Ok(Some(channel)) => channel,
            Ok(None) => continue,
            Err(AcceptError::Socket(error)) => {
                tracing::error!(%error, "control socket");
                thread::sleep(Duration::from_millis(200));
                continue;
            }
            Err(error) => {
                tracing::warn!("{error}");
                continue;
            }
        };
        let place = Place::take(&callers);
        let (listener, registry) = (Arc::clone(&listener), Arc::clone(&registry));
        let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
            let deadline = Instant::now() + PATIENCE;
            let reply = match (place, listener.question(&channel, deadline)) {
                (_, Err(error)) => return tracing::warn!("{error}"),
                (None, Ok(_)) => {
                    Reply::Refused(Refusal::new("the sidecar is busy with other hooks", "try again"))
                }
                (Some(_place), Ok((request, descriptors))) => handle(&registry, request, descriptors),
            };
            reply_to(&channel, &reply, deadline);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "a control request was dropped");
        }
    }
}

fn handle(registry: &Registry, request: Request, descriptors: Vec<OwnedFd>) -> Reply {
    let result = match request {
        Request::Prepare(prepare) => registry.prepare(*prepare).map(|p| Reply::Prepared(Box::new(p))),
        Request::Attach(attach) => registry.attach(&attach, descriptors).map(|()| Reply::Done),
        Request::Reattach(both) => registry.reattach(*both, descriptors).map(|()| Reply::Done),
        Request::Detach { id } => {
            registry.detach(&id);
            Ok(Reply::Done)
        }
        Request::Status => Ok(Reply::Status(registry.status())),
        Request::Revoke { container } => registry.revoke(&container).map(|()| Reply::Done),
    };
    result.unwrap_or_else(Reply::Refused)
}

fn reply_to(channel: &Channel, reply: &Reply, deadline: Instant) {
    if let Err(error) = answer(channel, reply, deadline) {
        tracing::warn!("a control answer could not be given: {error}");
    }
}

/// One of the places for callers, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(callers: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(callers));
        (callers.fetch_add(1, Ordering::Relaxed) < MAX_CALLERS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
