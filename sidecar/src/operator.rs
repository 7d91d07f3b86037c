//! What an operator decides while containers run: `decisions` about hosts, which last; `questions` of requests that wait;
//! `mode`, what becomes of a host that no rule is about; and `rates`, how often a rule allows.

pub mod decisions;
pub mod meter;
pub mod mode;
pub mod notify;
pub mod questions;
pub mod rates;

pub use decisions::Decisions;
pub use mode::Mode;
pub use questions::Questions;
pub use rates::Rates;

use std::sync::Arc;
use std::time::Instant;

use understudy_policies::{Limits, PolicySet, Request};

use crate::container::Container;
use crate::decide::{Denial, Permit, decide};
use crate::reason::Reason;
use mode::{Course, LOGGED};
use questions::Heard;

/// The place of a rule that holds for the requests which wait, and for no others.
pub(crate) const ONCE: &str = "operator, once";

/// Decides, and waits for a person where the container's mode says so and no rule is about the host. `admitted` is the rule
/// that this very request was allowed by before, if it is decided on once more: it is counted and asked about once.
pub async fn permit(
    questions: &Arc<Questions>,
    container: &Container,
    request: &Request<'_>,
    admitted: Option<&str>,
) -> Result<Permit, Denial> {
    if let Some(rule) = admitted {
        // Reading its body took as long as the container liked.
        ended(container).map_or(Ok(()), Err)?;
        return match rule {
            ONCE => unless_denied(&container.rights().policy, request, ONCE),
            _ => listed_or_asked(questions, container, request).await,
        };
    }
    within_limits(container)?;
    let permit = listed_or_asked(questions, container, request).await?;
    within_rate(container, &permit)?;
    Ok(permit)
}

/// Counts a request, or a connection that is passed through, for the rules that allow it.
///
/// # Errors
/// If all of them have a `rate`, and none has room.
pub fn within_rate(container: &Container, permit: &Permit) -> Result<(), Denial> {
    container.rates.take(&permit.given().rates, Instant::now()).map_err(|wait| Denial {
        reason: Reason::RateLimited,
        policy: permit.policy().to_owned(),
        rule: Some(permit.rule().to_owned()),
        remedy: format!("wait {} s, or change `rate` at {}", wait.as_secs() + 1, permit.rule()),
    })
}

/// Counts a request, or a connection that is passed through.
///
/// # Errors
/// If the container has reached a limit of its policies.
pub fn within_limits(container: &Container) -> Result<(), Denial> {
    let policy = &container.rights().policy;
    container.meter.request(policy.limits()).map_err(|reached| beyond(policy, &reached))
}

/// Counts bytes that are about to be handed on, either way: see [`meter::Meter`].
///
/// # Errors
/// If they are more than `max-bytes` allows; then they must not be handed on.
pub fn pass(container: &Container, bytes: u64) -> Result<(), Denial> {
    if container.pass(bytes) {
        return Ok(());
    }
    // The limit may have been raised at this very moment; what would have passed before is ended all the same.
    Err(ended(container).unwrap_or_else(|| beyond(&container.rights().policy, "`max-bytes` was reached")))
}

/// Why it may make no request at all any more, if it has reached a limit of its policies.
pub fn limited(container: &Container) -> Option<Denial> {
    let policy = &container.rights().policy;
    container.meter.reached(policy.limits()).map(|reached| beyond(policy, &reached))
}

/// Why nothing of it may go on, if it has passed a limit of its policies.
pub fn ended(container: &Container) -> Option<Denial> {
    let policy = &container.rights().policy;
    container.meter.over(policy.limits()).map(|reached| beyond(policy, &reached))
}

fn beyond(policy: &PolicySet, reached: &str) -> Denial {
    Denial {
        reason: Reason::LimitReached,
        policy: policy.label().to_owned(),
        rule: None,
        remedy: format!("{reached}; raise it in {}, or start a new container", limiting(policy)),
    }
}

/// `policy `a` or `b``: those that limit anything.
fn limiting(policy: &PolicySet) -> String {
    let limiting = policy.policies().iter().filter(|policy| policy.limits() != Limits::default());
    let names: Vec<String> = limiting.map(|policy| format!("`{}`", policy.name())).collect();
    if names.is_empty() { "the policy".to_owned() } else { format!("policy {}", names.join(" or ")) }
}

/// Whether a request that was let through by the rule `admitted` may go on, now that policy is another, and by what: nothing
/// but the container's mode or an answer of the operator, if it is `None`.
pub fn still(
    container: &Container,
    request: &Request<'_>,
    admitted: Option<&str>,
) -> Result<Option<Permit>, Denial> {
    if let Some(denial) = ended(container) {
        return Err(denial);
    }
    let rights = container.rights();
    match decide(&rights.policy, request) {
        Err(denial) if is_unlisted(denial.reason) => match (rights.mode, admitted) {
            (Mode::Log, _) | (_, Some(ONCE)) => Ok(None),
            _ => Err(denial),
        },
        decided => decided.map(Some),
    }
}

async fn listed_or_asked(
    questions: &Arc<Questions>,
    container: &Container,
    request: &Request<'_>,
) -> Result<Permit, Denial> {
    let rights = container.rights();
    let denial = match decide(&rights.policy, request) {
        Err(denial) => denial,
        permitted => return permitted,
    };
    match rights.mode.course(denial.reason) {
        Course::Record => unless_denied(&rights.policy, request, LOGGED),
        Course::Ask => wait(questions, container, request, denial).await,
        Course::Refuse => Err(denial),
    }
}

async fn wait(
    questions: &Arc<Questions>,
    container: &Container,
    request: &Request<'_>,
    denial: Denial,
) -> Result<Permit, Denial> {
    let unheard = |why: String| Denial { remedy: format!("{why}; {}", denial.remedy), ..denial.clone() };
    let mut question =
        questions.ask(container, request.host, request.port).map_err(|why| unheard(why.to_string()))?;
    loop {
        // The first time, too: policy may have changed before there was a question to be told of it.
        match decide(&container.rights().policy, request) {
            Err(denial) if is_unlisted(denial.reason) => {}
            decided => return decided,
        }
        match question.hear().await {
            Heard::Nothing => {
                return Err(unheard(format!(
                    "the operator was asked, and did not answer within {} s",
                    questions.patience()
                )));
            }
            Heard::AllowedOnce => {
                return unless_denied(&container.rights().policy, request, ONCE);
            }
            Heard::DeniedOnce => return Err(unheard("the operator was asked, and said no".to_owned())),
            Heard::Changed => {}
        }
    }
}

/// No rule is about it, and none forbids it.
fn is_unlisted(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::HostNotAllowed | Reason::PortNotAllowed | Reason::MethodNotAllowed | Reason::PathNotAllowed
    )
}

/// By the policies, or by `place` where none of their rules is about it. What they deny stays denied.
fn unless_denied(policy: &PolicySet, request: &Request<'_>, place: &str) -> Result<Permit, Denial> {
    match decide(policy, request) {
        Err(denial) if is_unlisted(denial.reason) => Ok(Permit::unlisted(policy, request, place)),
        decided => decided,
    }
}

#[cfg(test)]
mod tests;
