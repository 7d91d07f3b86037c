//! An agent's container as the sidecar knows it: who it is, what it may do, what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use understudy_control::ContainerId;
use understudy_policies::Limits;

use crate::connection::postgres::Sessions;
use crate::credentials::{Holdings, Rights, Vault};
use crate::dns::SyntheticNames;
use crate::operator::Rates;
use crate::proxy::{HELD_AT_ONCE, Kept};

#[derive(Debug)]
pub struct Container {
    pub id: ContainerId,
    /// Podman's name, if it has one.
    pub name: Option<String>,
    pub harness: String,
    rights: ArcSwap<Rights>,
    /// What was minted for it, and what its secrets were before.
    pub holdings: Holdings,
    /// Which synthetic address stands for which name, in this container only.
    pub names: SyntheticNames,
    pub notes: Vec<String>,
    pub counters: Counters,
    /// How often rules with a rate were used.
    pub rates: Rates,
    /// Bodies that are held whole in memory.
    pub held_bodies: Arc<Semaphore>,
    pub upstreams: Kept,
    /// Sessions that can be cancelled.
    pub postgres: Sessions,
    /// When the sidecar took it over.
    since: Instant,
    revoked: watch::Sender<bool>,
    /// How often its rights were set.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub struct Counters {
    pub open_connections: AtomicU64,
    /// Requests under way; HTTP/2 has many on one connection.
    pub open_requests: AtomicU64,
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    /// Connections and requests that were ended before their end, and upstream connections that nobody used.
    pub terminated: AtomicU64,
    /// Requests that were decided on, and connections that were passed through.
    pub requests: AtomicU64,
    /// Both ways.
    pub bytes: AtomicU64,
}

/// Counts a connection for as long as it lives, also when its task panics.
#[derive(Debug)]
pub struct OpenConnection(Arc<Container>);

impl Container {
    pub fn new(
        id: ContainerId,
        name: Option<String>,
        harness: String,
        rights: Rights,
        names: SyntheticNames,
        notes: Vec<String>,
    ) -> Self {
        let (counters, rights) = (Counters::default(), ArcSwap::from_pointee(rights));
        let holdings = Holdings::default();
        let held_bodies = Arc::new(Semaphore::new(HELD_AT_ONCE));
        let (revoked, changes) = (watch::channel(false).0, watch::channel(0).0);
        let (upstreams, postgres) = (Kept::default(), Sessions::default());
        let (rates, since) = (Rates::default(), Instant::now());
        Self {
            id,
            name,
            harness,
            rights,
            holdings,
            names,
            notes,
            counters,
            rates,
            held_bodies,
            upstreams,
            postgres,
            since,
            revoked,
            changes,
        }
    }

    /// Which limit of its policies it has reached, and what that is.
    pub fn reached(&self, limits: Limits) -> Option<String> {
        let (requests, bytes) = (self.counters.requests.load(Relaxed), self.counters.bytes.load(Relaxed));
        let runtime = self.since.elapsed();
        if limits.requests.is_some_and(|most| requests >= most) {
            return Some(format!("it has made {requests} requests, and `max-requests` allows no more"));
        }
        if limits.bytes.is_some_and(|most| bytes >= most) {
            return Some(format!("it has moved {bytes} bytes, and `max-bytes` allows no more"));
        }
        let over = limits.runtime.is_some_and(|most| runtime >= most);
        over.then(|| format!("it has run for {} s, and `max-runtime` allows no more", runtime.as_secs()))
    }

    /// What people call it: its name, or the first 12 digits of its id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.id.short())
    }

    /// What it may do now. Whoever decides something takes them once: the next call can give others.
    pub fn rights(&self) -> Arc<Rights> {
        self.rights.load_full()
    }

    pub fn set_rights(&self, rights: Rights) {
        self.exchange_rights(rights);
        self.changes.send_modify(|count| *count += 1);
        self.end_upstreams(Some(&self.rights()));
    }

    /// Tokens of accounts were renewed: what they were is still searched for in answers. What it may do stays.
    pub fn renewed(&self, vault: &Vault) {
        self.exchange_rights(self.rights().with_values(vault));
    }

    /// By one thread at a time.
    fn exchange_rights(&self, rights: Rights) {
        let before = self.rights.swap(Arc::new(rights));
        let after = self.rights();
        let gone = before.values.iter().filter(|value| !after.values.contains(value));
        self.holdings.keep_former(gone.cloned());
    }

    /// Another number than before once its rights were set anew.
    pub fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Changes whenever its rights are set.
    pub fn changing(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends its listeners, connections and grants for good.
    pub fn revoke(&self) {
        self.revoked.send_replace(true);
        self.holdings.forget();
        self.end_upstreams(None);
    }

    /// Those that are used are counted by who uses them.
    fn end_upstreams(&self, allowed: Option<&Rights>) {
        let ended = self.upstreams.end_those_beyond(allowed);
        self.counters.terminated.fetch_add(ended, Relaxed);
    }

    pub fn is_revoked(&self) -> bool {
        *self.revoked.borrow()
    }

    /// Turns true when the container is revoked or gone; drives pingora's shutdown of its connections, too.
    pub fn revocation(&self) -> watch::Receiver<bool> {
        self.revoked.subscribe()
    }

    pub fn open_connection(self: &Arc<Self>) -> OpenConnection {
        self.counters.open_connections.fetch_add(1, Relaxed);
        OpenConnection(Arc::clone(self))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.counters.open_connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use understudy_policies::PolicySet;

    use super::*;
    use crate::credentials::Grants;
    use crate::credentials::fixture::{Values, declared, vault};
    use crate::credentials::scrub::Replacer;
    use crate::dns::SyntheticRange;

    #[test]
    fn each_limit_is_reached_at_its_number_and_not_before() {
        let id = "a".repeat(64).parse().unwrap();
        let (rights, names) = (Rights::default(), SyntheticNames::default());
        let mut container = Container::new(id, None, "generic".to_owned(), rights, names, Vec::new());
        container.since = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        container.counters.requests.store(5, Relaxed);
        container.counters.bytes.store(1000, Relaxed);
        let requests = |most| Limits { requests: Some(most), ..Limits::default() };
        let bytes = |most| Limits { bytes: Some(most), ..Limits::default() };
        let runtime = |most| Limits { runtime: Some(Duration::from_secs(most)), ..Limits::default() };
        for (limits, said) in [
            (Limits::default(), None),
            (requests(6), None),
            (requests(5), Some("`max-requests`")),
            (requests(0), Some("`max-requests`")),
            (bytes(1001), None),
            (bytes(1000), Some("`max-bytes`")),
            (runtime(3600), None),
            (runtime(100), Some("`max-runtime`")),
            (requests(6).and(bytes(1001)).and(runtime(3600)), None),
            (requests(6).and(bytes(1001)).and(runtime(1)), Some("`max-runtime`")),
        ] {
            let reached = container.reached(limits);
            assert_eq!(reached.is_some(), said.is_some(), "{limits:?}: {reached:?}");
            assert!(said.is_none_or(|said| reached.unwrap().contains(said)), "{limits:?}");
        }
    }

    #[test]
    fn every_token_that_it_could_have_seen_is_searched_for_after_renewals() {
        let tokens =
            ["sk-one-0123456789abcdefghij", "sk-two-0123456789abcdefghij", "sk-tre-0123456789abcdefghij"];
        let vaults =
            tokens.map(|token| Arc::new(vault(&declared("key", ""), &Values::from([("key", token)]))));
        let grants: Arc<Grants> = Arc::new(["key"].into_iter().collect());
        let rights = Rights::new(Arc::new(PolicySet::default()), Arc::clone(&grants), &vaults[0]);
        let names = SyntheticNames::new(SyntheticRange::default());
        let id = "a".repeat(64).parse().unwrap();
        let container = Container::new(id, None, "generic".to_owned(), rights, names, Vec::new());
        let changes = container.changes();
        vaults.iter().for_each(|vault| container.renewed(vault));
        let mut replacer = Replacer::new(container.holdings.scrub(&vaults[2], &grants));
        let out = [replacer.push(Bytes::from(tokens.join(" "))), replacer.finish()].concat();
        let out = String::from_utf8(out).unwrap();
        assert!(!tokens.iter().any(|token| out.contains(token)), "{out}");
        assert_eq!(
            (container.changes(), container.rights().grants.names()),
            (changes, vec!["key".to_owned()])
        );
        container.revoke();
        container.renewed(&vaults[0]);
        assert!(container.holdings.scrub(&vaults[2], &Grants::default()).is_empty());
    }
}
