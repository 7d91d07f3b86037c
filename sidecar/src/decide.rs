//! From a policy and a request to a permit, or to the reason why not. Pure.

use understudy_policies::{Given, HostName, PolicySet, Request, Verdict};

use crate::connection::ssh::command::Command;
use crate::credentials::catalogue::TokenEndpoint;
use crate::operator::decisions::DECIDED;
use crate::reason::Reason;

/// That policy, or the operator, allows this host and port. Nothing can be dialled without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    host: HostName,
    port: u16,
    policy: String,
    rule: String,
    given: Given,
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
    /// Where accounts are renewed is the operator's own configuration, and no container's request.
    pub fn of_token_endpoint(endpoint: &TokenEndpoint) -> Self {
        let (policy, rule) = ("accounts".to_owned(), endpoint.to_string());
        Self { host: endpoint.host.clone(), port: endpoint.port, policy, rule, given: Given::default() }
    }

    /// Of what no rule is about, by what stands at `place` in its stead.
    pub fn unlisted(policy: &PolicySet, request: &Request<'_>, place: &str) -> Self {
        let (policy, rule) = (policy.label().to_owned(), place.to_owned());
        Self { host: request.host.clone(), port: request.port, policy, rule, given: Given::default() }
    }

    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Under which terms.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Where the rule that allowed it stands, as `web.toml:3` or `annotation understudy.allow`.
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

/// To pass TLS through without decrypting it. None if no rule says that; what is inspected is decided request by request.
pub fn decide_splice(policy: &PolicySet, host: &HostName, port: u16) -> Option<Permit> {
    let (rule, given) = policy.splice(host, port)?;
    let policy = policy.label().to_owned();
    Some(Permit { host: host.clone(), port, policy, rule, given })
}

/// Why a name is not looked up that no rule permits on any port.
pub fn closed(policy: &PolicySet, host: &HostName) -> Denial {
    let (reason, rule, remedy) = match policy.closed(host) {
        Verdict::Denied { rule, note } => {
            let remedy = undo(&rule, note.as_deref());
            (Reason::DeniedByRule, Some(rule), remedy)
        }
        Verdict::Failed { policy, error } => (Reason::PolicyFailed, None, repair(&policy, &error)),
        _ => (Reason::HostNotAllowed, None, allow(host, 443)),
    };
    Denial { reason, policy: policy.label().to_owned(), rule, remedy }
}

/// For bytes that are neither TLS nor HTTP.
pub fn decide_raw(policy: &PolicySet, host: &HostName, port: u16) -> Result<Permit, Denial> {
    let (reason, rule, remedy) = match policy.decide_raw(host, port) {
        Verdict::Allowed { rule, given } => {
            let policy = policy.label().to_owned();
            return Ok(Permit { host: host.clone(), port, policy, rule, given });
        }
        Verdict::Denied { rule, note } => {
            let remedy = undo(&rule, note.as_deref());
            (Reason::DeniedByRule, Some(rule), remedy)
        }
        Verdict::Failed { policy, error } => (Reason::PolicyFailed, None, repair(&policy, &error)),
        _ => {
            let remedy = format!("add to a policy: [[allow]] host = \"{host}\", port = {port}, tcp = true");
            (Reason::ProtocolNotAllowed, None, remedy)
        }
    };
    Err(Denial { reason, policy: policy.label().to_owned(), rule, remedy })
}

/// For a session of PostgreSQL with one database.
pub fn decide_postgres(
    policy: &PolicySet,
    host: &HostName,
    port: u16,
    database: &str,
) -> Result<Permit, Denial> {
    let (reason, rule, remedy) = match policy.decide_postgres(host, port, database) {
        Verdict::Allowed { rule, given } => {
            let policy = policy.label().to_owned();
            return Ok(Permit { host: host.clone(), port, policy, rule, given });
        }
        Verdict::Denied { rule, note } => {
            let remedy = undo(&rule, note.as_deref());
            (Reason::DeniedByRule, Some(rule), remedy)
        }
        Verdict::Failed { policy, error } => (Reason::PolicyFailed, None, repair(&policy, &error)),
        _ => {
            let remedy = format!(
                "database {database:?} is not allowed; add to a policy: [[allow]] host = \"{host}\", port = {port}, \
                 postgres = true, databases = [{database:?}]"
            );
            (Reason::HostNotAllowed, None, remedy)
        }
    };
    Err(Denial { reason, policy: policy.label().to_owned(), rule, remedy })
}

/// For git over SSH: policies are asked for the request that it would be over HTTPS, at the port of SSH.
pub fn decide_git(
    policy: &PolicySet,
    host: &HostName,
    port: u16,
    command: &Command,
) -> Result<Permit, Denial> {
    let target = command.request_target();
    decide(policy, &Request::new(host, port, Command::METHOD, &target)).map_err(|denial| {
        let (service, path) = (command.service(), command.path());
        let (direction, repository) = (service.direction(), path.trim_start_matches('/'));
        let repository = repository.strip_suffix(".git").unwrap_or(repository);
        let remedy = match denial.reason {
            Reason::DeniedByRule | Reason::PolicyFailed => denial.remedy,
            _ => format!(
                "{} of {repository} is not allowed; add to a policy: [[allow]] host = \"{host}\", port = {port}, \
                 git = \"{direction}\", repos = [\"{repository}\"] (or everything there: run `understudy allow \
                 {host}:{port} --container NAME`)",
                service.name()
            ),
        };
        Denial { remedy, ..denial }
    })
}

pub fn decide(policy: &PolicySet, request: &Request<'_>) -> Result<Permit, Denial> {
    let (host, port) = (request.host, request.port);
    let (reason, rule, remedy) = match policy.decide_request(request) {
        Verdict::Allowed { rule, given } => {
            let policy = policy.label().to_owned();
            return Ok(Permit { host: host.clone(), port, policy, rule, given });
        }
        Verdict::Denied { rule, note } => {
            let remedy = undo(&rule, note.as_deref());
            (Reason::DeniedByRule, Some(rule), remedy)
        }
        Verdict::NoHost => (Reason::HostNotAllowed, None, allow(host, port)),
        Verdict::NoPort { ports } => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            let remedy = format!("use port {}, or {}", ports.join(" or "), allow(host, port));
            (Reason::PortNotAllowed, None, remedy)
        }
        Verdict::NoMethod { methods } => {
            let remedy = format!("use {}, or {}", methods.join(" or "), allow(host, port));
            (Reason::MethodNotAllowed, None, remedy)
        }
        Verdict::NoPath { rules } => {
            let remedy = format!(
                "widen `paths`, `query` or `repos` at {}, or {}",
                rules.join(" or "),
                allow(host, port)
            );
            (Reason::PathNotAllowed, None, remedy)
        }
        Verdict::AmbiguousPath { rule, error } => {
            let remedy = format!("{error}: write it in its plain form; the rule at {rule} asks for a path");
            (Reason::PathAmbiguous, Some(rule), remedy)
        }
        Verdict::Failed { policy, error } => (Reason::PolicyFailed, None, repair(&policy, &error)),
    };
    Err(Denial { reason, policy: policy.label().to_owned(), rule, remedy })
}

fn repair(policy: &str, error: &str) -> String {
    format!("repair policy `{policy}` ({error}); see what is wrong with: understudy check")
}

/// How to take back what denies.
fn undo(rule: &str, note: Option<&str>) -> String {
    if let Some(number) = rule.strip_prefix(DECIDED) {
        return format!("run `understudy withdraw {number}`; until then no rule can override it");
    }
    let why = note.map(|note| format!(" ({note})")).unwrap_or_default();
    format!("change or remove the denial at {rule}{why}; no other rule can override it")
}

/// Every way to allow it: for a container that runs, for one that is started, and for good.
fn allow(host: &HostName, port: u16) -> String {
    let (suffix, key) = match port {
        443 => (String::new(), String::new()),
        _ => (format!(":{port}"), format!(", port = {port}")),
    };
    format!(
        "run `understudy allow {host}{suffix} --container NAME`, start the container with --annotation \
         understudy.allow={host}{suffix}, or add to a policy: [[allow]] host = \"{host}\"{key}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use understudy_policies::Policy;

    use super::*;

    const WEB: &str = "[[allow]]\nhost = [\"a.example\", \"no.example\"]\nport = [443, 8443]\n\
                       [[deny]]\nhost = \"no.example\"\nnote = \"uploads\"\n";

    fn web() -> Arc<Policy> {
        Arc::new(Policy::parse("web", "web.toml", WEB).unwrap())
    }

    #[test]
    fn a_permit_says_what_was_permitted_and_by_what() {
        let host = "A.example.".parse().unwrap();
        let permit =
            decide(&PolicySet::combine(vec![web()]), &Request::new(&host, 8443, "GET", "/")).unwrap();
        assert_eq!((permit.host().as_str(), permit.port()), ("a.example", 8443));
        assert_eq!((permit.policy(), permit.rule()), ("web", "web.toml:2"));
    }

    #[test]
    fn a_denial_says_why_and_what_to_do() {
        let broken = Arc::new(Policy::failed("broken", "broken.toml:1:1: no"));
        for (policies, host, port, reason, said) in [
            (vec![web()], "b.example", 443, Reason::HostNotAllowed, "understudy.allow=b.example, or add"),
            (
                vec![web()],
                "b.example",
                80,
                Reason::HostNotAllowed,
                "[[allow]] host = \"b.example\", port = 80",
            ),
            (vec![web()], "a.example", 22, Reason::PortNotAllowed, "use port 443 or 8443, or run"),
            (vec![web()], "no.example", 443, Reason::DeniedByRule, "web.toml:5 (uploads)"),
            (vec![web(), broken], "a.example", 443, Reason::PolicyFailed, "broken.toml:1:1: no"),
            (vec![], "a.example", 443, Reason::HostNotAllowed, "understudy.allow=a.example"),
        ] {
            let set = PolicySet::combine(policies);
            let name = host.parse().unwrap();
            let denial = decide(&set, &Request::new(&name, port, "GET", "/")).unwrap_err();
            assert_eq!((denial.reason, denial.policy.as_str()), (reason, set.label()), "{host}:{port}");
            assert!(denial.remedy.contains(said), "{}", denial.remedy);
            assert_eq!(denial.rule.is_some(), reason == Reason::DeniedByRule);
        }
    }
    #[test]
    fn a_denied_request_says_what_about_it_is_not_allowed() {
        let text = "[[allow]]\nhost = \"api.example\"\nmethods = \"GET\"\npaths = \"/v1/*\"\n";
        let set = PolicySet::combine(vec![Arc::new(Policy::parse("api", "api.toml", text).unwrap())]);
        let host = "api.example".parse().unwrap();
        for (method, target, reason, said) in [
            ("POST", "/v1/a", Reason::MethodNotAllowed, "use GET, or run"),
            ("GET", "/v2/a", Reason::PathNotAllowed, "`repos` at api.toml:2, or run"),
            ("GET", "/v1//a", Reason::PathAmbiguous, "an empty segment (`//`): write it in its plain form"),
        ] {
            let denial = decide(&set, &Request::new(&host, 443, method, target)).unwrap_err();
            assert_eq!(denial.reason, reason);
            assert!(denial.remedy.contains(said), "{}", denial.remedy);
        }
    }
}
