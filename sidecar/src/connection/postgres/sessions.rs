//! The sessions of one container that can be cancelled, by the keys that it was given for them. The servers' own keys stay
//! here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use understudy_policies::HostName;

use super::derivations::Derivations;
use super::message::CancelKey;

/// As many as there are sessions; and the container's turn in what logins cost.
#[derive(Debug, Default)]
pub struct Sessions {
    targets: Arc<Mutex<HashMap<CancelKey, Target>>>,
    pub(super) derivations: Derivations,
}

/// Whose command is to be cancelled, and where.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) host: HostName,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) secret: String,
    /// The server's.
    pub(super) key: CancelKey,
}

/// Holds for as long as the session does.
pub(super) struct Registered {
    sessions: Arc<Mutex<HashMap<CancelKey, Target>>>,
    given: CancelKey,
}

impl Sessions {
    /// `given` must be random.
    pub(super) fn register(&self, given: CancelKey, target: Target) -> Registered {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(given, target);
        Registered { sessions: Arc::clone(&self.targets), given }
    }

    pub(super) fn target(&self, given: CancelKey) -> Option<Target> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&given).cloned()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.given);
    }
}
