//! Containers that share something of the host which one of them may write to: by a socket in it they can hand each other
//! open connections, and so what either may do, both may. Where it is mounted read-only a socket in it still answers.

use std::collections::{BTreeSet, HashMap};

use understudy_control::annotation::{
    ALLOW, HARNESS, INBOUND, MODE, NETWORK, POLICY, PRIVACY, PUBLISH, WORKSPACE,
};
use understudy_control::{ContainerId, HostMount, MOST_MOUNTS, Refusal};

use super::{Known, PREPARED_FOR, Registry, shared};
use crate::ceiling::{DEFAULTS, items};
use crate::credentials::{Asked, Terms};

/// What a container may do follows from these and from what it is granted.
const SAME: [&str; 7] = [HARNESS, POLICY, ALLOW, MODE, NETWORK, PRIVACY, WORKSPACE];
/// Ports differ wherever there are two.
const BOTH_OR_NONE: [&str; 2] = [INBOUND, PUBLISH];

/// Containers that a note names.
const NAMED: usize = 5;

const INSTEAD: &str = "stop that one, mount another directory, or give both the same grants";

impl Registry {
    /// Notes with whom that is given something else it shares a mount.
    ///
    /// # Errors
    /// If a ceiling forbids that, unless it runs already.
    pub(super) fn note_shared_mounts(
        &self,
        known: &HashMap<ContainerId, Known>,
        terms: &mut Terms,
    ) -> Result<(), Refusal> {
        let asked = &terms.asked;
        let mounts = asked.prepare.mounts.as_deref();
        if mounts.is_some_and(|mounts| mounts.len() > MOST_MOUNTS) {
            return Err(Refusal::new(
                format!("it has more than {MOST_MOUNTS} mounts of the host"),
                "mount one directory that holds them, or fewer of them",
            ));
        }
        let forbidden = terms.same_grants.as_ref().filter(|_| asked.prepare.origin.is_none());
        let joins = asked.prepare.joins.as_ref();
        let joined = joins.and_then(|with| known.get(with).map(|entry| shared::identity(with, entry)));
        let mut notes = Vec::new();
        for (id, entry) in known {
            if *id == asked.prepare.id || joined == Some(shared::identity(id, entry)) || is_over(entry) {
                continue;
            }
            let other = match entry {
                Known::Attached(attached) => attached.own.as_deref().unwrap_or(&attached.asked),
                Known::Prepared { terms, .. } => &terms.asked,
            };
            let Some(how) = self.difference(asked, id, entry, other) else { continue };
            let whose = entry.name().unwrap_or(id.short());
            match (mounts, other.prepare.mounts.as_deref(), forbidden) {
                (Some(own), Some(others), _) => {
                    let Some(mount) = shared_one(own, others) else { continue };
                    let told = format!("it shares {} with {whose}, which {how}", mount.name);
                    if let Some(rule) = forbidden {
                        return Err(rule.refusal(&told, INSTEAD));
                    }
                    notes.push(told);
                }
                // Who mounts nothing shares nothing.
                (Some([]), _, _) | (_, Some([]), _) => {}
                (_, _, Some(rule)) => {
                    let unknown =
                        format!("what it shares with {whose}, which {how}, is not known to an older hook");
                    return Err(rule.refusal(&unknown, "update understudy-hook, and start both again"));
                }
                _ => {}
            }
        }
        notes.sort_unstable();
        let more = notes.len().saturating_sub(NAMED);
        notes.truncate(NAMED);
        terms.notes.extend(notes.into_iter().map(|told| format!("{told}: what either may do, both may")));
        if more > 0 {
            terms.notes.push(format!("it shares mounts with {more} more that are given something else"));
        }
        Ok(())
    }

    /// What `other` is or has that `asked` is not or has not.
    fn difference(&self, asked: &Asked, id: &ContainerId, entry: &Known, other: &Asked) -> Option<String> {
        if self.parts.revocations.contains(id)
            || entry.container().is_some_and(|container| container.is_revoked())
        {
            return Some("was revoked".to_owned());
        }
        let granted = |asked: &Asked| {
            let own = asked.own.iter().map(|own| format!("login {}", own.name));
            let all: BTreeSet<String> = asked.granted.names().into_iter().chain(own).collect();
            all
        };
        let (own, others) = (granted(asked), granted(other));
        if own != others {
            let list = |names: BTreeSet<String>| match names.is_empty() {
                true => "none".to_owned(),
                false => names.into_iter().collect::<Vec<_>>().join(", "),
            };
            return Some(format!("is granted other secrets ({}; it: {})", list(others), list(own)));
        }
        let said = |asked: &Asked, key: &str| -> BTreeSet<String> {
            let absent = DEFAULTS.iter().find(|(of, _)| *of == key).map(|(_, value)| *value);
            let value = asked.prepare.annotations.get(key).map(String::as_str).or(absent);
            value.into_iter().flat_map(|value| items(key, value)).map(str::to_owned).collect()
        };
        let has = |asked: &Asked, key: &str| asked.prepare.annotations.contains_key(key);
        let same = SAME.iter().find(|key| said(asked, key) != said(other, key));
        let key = same.or_else(|| BOTH_OR_NONE.iter().find(|key| has(asked, key) != has(other, key)))?;
        Some(format!("has another {key}"))
    }
}

/// One that was never attached does not run.
fn is_over(entry: &Known) -> bool {
    matches!(entry, Known::Prepared { since, .. } if since.elapsed() >= PREPARED_FOR)
}

fn shared_one<'m>(own: &'m [HostMount], others: &[HostMount]) -> Option<&'m HostMount> {
    own.iter()
        .find(|mount| others.iter().any(|other| (mount.writable || other.writable) && mount.overlaps(other)))
}
