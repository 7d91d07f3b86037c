//! Policies as JSON.

use serde::Serialize;
use understudy_policies::{DocumentError, Effect, Limits, Policies, Policy, Ports, Rule, builtin};

/// A rule. All that it says is in `rule`; the other keys are what programs ask for most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownRule {
    /// As `allow *.example.com, port 8443, GET, paths /x/**`.
    pub(super) rule: String,
    /// `allow` or `deny`.
    effect: &'static str,
    hosts: Vec<String>,
    /// None: every port.
    ports: Option<Vec<u16>>,
    /// As `web.toml:12`.
    place: String,
    note: Option<String>,
}

/// A line of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) built_in: bool,
    /// It allows every public host.
    pub(super) open: bool,
    /// None of the one that is another for each harness, and of one that cannot be used.
    pub(super) rules: Option<usize>,
    /// Why it cannot be used.
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ShownPolicy {
    name: String,
    built_in: bool,
    open: bool,
    error: Option<String>,
    pub(super) warnings: Vec<String>,
    max_requests: Option<u64>,
    max_bytes: Option<u64>,
    /// Seconds.
    max_runtime: Option<u64>,
    /// With those of the policies that it extends.
    rules: Vec<ShownRule>,
    /// The file, as it is.
    pub(super) text: String,
}

/// What one policy has and the other has not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Difference {
    pub(super) same: bool,
    /// What the two say of a container in all, where that is not the same.
    limits: Vec<Changed>,
    pub(super) only_before: Vec<ShownRule>,
    pub(super) only_after: Vec<ShownRule>,
}

/// A key at the top of a file; null: none, which limits nothing.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Changed {
    key: &'static str,
    before: Option<u64>,
    after: Option<u64>,
}

/// A policy that is proposed: by `policy from` and by `learn`.
#[derive(Debug, Serialize)]
pub struct Proposed {
    /// TOML, with its comments.
    pub policy: String,
    rules: Vec<ShownRule>,
    /// What could not be taken into it.
    problems: Vec<String>,
}

impl ShownRule {
    pub(super) fn new(rule: &Rule) -> Self {
        Self {
            rule: rule.to_string(),
            effect: match rule.effect {
                Effect::Allow => "allow",
                Effect::Deny => "deny",
            },
            hosts: rule.hosts.iter().map(ToString::to_string).collect(),
            ports: match &rule.ports {
                Ports::Any => None,
                Ports::These(ports) => Some(ports.clone()),
            },
            place: rule.place.clone(),
            note: rule.note.clone(),
        }
    }
}

impl Listed {
    /// `harness-only` first, then by name.
    pub(super) fn all(policies: &Policies) -> Vec<Self> {
        let harness_only = Self {
            name: builtin::HARNESS_ONLY.to_owned(),
            built_in: true,
            open: false,
            rules: None,
            error: None,
        };
        let others = policies.names().filter_map(|name| policies.policy(name)).map(|policy| Self {
            name: policy.name().to_owned(),
            built_in: builtin::is_reserved(policy.name()),
            open: policy.is_open(),
            rules: policy.error().is_none().then(|| policy.rules().len()),
            error: policy.error().map(str::to_owned),
        });
        std::iter::once(harness_only).chain(others).collect()
    }
}

impl ShownPolicy {
    pub(super) fn new(policy: &Policy, text: String) -> Self {
        let limits = policy.limits();
        Self {
            name: policy.name().to_owned(),
            built_in: builtin::is_reserved(policy.name()),
            open: policy.is_open(),
            error: policy.error().map(str::to_owned),
            warnings: policy.warnings().to_vec(),
            max_requests: limits.requests,
            max_bytes: limits.bytes,
            max_runtime: limits.runtime.map(|time| time.as_secs()),
            rules: policy.rules().iter().map(ShownRule::new).collect(),
            text,
        }
    }
}

impl Difference {
    /// The order of rules means nothing.
    pub(super) fn between(before: &Policy, after: &Policy) -> Self {
        let only = |these: &Policy, others: &Policy| -> Vec<ShownRule> {
            let others: Vec<String> = others.rules().iter().map(ToString::to_string).collect();
            let these = these.rules().iter().map(ShownRule::new);
            these.filter(|rule| !others.contains(&rule.rule)).collect()
        };
        let (only_before, only_after) = (only(before, after), only(after, before));
        let limits = changed(before.limits(), after.limits());
        let same = only_before.is_empty() && only_after.is_empty() && limits.is_empty();
        Self { same, limits, only_before, only_after }
    }

    pub(super) fn text(&self) -> String {
        let lines = |sign: char, rules: &[ShownRule]| -> String {
            rules.iter().map(|shown| format!("{sign} {}\n", shown.rule)).collect()
        };
        let limit = |sign: char, key: &str, said: Option<u64>| match (key, said) {
            (_, None) => String::new(),
            ("max-runtime", Some(said)) => format!("{sign} {key} = \"{said}s\"\n"),
            (_, Some(said)) => format!("{sign} {key} = {said}\n"),
        };
        let limits = self
            .limits
            .iter()
            .map(|Changed { key, before, after }| limit('-', key, *before) + &limit('+', key, *after));
        limits.collect::<String>() + &lines('-', &self.only_before) + &lines('+', &self.only_after)
    }
}

/// In numbers: requests, bytes, and of `max-runtime` seconds.
fn changed(before: Limits, after: Limits) -> Vec<Changed> {
    let seconds = |limits: Limits| limits.runtime.map(|time| time.as_secs());
    let all = [
        Changed { key: "max-requests", before: before.requests, after: after.requests },
        Changed { key: "max-bytes", before: before.bytes, after: after.bytes },
        Changed { key: "max-runtime", before: seconds(before), after: seconds(after) },
    ];
    all.into_iter().filter(|changed| changed.before != changed.after).collect()
}

impl Proposed {
    /// # Errors
    /// If `policy` is none that could be used, which would be a mistake of whoever wrote it.
    pub fn new(policy: String, problems: Vec<String>) -> Result<Self, DocumentError> {
        let parsed = Policy::parse("proposal", "proposal", &policy)?;
        Ok(Self { rules: parsed.rules().iter().map(ShownRule::new).collect(), policy, problems })
    }
}
