//! Answers control requests: a thread that accepts, a short-lived one for each caller.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use understudy_control::server::answer;
use understudy_control::{AcceptError, Channel, Listener, Reply, Request};

use crate::attach::registry::{Decided, Registry};

/// Callers at once, each on a thread; silent ones count. More of them wait to be accepted, and are not refused: a pod or
/// a compose file starts many containers together.
const MAX_CALLERS: usize = 256;
/// From connection to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until `stop` is set. Runs on a thread of its own.
pub fn serve(listener: Listener, registry: Arc<Registry>, stop: Arc<AtomicBool>) {
    let listener = Arc::new(listener);
    let places = Arc::new(Places::default());
    while !stop.load(Ordering::Relaxed) {
        // Whether or not anybody calls: who asks for the status all the time must not keep what has expired.
        registry.expire();
        let Some(place) = places.take(Duration::from_millis(500)) else { continue };
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
        let (listener, registry) = (Arc::clone(&listener), Arc::clone(&registry));
        let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
            let _place = place;
            let deadline = Instant::now() + PATIENCE;
            match listener.question(&channel, deadline) {
                Ok((Request::Watch(wanted), _)) => {
                    let reply = registry.watch(&wanted, || channel.is_closed());
                    if !channel.is_closed() {
                        let reply = reply.map_or_else(Reply::Refused, Reply::Watched);
                        reply_to(&channel, &reply, Instant::now() + PATIENCE);
                    }
                }
                Ok((request, descriptors)) => {
                    reply_to(&channel, &handle(&registry, request, descriptors), deadline);
                }
                Err(error) => tracing::warn!("{error}"),
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "a control request was dropped");
        }
    }
}

fn handle(registry: &Registry, request: Request, descriptors: Vec<OwnedFd>) -> Reply {
    let result = match request {
        Request::Prepare(prepare) => registry.prepare(*prepare).map(|p| Reply::Prepared(Box::new(p))),
        Request::Search(texts) => registry.search(texts, descriptors).map(Reply::Searched),
        Request::Attach(attach) => registry.attach(&attach, descriptors).map(|()| Reply::Done),
        Request::Reattach(both) => registry.reattach(*both, descriptors).map(|()| Reply::Done),
        Request::Join { id, with } => registry.join(&id, &with).map(|()| Reply::Done),
        Request::Rejoin(prepare) => registry.rejoin(*prepare).map(|()| Reply::Done),
        Request::Detach { id } => {
            registry.detach(&id);
            Ok(Reply::Done)
        }
        Request::Status => Ok(Reply::Status(registry.status())),
        Request::Metrics => Ok(Reply::Metrics(registry.metrics())),
        Request::Secrets => Ok(Reply::Secrets(registry.secrets())),
        Request::Decide(wanted) => registry.decide(&wanted).map(|decided| match decided {
            Decided::Kept(decision) => Reply::Decided(decision),
            Decided::Answered(questions) => Reply::Answered { questions },
        }),
        Request::ArmLogin(wanted) => registry.arm_login(&wanted).map(|armed| Reply::Armed(vec![armed])),
        Request::ArmedLogins => Ok(Reply::Armed(registry.armed_logins())),
        Request::AnswerLogin { container, keep: Some(code) } => {
            registry.keep_login(&container, &code).map(Reply::LoginKept)
        }
        Request::AnswerLogin { container, keep: None } => {
            registry.forget_login(&container).map(|()| Reply::Done)
        }
        Request::RotateAuthority => registry.rotate_authority().map(|()| Reply::Done),
        Request::AcceptState => registry.accept_state().map(|()| Reply::Done),
        Request::Withdraw { number } => registry.withdraw(number).map(Reply::Decided),
        Request::WithdrawGone => registry.withdraw_gone().map(Reply::Withdrawn),
        // Answered by whoever has the channel.
        Request::Watch(wanted) => registry.watch(&wanted, || false).map(Reply::Watched),
        Request::AuditFile => registry.audit_file().map(Reply::AuditFile),
        Request::Lines { from } => Ok(Reply::Lines(registry.lines(from))),
        Request::Revoke { container: Some(container) } => registry.revoke(&container).map(Reply::Revoked),
        Request::Revoke { container: None } => registry.revoke_all().map(Reply::Revoked),
        Request::Explain(wanted) => {
            registry.explain(&wanted).map(|explained| Reply::Explained(Box::new(explained)))
        }
    };
    result.unwrap_or_else(Reply::Refused)
}

fn reply_to(channel: &Channel, reply: &Reply, deadline: Instant) {
    if let Err(error) = answer(channel, reply, deadline) {
        tracing::warn!("a control answer could not be given: {error}");
    }
}

#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One of the places for callers, given back when dropped.
struct Place(Arc<Places>);

impl Places {
    /// Waits at most `patience` for one.
    fn take(self: &Arc<Self>, patience: Duration) -> Option<Place> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |taken: &mut usize| *taken >= MAX_CALLERS;
        let waited = self.freed.wait_timeout_while(taken, patience, full);
        let (mut taken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        *taken += 1;
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_waited_for_and_comes_back_with_its_caller() {
        let places = Arc::new(Places::default());
        let mut held: Vec<Place> = (0..MAX_CALLERS).filter_map(|_| places.take(Duration::ZERO)).collect();
        assert_eq!(held.len(), MAX_CALLERS);
        assert!(places.take(Duration::from_millis(10)).is_none());
        let waiting = Arc::clone(&places);
        let next = thread::spawn(move || waiting.take(Duration::from_secs(60)).is_some());
        held.pop();
        assert!(next.join().unwrap());
    }
}
