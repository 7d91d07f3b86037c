//! What people are told of the containers, of their secrets and of a request.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::Relaxed;

use understudy_control::{
    AuditFile, ContainerId, ContainerStatus, Explain, Explained, LimitStatus, Lines, Refusal, SecretStatus,
    Status,
};
use understudy_policies::HostName;

use super::{Attached, Known, Registry, decisions, find, shared};
use crate::container::{Container, Counters};
use crate::credentials::Rights;
use crate::credentials::report::Holders;
use crate::decide::Denial;
use crate::explain::asked::{self, Asked};
use crate::explain::verdict;
use crate::named::Named;
use crate::operator::limited;
use crate::reason::Reason;

impl Registry {
    /// What would become of a request of this container now.
    pub fn explain(&self, wanted: &Explain) -> Result<Explained, Refusal> {
        let known = self.known();
        let (id, entry) = find(&known, &wanted.container)?;
        let rights = self.rights(entry);
        let asked = Asked::parse(&wanted.url, wanted.method.as_deref())
            .map_err(|error| Refusal::new(format!("{error:#}"), format!("write it as {}", asked::FORMS)))?;
        let admit = |host: &HostName, port| Some((self.parts.doors)(&rights.grants, host, port));
        let explained = verdict::explain(&rights.policy, rights.mode, &asked, &admit);
        let stopped = match self.not_revoked(id) {
            Err(Refusal { remedy, .. }) => {
                Some(Denial { reason: Reason::Revoked, policy: explained.policy.clone(), rule: None, remedy })
            }
            Ok(()) => entry.container().and_then(|container| limited(container)),
        };
        let explained = match stopped {
            Some(denial) => verdict::refused(explained, denial),
            None => explained,
        };
        Ok(verdict::named(explained, entry.name().unwrap_or(id.short())))
    }

    pub fn lines(&self, from: u64) -> Lines {
        (self.parts.lines)(from)
    }

    pub fn audit_file(&self) -> Result<Option<AuditFile>, Refusal> {
        let Some(path) = &self.parts.audit_file else { return Ok(None) };
        let told = fs::symlink_metadata(path).map_err(|error| {
            let reason = format!("the audit file {} is not there: {error}", path.display());
            Refusal::new(reason, "name the file that you mean: --from FILE")
        })?;
        let path = path.display().to_string();
        Ok(Some(AuditFile { path, device: told.dev(), inode: told.ino() }))
    }

    pub fn metrics(&self) -> String {
        (self.parts.metrics)(&self.status())
    }

    pub fn status(&self) -> Status {
        let known = self.known();
        let mut containers: Vec<ContainerStatus> =
            known.iter().map(|(id, entry)| self.container_status(&known, id, entry)).collect();
        let gone = self.parts.decisions.gone(&decisions::there(&known));
        drop(known);
        containers.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs(),
            containers,
            authority_ends: self.parts.authorities.current().authority().ends_at() * 1000,
            problems: (self.parts.problems)(),
            decisions: self.parts.decisions.list(),
            gone,
            questions: self.parts.questions.list(),
        }
    }

    pub fn secrets(&self) -> Vec<SecretStatus> {
        let mut holders = Holders::new();
        for (id, entry) in self.known().iter() {
            let Known::Attached(Attached { container, asked, .. }) = entry else { continue };
            let rights = container.rights();
            for name in asked.granted.names() {
                let lost = match self.parts.revocations.contains(id) || container.is_revoked() {
                    true => " (revoked)",
                    false if !rights.grants.contains(&name) => " (no longer granted)",
                    false => "",
                };
                holders
                    .entry(name)
                    .or_default()
                    .push(format!("{}{lost}", entry.name().unwrap_or(id.short())));
            }
        }
        holders.values_mut().for_each(|labels| labels.sort());
        (self.parts.secrets)(&holders)
    }

    fn container_status(
        &self,
        known: &HashMap<ContainerId, Known>,
        id: &ContainerId,
        entry: &Known,
    ) -> ContainerStatus {
        let rights = self.rights(entry);
        let (harness, notes) = match entry {
            Known::Prepared { terms, .. } => (&terms.harness, &terms.notes),
            Known::Attached(Attached { container: c, .. }) => (&c.harness, &c.notes),
        };
        let count = |counter: fn(&Counters) -> &std::sync::atomic::AtomicU64| {
            let counted = entry.container().filter(|c| shared::is_told_for_all(known, id, c));
            counted.map_or(0, |c| counter(&c.counters).load(Relaxed))
        };
        let state = match entry {
            _ if self.parts.revocations.contains(id) => "revoked",
            Known::Prepared { .. } => "prepared",
            Known::Attached(attached) if attached.container.is_revoked() => "revoked",
            Known::Attached(_) => "attached",
        };
        ContainerStatus {
            id: id.clone(),
            name: entry.name().map(str::to_owned),
            harness: harness.clone(),
            policy: rights.policy.label().to_owned(),
            mode: rights.mode.to_string(),
            state: state.to_owned(),
            secrets: rights.grants.names(),
            open_connections: count(|c| &c.open_connections),
            allowed: count(|c| &c.allowed),
            denied: count(|c| &c.denied),
            terminated: count(|c| &c.terminated),
            limits: entry.container().map_or_else(Vec::new, |container| limits(container, &rights)),
            notes: nothing_allowed(&rights)
                .into_iter()
                .chain(notes.iter().cloned())
                .chain(self.named(shared::identity(id, entry), &rights))
                .collect(),
        }
    }
}

impl Registry {
    fn named(&self, id: &ContainerId, rights: &Rights) -> Vec<String> {
        let named = self.parts.named.of(id);
        let told = named.iter().filter(|named| named.rule(&rights.named_by, &rights.grants).is_some());
        told.map(|Named { host, by, .. }| {
            format!("{} named {host}, which `harness-only` allows", by.endpoint)
        })
        .collect()
    }
}

fn limits(container: &Container, rights: &Rights) -> Vec<LimitStatus> {
    let used = container.meter.used(rights.policy.limits());
    used.into_iter().map(|(name, used, most)| LimitStatus { name: name.to_owned(), used, most }).collect()
}

fn nothing_allowed(rights: &Rights) -> Option<String> {
    let (policy, error) = rights.policy.failure()?;
    Some(format!("it may do nothing now, by policy `{policy}`: {error}"))
}
