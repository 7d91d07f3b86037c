//! An agent's container as the sidecar knows it: who it is, what it may do, what it did.

use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use understudy_control::ContainerId;

use crate::connection::postgres::Sessions;
use crate::credentials::{Holdings, Rights, Vault};
use crate::dns::SyntheticNames;
use crate::operator::meter::{Meter, Moved};
use crate::operator::{Rates, ended};
use crate::proxy::{HELD_AT_ONCE, Kept};
use crate::tls::Leaves;

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
    /// Of the authority that it trusts, if that is not the gateway's.
    leaves: Option<Arc<Leaves>>,
    pub counters: Counters,
    /// How often rules with a rate were used.
    pub rates: Rates,
    /// Bodies that are held whole in memory.
    pub held_bodies: Arc<Semaphore>,
    pub upstreams: Kept,
    /// What it has used of its limits, since the sidecar took it over first.
    pub meter: Arc<Meter>,
    /// Sessions that can be cancelled.
    pub postgres: Sessions,
    /// Its logins with keys that an agent keeps: one at a time, as somebody may be asked for each.
    pub agent_turn: Semaphore,
    revoked: watch::Sender<bool>,
    /// How often its rights were set, or a limit was passed.
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
        let meter = Arc::new(Meter::new(rights.policy.limits()));
        let (counters, rights) = (Counters::default(), ArcSwap::from_pointee(rights));
        let holdings = Holdings::default();
        let held_bodies = Arc::new(Semaphore::new(HELD_AT_ONCE));
        let agent_turn = Semaphore::new(1);
        let (revoked, changes) = (watch::channel(false).0, watch::channel(0).0);
        let (upstreams, postgres, rates) = (Kept::default(), Sessions::default(), Rates::default());
        Self {
            id,
            name,
            harness,
            rights,
            holdings,
            names,
            notes,
            leaves: None,
            counters,
            rates,
            held_bodies,
            upstreams,
            meter,
            postgres,
            agent_turn,
            revoked,
            changes,
        }
    }

    /// It is the same container as one that ran before: what that one used of its limits is used.
    #[must_use]
    pub(crate) fn again(mut self, meter: Option<Arc<Meter>>) -> Self {
        if let Some(meter) = meter {
            meter.limit(self.rights().policy.limits());
            meter.resume();
            self.meter = meter;
        }
        self
    }

    /// It was started with the certificate of this authority.
    #[must_use]
    pub(crate) fn trusting(self, leaves: Arc<Leaves>) -> Self {
        Self { leaves: Some(leaves), ..self }
    }

    pub(crate) fn leaves(&self) -> Option<&Arc<Leaves>> {
        self.leaves.as_ref()
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
        self.meter.limit(self.rights().policy.limits());
        self.reconsider();
    }

    /// Counts bytes that are about to be handed on, either way. What runs is ended by those that are too many; whoever
    /// brings them must not hand them on.
    pub(crate) fn pass(&self, bytes: u64) -> bool {
        let moved = self.meter.pass(bytes);
        if moved == Moved::Passes {
            self.reconsider();
        }
        moved == Moved::Within
    }

    /// Ends what runs when `max-runtime` is over. Never returns; several may do the same.
    pub(crate) async fn end_in_time(&self) {
        let (mut changing, mut ended_at) = (self.changing(), None);
        loop {
            let limits = self.rights().policy.limits();
            let deadline = self.meter.deadline(limits).filter(|deadline| ended_at != Some(*deadline));
            let over = async {
                match deadline {
                    Some(deadline) => sleep_until(Instant::from_std(deadline)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {
                    ended_at = deadline;
                    self.reconsider();
                }
                // This container keeps the sender.
                _ = changing.changed() => {}
            }
        }
    }

    /// Has each connection and request look again whether it may go on, and ends upstream connections that may not.
    fn reconsider(&self) {
        self.changes.send_modify(|count| *count += 1);
        let rights = self.rights();
        self.end_upstreams(ended(self).is_none().then_some(&*rights));
    }

    /// Tokens of accounts were renewed: what they were is still searched for in answers. What it may do stays.
    pub fn renewed(&self, vault: &Vault) {
        self.exchange_rights(self.rights().with_values(vault));
    }

    /// By one thread at a time.
    fn exchange_rights(&self, rights: Rights) {
        let before = self.rights();
        let gone = before.values.iter().filter(|value| !rights.values.contains(value));
        // First: whoever sees the new ones finds all that there was.
        self.holdings.keep_former(gone.cloned());
        self.rights.store(Arc::new(rights));
    }

    /// Another number than before once its rights were set anew, or a limit was passed.
    pub fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Changes whenever its rights are set, or a limit is passed.
    pub fn changing(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends its listeners, connections and grants for good.
    pub fn revoke(&self) {
        self.revoked.send_replace(true);
        self.meter.stop();
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
    use bytes::Bytes;
    use understudy_policies::PolicySet;

    use super::*;
    use crate::credentials::Grants;
    use crate::credentials::fixture::{Values, declared, vault};
    use crate::credentials::scrub::Replacer;
    use crate::dns::SyntheticRange;

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
