//! What becomes known about a request while it runs, and its one audit line.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use http::Method;
use understudy_policies::Request;

use super::Downstream;
use super::dial::Dialer;
use super::downstream::InFlight;
use super::failure::Failure;
use super::held_body::HeldBody;
use super::kept::Use;
use super::page::Page;
use super::pool_key::PoolKey;
use super::request::{Target, Upgrade};
use super::request_body::{Stopped, Upload};
use super::response::Answer;
use super::searches::Searches;
use crate::audit::{Audit, Decision, Entry};
use crate::credentials::Swaps;
use crate::dns::Upstream;
use crate::operator;
use crate::reason::Reason;

/// pingora's context of one request.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) audit: Audit,
    pub(super) accepted: Option<Accepted>,
    /// To the very end: after the line is written, the rest of a body that nobody wanted is still read.
    count: Option<InFlight>,
    /// The rule that it was allowed by when it was judged first.
    pub(super) admitted: Option<String>,
    /// The body, if it was read already.
    pub(super) body: Option<bytes::Bytes>,
    /// Which of the container's rights it was judged by last.
    pub(super) judged_at: u64,
    pub(super) plan: Option<Plan>,
    /// Way to the upstream that is tried, from 0.
    pub(super) attempt: usize,
    /// Whether a broken pooled connection was answered with a second try already.
    pub(super) retried: bool,
    /// Whether an account was renewed for it.
    pub(super) renewed: bool,
    /// Whether the try that ends now is followed by another one, with a new token.
    pub(super) again: bool,
    pub(super) connect_by: Option<Instant>,
    /// The body of this try.
    pub(super) upload: Option<Upload>,
    pub(super) answer: Option<Answer>,
    /// Why we ended it ourselves; pingora's error does not tell.
    broken: Option<Failure>,
    /// The upstream connection of this try.
    pub(super) using: Option<Use>,
}

/// A request that belongs to a connection of ours.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) downstream: Arc<Downstream>,
    pub(super) entry: Entry,
    pub(super) in_flight: usize,
}

/// All that an allowed request needs on its way.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    pub(super) upstream: Upstream,
    pub(super) swaps: Swaps,
    pub(super) searches: Searches,
    pub(super) body: Option<HeldBody>,
    pub(super) key: Option<PoolKey>,
}

impl Exchange {
    pub(super) fn new(audit: Audit) -> Self {
        Self {
            audit,
            accepted: None,
            count: None,
            admitted: None,
            body: None,
            judged_at: 0,
            plan: None,
            attempt: 0,
            retried: false,
            renewed: false,
            again: false,
            connect_by: None,
            upload: None,
            answer: None,
            broken: None,
            using: None,
        }
    }

    pub(super) fn accept(&mut self, downstream: Arc<Downstream>) {
        let (count, in_flight) = downstream.begin();
        let mut entry = Entry::new(&downstream.container, if downstream.is_tls() { "https" } else { "http" });
        entry.port = Some(downstream.port);
        entry.host = downstream.identity.name.as_ref().map(ToString::to_string);
        self.accepted = Some(Accepted { downstream, entry, in_flight });
        self.count = Some(count);
    }

    /// Notes a refusal, and gives the page that tells it.
    pub(super) fn refuse(&mut self, reason: Reason) -> Page {
        let Some(accepted) = &mut self.accepted else {
            return Page { reason: Some(Reason::Internal), ..Page::default() };
        };
        if reason == Reason::RealCredential {
            // Whoever has a real value gets no second try.
            accepted.downstream.end_soon();
        }
        let entry = &mut accepted.entry;
        entry.decision = Decision::Denied;
        entry.reason = Some(reason);
        Page {
            reason: Some(reason),
            host: entry.host.clone().unwrap_or_else(|| "unnamed host".to_owned()),
            port: entry.port.unwrap_or(accepted.downstream.port),
            container: accepted.downstream.container.label().to_owned(),
            policy: accepted.downstream.container.rights().policy.label().to_owned(),
            rule: entry.rule.clone(),
            detail: None,
            remedy: None,
            api: None,
            aws: false,
        }
    }

    /// Notes how an exchange failed that had begun, and gives the page for the case that none was answered yet.
    pub(super) fn fail(&mut self, failure: &Failure) -> Page {
        let broken = self.broken.take();
        let failure = broken.as_ref().unwrap_or(failure);
        let was_allowed = self.plan.is_some();
        let reason = if self.is_revoked() { Reason::Revoked } else { failure.reason };
        let mut page = self.refuse(reason);
        page.detail = Some(failure.detail.clone());
        if let Some(accepted) = &mut self.accepted {
            if was_allowed {
                accepted.entry.decision = Decision::Terminated;
                accepted.entry.reason = (!failure.client_gone).then_some(reason);
            }
            let who = if failure.client_gone { "the container broke off: " } else { "" };
            accepted.entry.detail = Some(format!("{who}{}", failure.detail));
        }
        page
    }

    /// Notes that we end it, for the page and the audit.
    pub(super) fn break_off(&mut self, failure: Failure) {
        self.broken = Some(failure);
    }

    /// The same for what the container sent.
    pub(super) fn stop(&mut self, stopped: Stopped) {
        self.entry(|entry| entry.secrets = stopped.secret.into_iter().collect());
        self.break_off(stopped.failure);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(super) fn allow(
        &mut self,
        target: Target,
        upstream: Upstream,
        swaps: Swaps,
        searches: Searches,
        body: Option<HeldBody>,
    ) {
        if let Some(accepted) = &mut self.accepted {
            accepted.entry.decision = Decision::Allowed;
            accepted.entry.rule = Some(upstream.permit().rule().to_owned());
            accepted.entry.secrets = swaps.secrets.clone();
        }
        self.plan = Some(Plan { target, upstream, swaps, searches, body, key: None });
    }

    /// The dialler of the next try, for a request that came by HTTP/2 or not. `None` when all ways were tried, or nothing was allowed.
    pub(super) fn dialer(&mut self, http2: bool) -> Option<Dialer> {
        let accepted = self.accepted.as_ref()?;
        let plan = self.plan.as_mut()?;
        let dialer = Dialer::new(&plan.upstream, self.attempt, &accepted.downstream.container, |hop| {
            PoolKey::new(&accepted.downstream, &plan.upstream, hop, &plan.swaps.secrets, http2)
        })?;
        plan.key = Some(dialer.key().clone());
        Some(dialer)
    }

    pub(super) fn hops_left(&self) -> usize {
        let all = self.plan.as_ref().map_or(0, |plan| plan.upstream.hops().len());
        all.saturating_sub(self.attempt)
    }

    /// Whether it must not go on: its container is revoked or has passed a limit, or policy is another now and does not
    /// allow it any more.
    pub(super) fn must_end(&mut self, method: &Method) -> bool {
        let (Some(accepted), Some(plan)) = (&mut self.accepted, &self.plan) else { return true };
        let container = &accepted.downstream.container;
        if container.is_revoked() {
            return true;
        }
        let now = container.changes();
        if self.judged_at == now {
            return false;
        }
        self.judged_at = now;
        let Target { host, port, path, upgrade, .. } = &plan.target;
        let request = Request::new(host, *port, method.as_str(), path.as_str());
        let changed = || "policy was changed, and does not allow it any more".to_owned();
        let (reason, rule, detail) = match operator::still(container, &request, self.admitted.as_deref()) {
            Ok(Some(permit)) if upgrade.within(&permit).is_ok() => return false,
            Ok(None) if !matches!(upgrade, Upgrade::Other(_)) => return false,
            Ok(permit) => {
                (Reason::UpgradeNotAllowed, permit.map(|permit| permit.rule().to_owned()), changed())
            }
            Err(denial) if denial.reason == Reason::LimitReached => (denial.reason, None, denial.remedy),
            Err(denial) => (denial.reason, denial.rule, changed()),
        };
        accepted.entry.rule = rule.or(accepted.entry.rule.take().filter(|_| reason == Reason::LimitReached));
        self.break_off(Failure { reason, detail, client_gone: false });
        true
    }

    /// Counts bytes that are about to be handed on. False: they must not be, and we end it.
    pub(super) fn pass(&mut self, bytes: usize) -> bool {
        let Some(accepted) = &self.accepted else { return false };
        let Err(denial) = operator::pass(&accepted.downstream.container, bytes as u64) else { return true };
        self.break_off(Failure { reason: denial.reason, detail: denial.remedy, client_gone: false });
        false
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.accepted.as_ref().is_none_or(|accepted| accepted.downstream.container.is_revoked())
    }

    pub(super) fn entry(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some(accepted) = &mut self.accepted {
            change(&mut accepted.entry);
        }
    }

    /// Writes the line. Once: what comes after is not about this request.
    pub(super) fn finish(&mut self) {
        let Some(mut accepted) = self.accepted.take() else { return };
        accepted.entry.stand_ins_in_body = self.upload.as_ref().map_or(0, Upload::stand_ins);
        if let (Some(upload), Some(plan)) = (&self.upload, &self.plan)
            && upload.swapped()
        {
            accepted.entry.secrets.extend(plan.searches.text_secrets.iter().cloned());
            accepted.entry.secrets.sort_unstable();
            accepted.entry.secrets.dedup();
        }
        accepted.entry.scrubbed = self.answer.as_ref().map_or(0, Answer::replaced);
        let container = &accepted.downstream.container;
        if container.is_revoked() && accepted.entry.decision != Decision::Denied {
            accepted.entry.decision = Decision::Terminated;
            accepted.entry.reason = Some(Reason::Revoked);
        }
        let counters = &container.counters;
        match accepted.entry.decision {
            Decision::Allowed => &counters.allowed,
            Decision::Denied => &counters.denied,
            Decision::Terminated => &counters.terminated,
        }
        .fetch_add(1, Relaxed);
        self.audit.write(accepted.entry);
    }
}

/// A request whose connection is cut, or whose task panics, never comes to pingora's logging phase.
impl Drop for Exchange {
    fn drop(&mut self) {
        self.entry(|entry| {
            if entry.decision == Decision::Allowed {
                entry.decision = Decision::Terminated;
            } else if entry.reason.is_none() {
                entry.reason = Some(Reason::Internal);
            }
        });
        self.finish();
    }
}
