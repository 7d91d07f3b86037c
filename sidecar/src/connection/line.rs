//! The one audit line of a connection that never became requests, and why it did not.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::relay::Passed;
use crate::audit::{Audit, Decision, Entry};
use crate::container::Container;
use crate::decide::Denial;
use crate::proxy::Downstream;
use crate::reason::Reason;

/// Why a connection did not become requests.
pub(super) struct Fault {
    /// None if it is the container that ended it.
    reason: Option<Reason>,
    detail: String,
    /// What decided, if a rule did.
    rule: Option<String>,
    /// The secret that it is about, if it is about one.
    secret: Option<String>,
}

impl Fault {
    pub(super) fn new(reason: Reason, detail: &str) -> Self {
        Self { reason: Some(reason), detail: detail.to_owned(), rule: None, secret: None }
    }

    /// With what would allow it.
    pub(super) fn of(denial: Denial) -> Self {
        Self { reason: Some(denial.reason), detail: denial.remedy, rule: denial.rule, secret: None }
    }

    /// Of what was let through before.
    pub(super) fn changed(denial: Denial) -> Self {
        let detail = format!("policy was changed, and does not let it through any more; {}", denial.remedy);
        Self { detail, ..Self::of(denial) }
    }

    pub(super) fn broken_off(detail: &str) -> Self {
        Self { reason: None, detail: detail.to_owned(), rule: None, secret: None }
    }

    /// The same, told otherwise.
    pub(super) fn reworded(self, words: impl FnOnce(String) -> String) -> Self {
        Self { detail: words(self.detail), ..self }
    }

    pub(super) fn about(self, secret: &str) -> Self {
        Self { secret: Some(secret.to_owned()), ..self }
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// As the container is told it.
    pub(super) fn message(&self) -> String {
        let code = self.reason.map(|reason| format!("{}: ", reason.code())).unwrap_or_default();
        format!("understudy: {code}{}", self.detail)
    }
}

/// The one audit line of a connection without requests, spliced ones among them; written when dropped, also after a panic.
pub(super) struct Line {
    container: Arc<Container>,
    audit: Audit,
    entry: Option<Entry>,
    downstream: Option<Arc<Downstream>>,
    passed: Option<Arc<Passed>>,
}

impl Line {
    pub(super) fn new(container: Arc<Container>, audit: Audit) -> Self {
        let mut entry = Entry::new(&container, "tcp");
        entry.reason = Some(Reason::Internal);
        Self { container, audit, entry: Some(entry), downstream: None, passed: None }
    }

    pub(super) fn entry(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = &mut self.entry {
            change(entry);
        }
    }

    pub(super) fn becomes(&mut self, downstream: &Arc<Downstream>) {
        if let Some(name) = &downstream.identity.name {
            self.entry(|entry| entry.host = Some(name.to_string()));
        }
        self.downstream = Some(Arc::clone(downstream));
    }

    /// What it carries is passed through from now on.
    pub(super) fn passes(&mut self, rule: &str, passed: &Arc<Passed>) {
        self.entry(|entry| {
            (entry.decision, entry.reason) = (Decision::Allowed, None);
            entry.rule = Some(rule.to_owned());
        });
        self.passed = Some(Arc::clone(passed));
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        self.entry(|entry| {
            entry.reason = fault.reason;
            if fault.rule.is_some() {
                entry.rule = fault.rule;
            }
            if let Some(secret) = fault.secret {
                entry.secrets = vec![secret];
            }
            entry.detail = Some(fault.detail).filter(|detail| !detail.is_empty());
            if fault.reason == Some(Reason::Revoked) || entry.decision == Decision::Allowed {
                entry.decision = Decision::Terminated;
            }
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        // Requests have lines of their own.
        if self.downstream.as_ref().is_some_and(|downstream| downstream.requests() > 0) {
            return;
        }
        if let Some(passed) = &self.passed {
            (entry.bytes_up, entry.bytes_down) = (passed.up.load(Relaxed), passed.down.load(Relaxed));
        }
        match entry.decision {
            Decision::Allowed => &self.container.counters.allowed,
            Decision::Denied => &self.container.counters.denied,
            Decision::Terminated => &self.container.counters.terminated,
        }
        .fetch_add(1, Relaxed);
        self.audit.write(entry);
    }
}
