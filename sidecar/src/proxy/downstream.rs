//! One connection of a container, as its requests see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::sync::watch;

use crate::connection::Identity;
use crate::container::Container;

/// What requests come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Tls,
    /// In the clear. A request may name another host, as to a proxy.
    Plain,
    /// In the clear, through a tunnel that a CONNECT made: all are for its target.
    Tunnelled,
}

#[derive(Debug)]
pub struct Downstream {
    pub container: Arc<Container>,
    pub identity: Identity,
    /// The port that the container connected to.
    pub port: u16,
    pub wire: Wire,
    /// Number of the worker that the connection is on.
    pub worker: usize,
    requests: AtomicU64,
    in_flight: AtomicUsize,
    received: AtomicBool,
    ending: watch::Sender<bool>,
}

/// Counts a request for as long as it lives, also when its task panics.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Downstream>);

impl Downstream {
    pub fn new(
        container: Arc<Container>,
        identity: Identity,
        port: u16,
        wire: Wire,
        worker: usize,
    ) -> Arc<Self> {
        let (requests, in_flight, received) = Default::default();
        let ending = watch::Sender::new(false);
        Arc::new(Self { container, identity, port, wire, worker, requests, in_flight, received, ending })
    }

    pub fn is_tls(&self) -> bool {
        self.wire == Wire::Tls
    }

    /// How many requests there were. Each of them has an audit line.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Whether anything came after the handshake.
    pub fn received(&self) -> bool {
        self.received.load(Relaxed)
    }

    pub(super) fn mark_received(&self) {
        self.received.store(true, Relaxed);
    }

    /// Lets what is under way come to its end, and takes no new request: over HTTP/2, GOAWAY (RFC 9113 section 6.8).
    pub(super) fn end_soon(&self) {
        self.ending.send_replace(true);
    }

    /// Becomes true, once, by [`Self::end_soon`].
    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Whether no request is under way: what an HTTP/1.1 client sends then is the head of its next one.
    pub(super) fn is_between_requests(&self) -> bool {
        self.in_flight.load(Relaxed) == 0
    }

    /// The request, and how many are now under way on this connection.
    pub(super) fn begin(self: &Arc<Self>) -> (InFlight, usize) {
        self.requests.fetch_add(1, Relaxed);
        self.container.counters.open_requests.fetch_add(1, Relaxed);
        let before = self.in_flight.fetch_add(1, Relaxed);
        (InFlight(Arc::clone(self)), before + 1)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
        self.0.container.counters.open_requests.fetch_sub(1, Relaxed);
    }
}
