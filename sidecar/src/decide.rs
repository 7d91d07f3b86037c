//! From a policy and a target to a permit, or to the reason why not. Pure.

use understudy_policies::{HostName, PolicySet};

use crate::reason::Reason;

/// That policy allows this host and port. Nothing else can make one, and nothing can be dialled without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    host: HostName,
    port: u16,
    policy: String,
    rule: String,
}

/// Why not, with what a person needs in order to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub reason: Reason,
    /// Names of the policies that were asked, such as `harness-only+web`.
    pub policy: String,
    /// The rule that denied, as `web.toml:12`, if it was one.
    pub rule: Option<String>,
    /// What the operator would run or write in order to allow it.
    pub remedy: String,
}

impl Permit {
    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Where the rule that allowed it stands, as `web.toml:3` or `annotation understudy.allow`.
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

pub fn decide(policy: &PolicySet, host: &HostName, port: u16) -> Result<Permit, Denial> {
    if policy.allows(host, port) {
        let (policy, rule) = (policy.label().to_owned(), "stub:1".to_owned());
        return Ok(Permit { host: host.clone(), port, policy, rule });
    }
    Err(Denial {
        reason: Reason::HostNotAllowed,
        policy: policy.label().to_owned(),
        rule: None,
        remedy: format!("--annotation understudy.allow={host}:{port}"),
    })
}
