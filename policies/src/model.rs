//! What a policy is: rules with the place they were written at, or the reason why there are none.

use crate::lint::{self, Placed, Vain};
use crate::{Conditions, DocumentError, HostName, HostPattern, Limits, Terms, parse};

/// A named list of rules. One that could not be loaded exists too: it denies everything of a set that it is in,
/// since a rule that nobody could read may have been a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    name: String,
    rules: Result<Vec<Rule>, String>,
    extends: Vec<Extends>,
    /// Those whose rules were put in.
    inherits: Vec<String>,
    warnings: Vec<String>,
    limits: Limits,
}

/// Another policy whose rules are meant, too; [`crate::Policies`] puts them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extends {
    pub policy: String,
    /// What `github-pr` may be pushed to.
    pub repos: Vec<String>,
    /// `web.toml:1:12`.
    pub place: String,
}

/// What a policy has of those that it extends.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) rules: Vec<Rule>,
    pub(crate) limits: Limits,
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub effect: Effect,
    /// Never empty.
    pub hosts: Vec<HostPattern>,
    pub ports: Ports,
    pub conditions: Conditions,
    /// Whether TLS to its hosts is passed through without being decrypted. Only of an allowance without conditions.
    pub splice: bool,
    /// TLS to its hosts is decrypted, whatever other rules pass through.
    pub inspect: bool,
    /// It is about bytes that are neither TLS nor HTTP, and about nothing else.
    pub tcp: bool,
    /// It is about sessions of PostgreSQL with these databases (with every one if it is empty), and about nothing else.
    pub postgres: Option<Vec<String>>,
    pub terms: Terms,
    /// Shown in refusals.
    pub note: Option<String>,
    /// `web.toml:12`, or what else made it.
    pub place: String,
    /// Of that line, in characters from 1.
    pub column: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// A denial says this by naming no port, and `open = true`.
    Any,
    /// Never empty.
    These(Vec<u16>),
}

impl Policy {
    pub fn new(name: impl Into<String>, rules: Vec<Rule>) -> Self {
        let (extends, inherits, warnings) = Default::default();
        Self { name: name.into(), rules: Ok(rules), extends, inherits, warnings, limits: Limits::default() }
    }

    /// From the text of `file`, which is only for messages and for the places of rules. An empty text allows nothing.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, DocumentError> {
        let parse::Parsed { rules, extends, warnings, limits } = parse::file(file, text)?;
        Ok(Self { name: name.to_owned(), rules: Ok(rules), extends, inherits: Vec::new(), warnings, limits })
    }

    /// One that could not be loaded; `error` says why, in one line.
    pub fn failed(name: impl Into<String>, error: impl Into<String>) -> Self {
        let (extends, inherits, warnings) = Default::default();
        let rules = Err(error.into());
        Self { name: name.into(), rules, extends, inherits, warnings, limits: Limits::default() }
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

    /// Policies that it extends, and whose rules are not in it yet: until then it allows nothing.
    pub fn extends(&self) -> &[Extends] {
        &self.extends
    }

    /// What a container with it may do in all.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The same with what its author probably did not mean as its warnings, looked for in its first rules: a container waits.
    pub(crate) fn looked_at(mut self) -> Self {
        const LOOKED_AT: usize = 200;
        let rules = self.rules();
        self.warnings = lint::lint(rules.get(..LOOKED_AT).unwrap_or(rules));
        self
    }

    /// The names of those whose rules it has besides its own, however many steps away.
    pub fn inherits(&self) -> &[String] {
        &self.inherits
    }

    /// The same policy with the rules of those that it extends after its own, and within their limits.
    #[must_use]
    pub(crate) fn extended(mut self, Inherited { rules: others, limits, names }: Inherited) -> Self {
        self.limits = self.limits.and(limits);
        self.inherits = names;
        if let Ok(rules) = &mut self.rules {
            rules.extend(others);
            let placed: Vec<Placed<'_>> =
                rules.iter().enumerate().map(|(at, rule)| ((0, at), rule)).collect();
            // Each file's own warnings tell of what is in one.
            let file = |rule: &Rule| rule.place.rsplit_once(':').map(|(file, _)| file.to_owned());
            let is_told = |vain: &Vain<'_>| vain.by.iter().all(|(_, by)| file(by) == file(vain.allow.1));
            self.warnings.extend(lint::across(&placed, lint::MOST, is_told));
        }
        self.extends.clear();
        self
    }

    /// `FILE:LINE:COLUMN: …`, one line each: what its author probably did not mean.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether it allows every host.
    pub fn is_open(&self) -> bool {
        let open =
            |rule: &Rule| rule.effect == Effect::Allow && rule.hosts.contains(&HostPattern::Everything);
        self.rules().iter().any(open)
    }
}

impl Rule {
    /// For every request.
    pub fn new(effect: Effect, hosts: Vec<HostPattern>, ports: Ports, place: impl Into<String>) -> Self {
        let conditions = Conditions::default();
        let terms = Terms::default();
        let place = place.into();
        let (splice, inspect, tcp, postgres, note, column) = Default::default();
        Self { effect, hosts, ports, conditions, splice, inspect, tcp, postgres, terms, note, place, column }
    }

    /// Whether it is about requests.
    pub(crate) fn is_for_requests(&self) -> bool {
        !self.tcp && self.postgres.is_none()
    }

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
