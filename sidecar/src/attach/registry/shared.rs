//! Containers that share a network namespace (a pod): whoever connects from it cannot be told from the others, so they are
//! one, with the rights of the first of them, and only those that are given the same may be with it.

use std::collections::HashMap;
use std::sync::Arc;

use understudy_control::{ContainerId, ManagedFile, Prepare, Refusal};

use super::{Attached, Known, Registry};
use crate::container::Container;
use crate::credentials::{Asked, Rights};
use crate::tls::Leaves;

const REMEDY: &str =
    "give all containers of the pod the same understudy.* annotations, or start this one outside of it";

/// What the operator's decisions, an armed login and the audit trail know the container by.
pub(super) fn identity<'k>(id: &'k ContainerId, entry: &'k Known) -> &'k ContainerId {
    entry.container().map_or(id, |container| &container.id)
}

/// One of those that are that container.
pub(super) fn attached_as<'k>(
    known: &'k HashMap<ContainerId, Known>,
    identity: &ContainerId,
) -> Option<&'k Attached> {
    known.values().find_map(|entry| match entry {
        Known::Attached(attached) if attached.container.id == *identity => Some(attached),
        _ => None,
    })
}

/// All that are that container.
pub(super) fn members(known: &HashMap<ContainerId, Known>, identity: &ContainerId) -> Vec<ContainerId> {
    let is_one = |entry: &Known| entry.container().is_some_and(|container| container.id == *identity);
    known.iter().filter(|(_, entry)| is_one(entry)).map(|(id, _)| id.clone()).collect()
}

/// The container of that name is about to be another one, in another network: those that were one with it have ended their
/// part in it.
pub(super) fn end(known: &mut HashMap<ContainerId, Known>, identity: &ContainerId) {
    known.retain(|_, entry| match entry.container() {
        Some(container) if container.id == *identity => {
            container.revoke();
            false
        }
        _ => true,
    });
}

/// Each once.
pub(super) fn containers(known: &HashMap<ContainerId, Known>) -> Vec<Arc<Container>> {
    let mut all: Vec<Arc<Container>> = known.values().filter_map(Known::container).cloned().collect();
    all.sort_unstable_by_key(Arc::as_ptr);
    all.dedup_by_key(|container| Arc::as_ptr(container));
    all
}

/// The one of them that is shown with what they did together.
pub(super) fn is_told_for_all(
    known: &HashMap<ContainerId, Known>,
    id: &ContainerId,
    all: &Container,
) -> bool {
    let others = known.iter().filter(|(_, entry)| entry.container().is_some_and(|other| other.id == all.id));
    match known.get(&all.id).and_then(Known::container) {
        Some(first) if first.id == all.id => *id == all.id,
        _ => others.map(|(id, _)| id).min() == Some(id),
    }
}

/// Why a container that asks so cannot be one with a container that was given what `first` says.
fn differs(first: &Asked, other: &Asked) -> Option<Refusal> {
    let (a, b) = (&first.prepare, &other.prepare);
    let different = a.annotations.keys().chain(b.annotations.keys());
    let different = different.filter(|key| a.annotations.get(*key) != b.annotations.get(*key)).min();
    let whose = a.name.as_deref().unwrap_or(a.id.short());
    let reason = if let Some(key) = different {
        format!("annotation {key} is not what it is at {whose}, with which this container shares its network")
    } else if first.granted != other.granted {
        let names = |asked: &Asked| match asked.granted.names().as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        format!(
            "this container is granted other secrets ({}) than {whose} ({}), with which it shares its network",
            names(other),
            names(first)
        )
    } else if !a.managed.iter().map(written).eq(b.managed.iter().map(written)) {
        let reason = format!(
            "the machine's rules were changed since {whose} started, with which it shares its network"
        );
        return Some(Refusal::new(reason, "restart all containers of the pod"));
    } else {
        return None;
    };
    Some(Refusal::new(reason, REMEDY))
}

/// What a rule of the machine asks of one image it need not ask of another's; it keeps from starting, and gives nothing.
fn written(file: &ManagedFile) -> (&str, &str) {
    (&file.path, &file.text)
}

impl Registry {
    /// Whether one that asked so may be with `with`; a note for it, and what it is to trust.
    pub(super) fn may_join(
        &self,
        asked: &Asked,
        with: &ContainerId,
    ) -> Result<(String, Arc<Leaves>), Refusal> {
        let known = self.known();
        let first = self.joined(&known, with)?;
        let asked = Asked { own: first.asked.own.clone(), ..asked.clone() };
        if let Some(refusal) = self.differs(&first.asked, &asked) {
            return Err(refusal);
        }
        let whose = first.container.label();
        let note = format!(
            "it shares its network with {whose}: what either may do, both may, and the audit trail names {whose}"
        );
        Ok((note, self.trusted_with(first)))
    }

    /// Whoever connects cannot be told from the first, and is answered alike.
    fn trusted_with(&self, first: &Attached) -> Arc<Leaves> {
        first.container.leaves().cloned().unwrap_or_else(|| self.parts.authorities.current())
    }

    /// A prepared container is one with `with`, whose sockets are its own.
    pub fn join(&self, id: &ContainerId, with: &ContainerId) -> Result<(), Refusal> {
        let mut known = self.known();
        self.not_revoked(id)?;
        let first = self.joined(&known, with)?;
        let (container, asked) = (Arc::clone(&first.container), first.asked.clone());
        let (name, mut terms, _) = Self::take_prepared(&mut known, id)?;
        // What either may do, both may.
        terms.asked.own.extend(asked.own.iter().cloned());
        // Known by now: it is refused where it was prepared as the first, too.
        if let Some(refusal) = self.differs(&asked, &terms.asked) {
            return Err(refusal);
        }
        if !terms.asked.own.is_empty()
            && let Err(error) = self.parts.own_logins.add(id, &terms.asked.own)
        {
            tracing::warn!(container = %id.short(), "a login made inside is this run's alone: it cannot be recorded: {error}");
        }
        let attached = Attached { container, asked, own: Some(Box::new(terms.asked)), name };
        let container = Arc::clone(&attached.container);
        known.insert(id.clone(), Known::Attached(attached));
        // A reload since `Prepare` is never missed.
        let all: Vec<&Attached> = known
            .values()
            .filter_map(|entry| match entry {
                Known::Attached(attached) if Arc::ptr_eq(&attached.container, &container) => Some(attached),
                _ => None,
            })
            .collect();
        if let Some(rights) = self.rights_of_all(&all) {
            container.set_rights(rights);
        }
        Ok(())
    }

    /// The same for a container that runs already. It is in that network whatever is said here, so all of it is cut where it
    /// may not be.
    pub fn rejoin(&self, prepare: Prepare) -> Result<(), Refusal> {
        let Some(with) = prepare.joins.clone() else {
            return Err(Refusal::new("no container is named that it joins", "update understudy-hook"));
        };
        let id = prepare.id.clone();
        let trusts_the_same = |trusted: &Arc<Leaves>| {
            let known = self.known();
            let first = self.joined(&known, &with)?;
            match Arc::ptr_eq(trusted, &self.trusted_with(first)) {
                true => Ok(()),
                false => Err(Refusal::new(
                    "it trusts another authority than the container with which it shares its network",
                    "start all of them again",
                )),
            }
        };
        self.trusted_by(&prepare)
            .and_then(|trusted| trusts_the_same(&trusted))
            .and_then(|()| self.prepare(prepare))
            .and_then(|_| self.join(&id, &with))
            .inspect_err(|_| {
                if let Some(first) = self.known().get(&with).and_then(Known::container) {
                    first.revoke();
                }
            })
    }

    /// The same with what comes of it, which an image may have a say in.
    fn differs(&self, first: &Asked, other: &Asked) -> Option<Refusal> {
        differs(first, other).or_else(|| {
            if other.own.is_empty() {
                return None;
            }
            let [a, b] = [first, other].map(|asked| (self.parts.decide_rights)(asked).grants);
            let reason = "this container may not have the login that was made in the one with which it shares its network";
            (a != b).then(|| Refusal::new(reason, "name its image or harness in `grant-to` of that secret, or start it outside of the pod"))
        })
    }

    fn joined<'k>(
        &self,
        known: &'k HashMap<ContainerId, Known>,
        with: &ContainerId,
    ) -> Result<&'k Attached, Refusal> {
        let Some(Known::Attached(first)) = known.get(with) else {
            return Err(Refusal::new(
                format!("container {}, whose network it joins, is not known", with.short()),
                "start that one again first (of a pod: podman pod restart)",
            ));
        };
        self.not_revoked(with)?;
        Ok(first)
    }

    /// Of a container, and of those that are one with it: nothing if one of them was to have less now.
    pub(super) fn rights_of_all(&self, all: &[&Attached]) -> Option<Rights> {
        let asked = &all.first()?.asked;
        let rights = (self.parts.decide_rights)(asked);
        let same = |own: &Asked| (self.parts.decide_rights)(own).grants == rights.grants;
        if all.iter().filter_map(|attached| attached.own.as_deref()).all(same) {
            return Some(rights);
        }
        let why =
            "the containers that share this network are no longer granted the same secrets; restart them";
        Some(Rights::none(asked, why.to_owned()))
    }
}
