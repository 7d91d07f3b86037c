//! What a policy is: rules with the place they were written at, or the reason why there are none.

use crate::{DocumentError, HostName, HostPattern, parse};

/// A named list of rules. One that could not be loaded exists too: it denies everything of a set that it is in,
/// since a rule that nobody could read may have been a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    name: String,
    rules: Result<Vec<Rule>, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub effect: Effect,
    /// Never empty.
    pub hosts: Vec<HostPattern>,
    pub ports: Ports,
    /// Shown in refusals.
    pub note: Option<String>,
    /// `web.toml:12`, or what else made it.
    pub place: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// Only a denial says this, by naming no port.
    Any,
    /// Never empty.
    These(Vec<u16>),
}

impl Policy {
    pub fn new(name: impl Into<String>, rules: Vec<Rule>) -> Self {
        Self { name: name.into(), rules: Ok(rules) }
    }

    /// From the text of `file`, which is only for messages and for the places of rules. An empty text allows nothing.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, DocumentError> {
        Ok(Self::new(name, parse::rules(file, text)?))
    }

    /// One that could not be loaded; `error` says why, in one line.
    pub fn failed(name: impl Into<String>, error: impl Into<String>) -> Self {
        Self { name: name.into(), rules: Err(error.into()) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// In the order of the file; none if it failed.
    pub fn rules(&self) -> &[Rule] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// Why it could not be loaded.
    pub fn error(&self) -> Option<&str> {
        self.rules.as_ref().err().map(String::as_str)
    }
}

impl Rule {
    pub fn is_about(&self, host: &HostName) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }
}

impl Ports {
    pub fn contain(&self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::These(ports) => ports.contains(&port),
        }
    }
}
