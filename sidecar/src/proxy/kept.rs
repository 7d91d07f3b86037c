//! The upstream connections of a container, so that those which policy does not allow any more are ended, also while they
//! lie in pingora's pool, which gives nothing back but by its own key.

use std::fmt;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use socket2::SockRef;
use understudy_policies::Verdict;

use super::pool_key::PoolKey;
use crate::container::Container;
use crate::credentials::Rights;
use crate::operator::{Mode, ONCE, ended};

/// Of one container.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<Weak<Connection>>>);

/// One upstream connection. pingora keeps it as long as it keeps the connection itself.
pub(super) struct Connection {
    pub(super) key: PoolKey,
    /// The same socket: shut down here, it is ended for pingora, too.
    socket: OwnedFd,
    /// Requests that are under way on it.
    users: AtomicUsize,
    /// Which of the container's rights it was compared with last, when nobody used it.
    checked_at: AtomicU64,
    ended: AtomicBool,
}

/// A request uses a connection for as long as this lives.
#[derive(Debug)]
pub(super) struct Use {
    connection: Weak<Connection>,
    container: Arc<Container>,
}

/// Whether a connection may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    Always,
    /// Not for another request.
    WhileUsed,
    Never,
}

impl Kept {
    /// How many connections there are now.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    pub(super) fn add(&self, key: PoolKey, socket: OwnedFd) -> Arc<Connection> {
        let (users, ended, checked_at) =
            (AtomicUsize::new(0), AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let connection = Arc::new(Connection { key, socket, users, checked_at, ended });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        connection
    }

    /// Ends all that `rights` do not allow; how many of them nobody used. `None`: they allow nothing.
    pub(crate) fn end_those_beyond(&self, rights: Option<&Rights>) -> u64 {
        let mut idle = 0;
        for connection in self.all() {
            let used = connection.users.load(SeqCst) > 0;
            let over = match rights.map_or(Stay::Never, |rights| stay(&connection.key, rights)) {
                Stay::Always => false,
                Stay::WhileUsed => !used,
                Stay::Never => true,
            };
            if over && connection.end() && !used {
                idle += 1;
            }
        }
        idle
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Connection {
    /// True the first time.
    fn end(&self) -> bool {
        let first = !self.ended.swap(true, SeqCst);
        if first {
            // It fails where the upstream has closed it already.
            drop(SockRef::from(&self.socket).shutdown(Shutdown::Both));
        }
        first
    }
}

impl Use {
    pub(super) fn new(connection: &Arc<Connection>, container: Arc<Container>) -> Self {
        connection.users.fetch_add(1, SeqCst);
        Self { connection: Arc::downgrade(connection), container }
    }
}

/// Rights may have changed while it was used, or made.
impl Drop for Use {
    fn drop(&mut self) {
        let Some(connection) = self.connection.upgrade() else { return };
        if connection.users.fetch_sub(1, SeqCst) > 1 {
            return;
        }
        let now = self.container.changes();
        let is_new = connection.checked_at.swap(now, SeqCst) != now;
        if self.container.is_revoked()
            || (is_new
                && (ended(&self.container).is_some()
                    || stay(&connection.key, &self.container.rights()) != Stay::Always))
        {
            connection.end();
        }
    }
}

/// Pure. What may be asked for on a connection is decided request by request; this is about whether anything may be.
fn stay(key: &PoolKey, rights: &Rights) -> Stay {
    let given = match rights.policy.decide(&key.host, key.port) {
        Verdict::Allowed { given, .. } => given,
        Verdict::NoHost | Verdict::NoPort { .. } if rights.mode == Mode::Log => return Stay::Always,
        // Of what waits for the operator, only what was allowed for once.
        Verdict::NoHost | Verdict::NoPort { .. } if key.rule == ONCE => return Stay::WhileUsed,
        _ => return Stay::Never,
    };
    let granted = key.secrets.iter().all(|secret| rights.grants.contains(secret));
    if granted && (given.private || !key.private) { Stay::Always } else { Stay::WhileUsed }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use understudy_policies::{Policy, PolicySet};

    use super::super::pool_key::tests::key;
    use super::*;

    #[test]
    fn a_connection_stays_for_as_long_as_something_may_be_asked_for_on_it() {
        let allow = "[[allow]]\nhost = \"api.example.com\"\n";
        let rights = |rules: &str, mode, secrets: &[&str]| {
            let policy = Policy::parse("web", "web.toml", rules).unwrap();
            let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
            let grants = Arc::new(secrets.iter().copied().collect());
            Rights { policy, grants, mode, ..Rights::default() }
        };
        let elsewhere = "[[allow]]\nhost = \"elsewhere.example.com\"\n";
        let (once, private) = ("operator, once", "web.toml:3");
        for (rules, mode, secrets, rule, expected) in [
            (allow.to_owned(), Mode::Deny, &["one"][..], "web.toml:3", Stay::Always),
            (format!("{allow}paths = \"/v2\"\n"), Mode::Deny, &["one"], "web.toml:3", Stay::Always),
            (allow.to_owned(), Mode::Deny, &[], "web.toml:3", Stay::WhileUsed),
            (elsewhere.to_owned(), Mode::Deny, &["one"], "web.toml:3", Stay::Never),
            (format!("{allow}port = 8443\n"), Mode::Deny, &["one"], "web.toml:3", Stay::Never),
            (format!("{allow}[[deny]]\nhost = \"*.example.com\"\n"), Mode::Log, &["one"], once, Stay::Never),
            (elsewhere.to_owned(), Mode::Log, &["one"], "mode log", Stay::Always),
            (elsewhere.to_owned(), Mode::Ask, &["one"], once, Stay::WhileUsed),
            (elsewhere.to_owned(), Mode::Ask, &["one"], "operator decision 1", Stay::Never),
        ] {
            let key = PoolKey { rule: rule.to_owned(), ..key() };
            assert_eq!(stay(&key, &rights(&rules, mode, secrets)), expected, "{rules} {mode:?} {rule}");
        }
        let key = PoolKey { rule: private.to_owned(), private: true, ..key() };
        assert_eq!(stay(&key, &rights(allow, Mode::Deny, &["one"])), Stay::WhileUsed);
        let still = format!("{allow}private = true\n");
        assert_eq!(stay(&key, &rights(&still, Mode::Deny, &["one"])), Stay::Always);
    }
}
