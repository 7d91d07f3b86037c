//! Hosts that a provider names in an answer, and that a container may reach from then on, as its harness's descriptor says: at one
//! endpoint, in one field, within a suffix. In memory alone: after a restart of the sidecar the program has to ask once more.

mod answer;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use understudy_control::ContainerId;
use understudy_harnesses::NamedHost;
use understudy_policies::{Effect, HostName, HostPattern, Ports, Rule};

use crate::credentials::Grants;

pub(crate) use answer::Naming;
pub use answer::{NotNamed, host};

/// Of one container. What is there stays: an answer cannot push out what another one named.
const MOST: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub host: HostName,
    /// Where, and by which answer.
    pub by: Arc<NamedHost>,
    /// The secrets that it was asked for with: it is good for as long as all of them are granted.
    pub secrets: Vec<String>,
}

/// What to do when a container may reach another host.
pub type Changed = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub struct NamedHosts {
    kept: Mutex<HashMap<ContainerId, Vec<Named>>>,
    changed: OnceLock<Changed>,
}

impl NamedHosts {
    /// Once; by whoever decides what containers may do.
    pub fn on_change(&self, changed: Changed) {
        drop(self.changed.set(changed));
    }

    /// In force when this returns.
    ///
    /// # Errors
    /// If there are too many already.
    pub fn add(&self, container: &ContainerId, named: Named) -> Result<(), NotNamed> {
        {
            let mut kept = self.kept();
            let hosts = kept.entry(container.clone()).or_default();
            if hosts.contains(&named) {
                return Ok(());
            }
            if hosts.len() >= MOST {
                return Err(NotNamed::TooMany);
            }
            hosts.push(named);
        }
        if let Some(changed) = self.changed.get() {
            changed();
        }
        Ok(())
    }

    pub fn of(&self, container: &ContainerId) -> Vec<Named> {
        self.kept().get(container).cloned().unwrap_or_default()
    }

    pub fn forget(&self, container: &ContainerId) {
        self.kept().remove(container);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<ContainerId, Vec<Named>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Named {
    /// None if its descriptor does not say so any more, or a secret is lost.
    pub fn rule(&self, declared: &[Arc<NamedHost>], grants: &Grants) -> Option<Rule> {
        let still = declared.contains(&self.by) && self.secrets.iter().all(|name| grants.contains(name));
        let place = format!("{} {}", self.by.endpoint, self.by.field);
        let host = vec![HostPattern::Exact(self.host.clone())];
        still.then(|| Rule::new(Effect::Allow, host, Ports::These(vec![self.by.endpoint.port]), place))
    }
}

impl fmt::Debug for NamedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamedHosts(..)")
    }
}

#[cfg(test)]
mod tests;
