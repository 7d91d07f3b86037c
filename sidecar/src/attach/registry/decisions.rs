//! What the operator decides about a host.

use std::collections::{HashMap, HashSet};

use understudy_control::{ContainerId, Decide, DecisionStatus, Effect, Lasting, Refusal};
use understudy_policies::Rule;
use understudy_policies::annotation::host_and_port;

use super::{Known, Registry, find, shared};
use crate::operator::decisions::{self, AddError, Decision};
use crate::operator::questions::Heard;

/// What became of what the operator said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    Kept(DecisionStatus),
    /// It was for once, and for so many questions; never 0.
    Answered(u64),
}

impl Registry {
    /// What the operator says about a host, in force when this returns.
    pub fn decide(&self, wanted: &Decide) -> Result<Decided, Refusal> {
        let (host, port) = host_and_port(&wanted.host).map_err(|problem| {
            Refusal::new(
                format!("{:?}: {problem}", wanted.host),
                "write a host, as `api.example.com` or `api.example.com:8443`",
            )
        })?;
        let (container, others, managed) = match &wanted.container {
            Some(wanted) => {
                let known = self.known();
                let (id, entry) = find(&known, wanted)?;
                let identity = shared::identity(id, entry).clone();
                let others = known.iter().filter(|(id, entry)| shared::identity(id, entry) == &identity);
                let others: Vec<_> = others.map(|(id, _)| id.clone()).filter(|id| *id != identity).collect();
                (Some(identity), others, entry.asked().prepare.managed.clone())
            }
            None => (None, Vec::new(), Vec::new()),
        };
        let port = port.or((wanted.effect == Effect::Allow).then_some(443));
        let always = wanted.lasting == Lasting::Always;
        let mut decision = Decision { effect: wanted.effect, host, port, container, until: None, always };
        let rule = decision.rule("operator".to_owned());
        (self.parts.may_decide)(&rule, &managed)?;
        match wanted.lasting {
            Lasting::Once => return self.answer_once(&decision, &rule).map(Decided::Answered),
            Lasting::Container if decision.container.is_none() => {
                return Err(Refusal::new(
                    "no container is named",
                    "add --container NAME, --for TIME or --always",
                ));
            }
            Lasting::Seconds(seconds) => {
                decision.until = Some(decisions::now().saturating_add(seconds.saturating_mul(1000)));
            }
            Lasting::Container | Lasting::Always => {}
        }
        // Of those that are one, any can be the first for the next sidecar; a denial must not be lost then.
        for other in others.into_iter().filter(|_| decision.effect == Effect::Deny) {
            let same = Decision { container: Some(other), ..decision.clone() };
            self.parts.decisions.add(same).map_err(not_added)?;
        }
        let status = self.parts.decisions.add(decision).map_err(not_added)?;
        self.reconsider();
        self.noted()?;
        Ok(Decided::Kept(status))
    }

    /// Of the container that is named, or of all whose own managed rules let it be.
    fn answer_once(&self, decision: &Decision, rule: &Rule) -> Result<u64, Refusal> {
        let answer = match decision.effect {
            Effect::Allow => Heard::AllowedOnce,
            Effect::Deny => Heard::DeniedOnce,
        };
        let Decision { host, port, container, .. } = decision;
        let mut beyond = self.beyond(rule);
        if let Some(container) = container {
            beyond.retain(|id, _| id == container);
        }
        let asks = |id: &ContainerId| {
            container.as_ref().is_none_or(|container| container == id) && !beyond.contains_key(id)
        };
        let answered = self.parts.questions.answer(host, *port, asks, answer);
        let waits =
            |id: &ContainerId| self.parts.questions.list().iter().any(|open| open.container_id == *id);
        match answered {
            0 => Err(beyond.into_iter().find(|(id, _)| waits(id)).map_or_else(
                || {
                    Refusal::new(
                        format!("no request waits for an answer about {host}"),
                        "see what waits with: understudy status",
                    )
                },
                |(_, refusal)| refusal,
            )),
            questions => Ok(questions as u64),
        }
    }

    /// Containers for which their own managed rules forbid it, and how.
    fn beyond(&self, rule: &Rule) -> HashMap<ContainerId, Refusal> {
        let known = self.known();
        let refused = known.iter().filter_map(|(id, entry)| {
            let refusal = (self.parts.may_decide)(rule, &entry.asked().prepare.managed).err()?;
            Some((shared::identity(id, entry).clone(), refusal))
        });
        refused.collect()
    }

    pub fn withdraw(&self, number: u64) -> Result<DecisionStatus, Refusal> {
        let withdrawn = self.parts.decisions.withdraw(number).map_err(unrecorded)?;
        let withdrawn = withdrawn.ok_or_else(|| {
            Refusal::new(format!("there is no decision {number}"), "list them with: understudy status")
        })?;
        self.reconsider();
        self.noted()?;
        Ok(withdrawn)
    }

    /// A state volume that is put back from a backup is then known to lack it.
    pub(super) fn noted(&self) -> Result<(), Refusal> {
        self.parts.history.changed().map_err(|error| {
            Refusal::new(
                format!("it is in force, but that something was decided could not be recorded: {error}"),
                "make the state volume and the control directory writable, then do it again",
            )
        })
    }

    /// Takes back what was decided for containers that are not known now, but not what is for every container or for always.
    pub fn withdraw_gone(&self) -> Result<Vec<DecisionStatus>, Refusal> {
        // Held until they are taken back: none of them may start meanwhile. Nobody who is known loses one.
        let known = self.known();
        let gone = self.parts.decisions.withdraw_gone(&there(&known)).map_err(unrecorded)?;
        if !gone.is_empty() {
            self.noted()?;
        }
        Ok(gone)
    }
}

/// All that a decision can be made for: one that was made for several containers of a pod stays until the last has ended.
pub(super) fn there(known: &HashMap<ContainerId, Known>) -> HashSet<&ContainerId> {
    known.iter().flat_map(|(id, entry)| [id, shared::identity(id, entry)]).collect()
}

fn not_added(error: AddError) -> Refusal {
    match error {
        AddError::Full => Refusal::new(
            format!("the decision was not made: {error}"),
            "take back those of containers that are gone with: understudy withdraw --gone, or one of `understudy status` \
             by its number",
        ),
        AddError::Io(error) => unrecorded(error),
    }
}

fn unrecorded(error: std::io::Error) -> Refusal {
    Refusal::new(
        format!("the decision could not be recorded, so nothing was changed: {error}"),
        "make the state volume writable, then try again",
    )
}
