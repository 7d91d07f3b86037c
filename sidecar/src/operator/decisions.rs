//! Hosts that the operator allowed or denied, kept in the state volume: they outlive a restart.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use understudy_control::{ContainerId, DecisionStatus, Effect};
use understudy_policies::{Effect as RuleEffect, HostPattern, Ports, Rule};

/// More than anybody keeps an eye on; `status` has to hold them.
const MOST: usize = 200;

/// The place of a rule that the operator decided on, before its number.
pub const DECIDED: &str = "operator decision ";

#[derive(Debug)]
pub struct Decisions {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Numbers are never used twice.
    last: u64,
    decisions: Vec<DecisionStatus>,
    /// Numbers of those for one container that hold until they are taken back by their number.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    always: BTreeSet<u64>,
}

/// Why a decision is not in force.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error("{MOST} decisions are kept already")]
    Full,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One that is to be made.
#[derive(Debug, Clone)]
pub struct Decision {
    pub effect: Effect,
    pub host: HostPattern,
    /// None: every port.
    pub port: Option<u16>,
    pub container: Option<ContainerId>,
    /// Milliseconds since the epoch.
    pub until: Option<u64>,
    /// Also when its container is gone.
    pub always: bool,
}

impl Decision {
    /// `place` is for messages.
    pub fn rule(&self, place: String) -> Rule {
        let (effect, ports) = match self.effect {
            Effect::Allow => (RuleEffect::Allow, self.port),
            Effect::Deny => (RuleEffect::Deny, self.port),
        };
        let ports = ports.map_or(Ports::Any, |port| Ports::These(vec![port]));
        Rule::new(effect, vec![self.host.clone()], ports, place)
    }
}

impl Decisions {
    /// # Errors
    /// If the file is there and cannot be read: what it held may have been a denial.
    pub fn load(path: &Path) -> Result<Self> {
        let kept = match fs::read_to_string(path) {
            Ok(text) => read(&text).with_context(|| {
                format!("{} (what the operator decided; remove it to forget all of it)", path.display())
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Ok(Self { path: path.to_owned(), kept: Mutex::new(kept) })
    }

    /// It is in the file before it is in force.
    pub fn add(&self, decision: Decision) -> Result<DecisionStatus, AddError> {
        let mut kept = self.kept();
        if kept.decisions.len() >= MOST {
            return Err(AddError::Full);
        }
        let mut next = kept.clone();
        next.last += 1;
        let status = DecisionStatus {
            number: next.last,
            effect: decision.effect,
            host: decision.host.to_string(),
            port: decision.port,
            container: decision.container,
            until: decision.until,
        };
        next.decisions.push(status.clone());
        if decision.always && status.container.is_some() {
            next.always.insert(status.number);
        }
        self.save(&next)?;
        *kept = next;
        Ok(status)
    }

    /// None if there is none of that number.
    pub fn withdraw(&self, number: u64) -> io::Result<Option<DecisionStatus>> {
        let mut kept = self.kept();
        let mut next = kept.clone();
        let Some(at) = next.decisions.iter().position(|decision| decision.number == number) else {
            return Ok(None);
        };
        let withdrawn = next.decisions.remove(at);
        next.always.remove(&number);
        self.save(&next)?;
        *kept = next;
        Ok(Some(withdrawn))
    }

    /// Numbers of those that `withdraw_gone` takes back.
    pub fn gone(&self, known: &HashSet<&ContainerId>) -> Vec<u64> {
        let kept = self.kept();
        let gone = kept.decisions.iter().filter(|decision| kept.is_gone(decision, known));
        gone.map(|decision| decision.number).collect()
    }

    /// Takes back those that were made for a container that is not `known`, for as long as it exists or for a time.
    pub fn withdraw_gone(&self, known: &HashSet<&ContainerId>) -> io::Result<Vec<DecisionStatus>> {
        let mut kept = self.kept();
        let (gone, left): (Vec<_>, Vec<_>) =
            kept.decisions.iter().cloned().partition(|decision| kept.is_gone(decision, known));
        if !gone.is_empty() {
            let next = Kept { decisions: left, ..kept.clone() };
            self.save(&next)?;
            *kept = next;
        }
        Ok(gone)
    }

    /// Forgets those whose time is over; whether there was one. `now` is in milliseconds since the epoch.
    pub fn expire(&self, now: u64) -> bool {
        let mut kept = self.kept();
        let before = kept.decisions.len();
        kept.decisions.retain(|decision| decision.until.is_none_or(|until| until > now));
        let changed = kept.decisions.len() < before;
        // Left in the file it would be forgotten again after a restart.
        if changed && let Err(error) = self.save(&kept) {
            tracing::warn!(%error, "the record of decisions");
        }
        changed
    }

    pub fn list(&self) -> Vec<DecisionStatus> {
        self.kept().decisions.clone()
    }

    /// The rules that are in force for a container.
    pub fn rules(&self, container: &ContainerId, now: u64) -> Vec<Rule> {
        let kept = self.kept();
        let meant = kept.decisions.iter().filter(|decision| {
            decision.container.as_ref().is_none_or(|id| id == container)
                && decision.until.is_none_or(|until| until > now)
        });
        meant.filter_map(rule).collect()
    }

    fn save(&self, kept: &Kept) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(kept)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn is_gone(&self, decision: &DecisionStatus, known: &HashSet<&ContainerId>) -> bool {
        decision.container.as_ref().is_some_and(|id| !known.contains(id))
            && !self.always.contains(&decision.number)
    }
}

/// Milliseconds since the epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn read(text: &str) -> Result<Kept> {
    let kept: Kept = serde_json::from_str(text)?;
    for decision in &kept.decisions {
        rule(decision)
            .with_context(|| format!("decision {}: {:?} is no host", decision.number, decision.host))?;
    }
    Ok(kept)
}

fn rule(kept: &DecisionStatus) -> Option<Rule> {
    let host = kept.host.parse().ok()?;
    let DecisionStatus { effect, port, .. } = *kept;
    let decision = Decision { effect, host, port, container: None, until: None, always: false };
    Some(decision.rule(format!("{DECIDED}{}", kept.number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: &str) -> ContainerId {
        digit.repeat(64).parse().unwrap()
    }

    fn decision(host: &str, container: Option<ContainerId>, until: Option<u64>) -> Decision {
        Decision {
            effect: Effect::Allow,
            host: host.parse().unwrap(),
            port: Some(443),
            container,
            until,
            always: false,
        }
    }

    #[test]
    fn those_of_containers_that_are_gone_make_room_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("decisions.json");
        let decisions = Decisions::load(&path).unwrap();
        decisions.add(decision("all.example", None, None)).unwrap();
        decisions.add(decision("here.example", Some(id("a")), None)).unwrap();
        decisions.add(Decision { always: true, ..decision("always.example", Some(id("b")), None) }).unwrap();
        for _ in 3..MOST {
            decisions.add(decision("gone.example", Some(id("b")), None)).unwrap();
        }
        assert!(matches!(decisions.add(decision("more.example", None, None)), Err(AddError::Full)));
        drop(decisions);
        let decisions = Decisions::load(&path).unwrap();
        let here = id("a");
        let known = HashSet::from([&here]);
        let gone = decisions.gone(&known);
        assert_eq!((gone.len(), gone[0]), (MOST - 3, 4));
        let withdrawn = decisions.withdraw_gone(&known).unwrap();
        assert_eq!(withdrawn.iter().map(|decision| decision.number).collect::<Vec<_>>(), gone);
        drop(decisions);
        let decisions = Decisions::load(&path).unwrap();
        let hosts: Vec<String> = decisions.list().into_iter().map(|decision| decision.host).collect();
        assert_eq!(hosts, ["all.example", "here.example", "always.example"]);
        assert!(decisions.withdraw_gone(&known).unwrap().is_empty());
        decisions.withdraw(3).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("always"));
        assert_eq!(decisions.add(decision("more.example", None, None)).unwrap().number, 201);
    }

    #[test]
    fn decisions_outlive_a_restart_and_are_for_whom_they_were_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("decisions.json");
        let decisions = Decisions::load(&path).unwrap();
        decisions.add(decision("a.example", None, None)).unwrap();
        decisions.add(decision("*.b.example", Some(id("b")), None)).unwrap();
        decisions.add(decision("c.example", None, Some(1000))).unwrap();
        drop(decisions);
        let decisions = Decisions::load(&path).unwrap();
        let places = |id: &ContainerId, now| -> Vec<String> {
            decisions.rules(id, now).into_iter().map(|rule| rule.place).collect()
        };
        assert_eq!(places(&id("a"), 999), ["operator decision 1", "operator decision 3"]);
        assert_eq!(places(&id("b"), 1000), ["operator decision 1", "operator decision 2"]);
        assert!(!decisions.expire(999) && decisions.expire(1000) && !decisions.expire(2000));
        assert_eq!(decisions.withdraw(2).unwrap().unwrap().host, "*.b.example");
        assert!(decisions.withdraw(2).unwrap().is_none());
        let decisions = Decisions::load(&path).unwrap();
        assert_eq!(decisions.list().len(), 1);
        assert_eq!(decisions.add(decision("d.example", None, None)).unwrap().number, 4);
    }

    #[test]
    fn one_that_cannot_be_written_is_not_in_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gone/decisions.json");
        let decisions = Decisions::load(&path).unwrap();
        assert!(decisions.add(decision("a.example", None, None)).is_err());
        assert!(decisions.rules(&id("a"), 0).is_empty());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("decisions.json");
        for text in [
            "",
            "{}",
            "{\"last\": 1, \"decisions\": [{\"number\": 1, \"effect\": \"deny\", \"host\": \"*\"}]}",
        ] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", Decisions::load(&path).unwrap_err());
            assert!(error.contains("remove it to forget all of it"), "{error}");
        }
    }
}
