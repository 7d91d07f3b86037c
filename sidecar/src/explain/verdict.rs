//! What policy makes of one request, as a value and as a person reads it. Pure.

use std::fmt::Write as _;

use understudy_control::{Effect, Explained, ExplainedRule, Outcome};
use understudy_policies::{Considered, HostName, PolicySet, Request};

use super::asked::{Asked, command};
use crate::connection::doors::Doors;
use crate::connection::postgres::admission::Door;
use crate::connection::ssh::admission::{Admission, another_user};
use crate::connection::ssh::command::{Command, Service};
use crate::decide::{Denial, Permit, decide, decide_git, decide_postgres, decide_raw};
use crate::operator::mode::{Course, LOGGED, Mode};
use crate::reason::Reason;

/// Whom other protocols let in at a host and port; None where that is not known.
pub type Admit<'a> = &'a dyn Fn(&HostName, u16) -> Option<Doors>;

/// By the functions that decide on it where it happens.
pub fn explain(set: &PolicySet, mode: Mode, asked: &Asked, admit: Admit<'_>) -> Explained {
    let (host, port) = (asked.host(), asked.port());
    let splice = Splice::of(set, asked, admit(host, port).as_ref());
    let told = |rules: Vec<Considered>| Explained {
        request: asked.to_string(),
        container: None,
        policy: set.label().to_owned(),
        mode: mode.to_string(),
        decision: Outcome::Allowed,
        rule: None,
        reason: None,
        remedy: String::new(),
        assumed: None,
        rules: rules.into_iter().map(|rule| considered(rule, splice)).collect(),
    };
    match asked {
        Asked::Web { method, target, .. } => {
            let request = Request::new(host, port, method, target);
            of_web(told(set.explain(&request)), decide(set, &request), mode, host, port)
        }
        Asked::Raw { .. } => {
            let explained = told(set.explain_raw(host, port));
            match admit(host, port) {
                Some(doors) if doors.ssh != Admission::NoKey => {
                    refused(explained, for_git_alone(set, host, port))
                }
                Some(doors) if doors.postgres != Door::NoSecret => {
                    refused(explained, for_sessions_alone(set, host, port))
                }
                _ if set.is_about_postgres(host, port) => {
                    refused(explained, for_sessions_alone(set, host, port))
                }
                _ => decided(explained, decide_raw(set, host, port)),
            }
        }
        Asked::Git { user, service, repository, .. } => {
            let admission = admit(host, port).map(|doors| doors.ssh);
            if admission == Some(Admission::NoKey) {
                let permit = decide_raw(set, host, port).map_err(|denial| without_key(denial, host, port));
                return decided(told(set.explain_raw(host, port)), permit);
            }
            let target = match command(*service, repository) {
                Ok(command) => command.request_target(),
                Err(_) => format!("{repository}/{}", service.name()),
            };
            let explained = told(set.explain(&Request::new(host, port, Command::METHOD, &target)));
            let explained = Explained {
                assumed: admission.is_none().then(|| {
                    format!("that an SSH key is for {host}:{port}, and that the container was given it")
                }),
                ..explained
            };
            decided(explained, of_git(set, asked, admission, user.as_deref(), *service, repository))
        }
        Asked::Postgres { user, database, .. } => {
            let door = admit(host, port).map(|doors| doors.postgres);
            let explained = Explained {
                assumed: door.is_none().then(|| {
                    format!(
                        "that a secret of kind \"postgres\" is for {host}:{port}, and that the container was given it"
                    )
                }),
                ..told(set.explain_postgres(host, port, database))
            };
            let closed = door.and_then(|door| door.admits(host, port, user.as_deref()).err());
            let permit = match closed {
                Some((reason, remedy)) => {
                    Err(Denial { reason, policy: set.label().to_owned(), rule: None, remedy })
                }
                None => decide_postgres(set, host, port, database),
            };
            decided(explained, permit)
        }
    }
}

/// In the order in which the sidecar asks: the login, the command, its policy.
fn of_git(
    set: &PolicySet,
    asked: &Asked,
    admission: Option<Admission>,
    user: Option<&str>,
    service: Service,
    repository: &str,
) -> Result<Permit, Denial> {
    let no = |reason, remedy| Denial { reason, policy: set.label().to_owned(), rule: None, remedy };
    match admission {
        Some(Admission::Closed(why)) => return Err(no(Reason::CredentialNotGranted, why)),
        Some(Admission::As(own)) if user.is_some_and(|user| !own.iter().any(|own| own == user)) => {
            return Err(no(Reason::CredentialRestricted, another_user(&own)));
        }
        _ => {}
    }
    let command =
        command(service, repository).map_err(|error| no(Reason::ProtocolNotAllowed, error.to_string()))?;
    decide_git(set, asked.host(), asked.port(), &command)
}

/// Only HTTP and HTTPS are asked about, or let through for the record.
fn of_web(
    explained: Explained,
    permit: Result<Permit, Denial>,
    mode: Mode,
    host: &HostName,
    port: u16,
) -> Explained {
    match permit {
        Err(denial) => match mode.course(denial.reason) {
            Course::Record => {
                let rule = Some(LOGGED.to_owned());
                Explained { rule, reason: None, remedy: deny(host, port), ..explained }
            }
            Course::Ask => Explained { decision: Outcome::Asked, ..refused(explained, denial) },
            Course::Refuse => refused(explained, denial),
        },
        permitted => decided(explained, permitted),
    }
}

fn decided(explained: Explained, permit: Result<Permit, Denial>) -> Explained {
    match permit {
        Ok(permit) => {
            let remedy = deny(permit.host(), permit.port());
            Explained { rule: Some(permit.rule().to_owned()), remedy, ..explained }
        }
        Err(denial) => refused(explained, denial),
    }
}

/// Where an SSH key is declared, nothing is passed through.
fn for_git_alone(set: &PolicySet, host: &HostName, port: u16) -> Denial {
    let remedy = format!(
        "an SSH key is declared for {host}:{port}, so that only git over SSH passes there: run `understudy explain \
         ssh://{host}:{port}/OWNER/REPO`, or take the key out of secrets.toml"
    );
    Denial { reason: Reason::ProtocolNotAllowed, policy: set.label().to_owned(), rule: None, remedy }
}

/// Where a password of PostgreSQL is declared, or a rule is about its sessions, nothing else passes.
fn for_sessions_alone(set: &PolicySet, host: &HostName, port: u16) -> Denial {
    let remedy = format!(
        "only sessions of PostgreSQL pass at {host}:{port}: run `understudy explain postgres://{host}:{port}/DATABASE`, or \
         take the secret out of secrets.toml and `postgres` out of the policy"
    );
    Denial { reason: Reason::ProtocolNotAllowed, policy: set.label().to_owned(), rule: None, remedy }
}

/// SSH that the container does with a key of its own is bytes like any other.
fn without_key(denial: Denial, host: &HostName, port: u16) -> Denial {
    let remedy = match denial.reason {
        Reason::ProtocolNotAllowed => format!(
            "declare an SSH key for {host}:{port} in secrets.toml (docs/ssh.md), or, for a key of the container's own, {}",
            denial.remedy
        ),
        _ => denial.remedy,
    };
    Denial { remedy, ..denial }
}

/// The same request, refused for another reason than its policy.
#[must_use]
pub fn refused(explained: Explained, denial: Denial) -> Explained {
    Explained {
        decision: Outcome::Refused,
        rule: denial.rule,
        reason: Some(denial.reason.code().to_owned()),
        remedy: denial.remedy,
        ..explained
    }
}

/// The same, with its container's name where it says NAME.
#[must_use]
pub fn named(explained: Explained, container: &str) -> Explained {
    let remedy = explained.remedy.replace("--container NAME", &format!("--container {container}"));
    Explained { container: Some(container.to_owned()), remedy, ..explained }
}

pub fn text(explained: &Explained) -> String {
    let Explained { request, container, policy, mode, decision, rule, reason, remedy, assumed, rules } =
        explained;
    let mut text = format!("{request}\n");
    if let Some(container) = container {
        let _ = writeln!(text, "container: {container}, mode {mode}");
    }
    let _ = writeln!(text, "policy: {policy}");
    let rule = rule.as_deref().unwrap_or_default();
    let reason = reason.as_deref().unwrap_or_default();
    let _ = match decision {
        Outcome::Allowed => writeln!(text, "allowed by {rule}"),
        Outcome::Asked => writeln!(text, "waits for your answer, and is refused without one: {reason}"),
        Outcome::Refused if rule.is_empty() => writeln!(text, "refused: {reason}"),
        Outcome::Refused => writeln!(text, "refused: {reason} ({rule})"),
    };
    let _ = writeln!(text, "to change it: {remedy}");
    if let Some(assumed) = assumed {
        let _ = writeln!(text, "taken for given: {assumed}");
    }
    if rules.is_empty() {
        text.push_str("no rule is about this host\n");
    }
    for ExplainedRule { place, effect, hosts, terms, outcome, note } in rules {
        let effect = match effect {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
        };
        let note = note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let _ = writeln!(text, "  {place} [[{effect}]] {hosts}{terms}: {outcome}{note}");
    }
    text
}

/// What `splice` of a rule comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Splice {
    Holds,
    /// Where a secret is bound, or sessions of PostgreSQL are.
    Overruled,
    /// It is about something else than TLS.
    Meaningless,
}

impl Splice {
    fn of(set: &PolicySet, asked: &Asked, doors: Option<&Doors>) -> Self {
        let Asked::Web { .. } = asked else { return Self::Meaningless };
        let sessions = set.is_about_postgres(asked.host(), asked.port());
        let decrypted = doors.is_some_and(|doors| doors.decrypted || doors.postgres != Door::NoSecret);
        if sessions || decrypted { Self::Overruled } else { Self::Holds }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Holds => ", splice: TLS is not decrypted",
            Self::Overruled => {
                ", splice: not here, since a secret or a rule of PostgreSQL's is for this host"
            }
            Self::Meaningless => "",
        }
    }
}

fn considered(rule: Considered, splice: Splice) -> ExplainedRule {
    let splice = if rule.splice { splice.told() } else { "" };
    ExplainedRule {
        effect: match rule.effect {
            understudy_policies::Effect::Allow => Effect::Allow,
            understudy_policies::Effect::Deny => Effect::Deny,
        },
        terms: format!("{splice}{}", rule.terms),
        outcome: rule.outcome.to_string(),
        place: rule.place,
        hosts: rule.hosts,
        note: rule.note,
    }
}

fn deny(host: &HostName, port: u16) -> String {
    format!(
        "run `understudy deny {host}:{port} --container NAME`, or add to a policy: [[deny]] host = \"{host}\", port = {port}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use understudy_policies::Policy;

    use super::*;

    fn web() -> PolicySet {
        let text = "[[allow]]\nhost = \"*.example.com\"\nmethods = \"GET\"\n\
                    [[deny]]\nhost = \"up.example.com\"\nnote = \"uploads\"\n";
        PolicySet::combine(vec![Arc::new(Policy::parse("web", "web.toml", text).unwrap())])
    }

    fn of(set: &PolicySet, mode: Mode, url: &str, method: Option<&str>, admit: Admit<'_>) -> Explained {
        explain(set, mode, &Asked::parse(url, method).unwrap(), admit)
    }

    fn nobody(_: &HostName, _: u16) -> Option<Doors> {
        None
    }

    fn told(url: &str, method: &str) -> (String, Outcome) {
        let explained = of(&web(), Mode::Deny, url, Some(method), &nobody);
        (text(&explained), explained.decision)
    }

    #[test]
    fn a_decision_is_told_with_every_rule_that_was_asked_and_what_would_change_it() {
        assert_eq!(
            told("https://a.example.com/x?y=1", "GET"),
            (
                "GET a.example.com:443/x?y=1\npolicy: web\nallowed by web.toml:2\n\
                 to change it: run `understudy deny a.example.com:443 --container NAME`, or add to a policy: \
                 [[deny]] host = \"a.example.com\", port = 443\n  web.toml:2 [[allow]] *.example.com: matches\n"
                    .to_owned(),
                Outcome::Allowed
            )
        );
        let (text, decision) = told("up.example.com", "POST");
        assert_eq!(decision, Outcome::Refused);
        assert!(
            text.contains("refused: denied-by-rule (web.toml:5)\nto change it: change or remove"),
            "{text}"
        );
        assert!(text.contains("web.toml:2 [[allow]] *.example.com: another method\n"), "{text}");
        assert!(text.ends_with("web.toml:5 [[deny]] up.example.com: matches (uploads)\n"), "{text}");
        let (text, _) = told("http://a.example.net", "GET");
        assert!(
            text.contains("a.example.net:80/\n") && text.ends_with("no rule is about this host\n"),
            "{text}"
        );
    }

    #[test]
    fn the_mode_decides_on_what_no_rule_is_about_and_on_nothing_else() {
        for (mode, url, method, decision) in [
            (Mode::Ask, "a.example.net", "GET", Outcome::Asked),
            (Mode::Ask, "a.example.com:8443", "GET", Outcome::Asked),
            (Mode::Ask, "a.example.com", "POST", Outcome::Refused),
            (Mode::Ask, "up.example.com", "GET", Outcome::Refused),
            (Mode::Log, "a.example.net", "GET", Outcome::Allowed),
            (Mode::Log, "a.example.com", "POST", Outcome::Allowed),
            (Mode::Log, "up.example.com", "GET", Outcome::Refused),
        ] {
            let explained = of(&web(), mode, url, Some(method), &nobody);
            assert_eq!(explained.decision, decision, "{mode} {url} {method}");
        }
        let explained = named(of(&web(), Mode::Ask, "a.example.net", None, &nobody), "agent");
        let text = text(&explained);
        assert!(
            text.contains("container: agent, mode ask\n") && text.contains("waits for your answer"),
            "{text}"
        );
        assert!(text.contains("`understudy allow a.example.net --container agent`"), "{text}");
    }

    const MIXED: &str = "[[allow]]\nhost = \"git.example\"\nport = 22\ngit = \"read\"\nrepos = \"org/*\"\n\
                         [[deny]]\nhost = \"git.example\"\nport = 22\ngit = \"read\"\nrepos = \"org/secret\"\n\
                         [[allow]]\nhost = \"db.example\"\nport = 5432\ntcp = true\n\
                         [[allow]]\nhost = \"bad.example\"\nport = 5432\ntcp = true\n\
                         [[deny]]\nhost = \"bad.example\"\nmethods = \"PUT\"\n\
                         [[allow]]\nhost = \"own.example\"\nport = 22\ntcp = true\n\
                         [[allow]]\nhost = [\"pg.example\", \"bare.example\"]\npostgres = true\ndatabases = \"app\"\n\
                         [[allow]]\nhost = \"own.example\"\nport = 5432\ntcp = true\n";

    fn mixed() -> PolicySet {
        PolicySet::combine(vec![Arc::new(Policy::parse("mixed", "m.toml", MIXED).unwrap())])
    }

    /// A key for git.example alone, which logs in as `git`.
    fn keyed(host: &HostName, port: u16) -> Option<Doors> {
        let none = Doors::none();
        Some(match (host.as_str(), port) {
            ("git.example", 22) => Doors { ssh: Admission::As(vec!["git".to_owned()]), ..none },
            ("closed.example", 22) => {
                Doors { ssh: Admission::Closed("it was not given it".to_owned()), ..none }
            }
            ("pg.example" | "own.example", 5432) => {
                Doors { postgres: Door::Users(vec![("work".to_owned(), "app".to_owned())]), ..none }
            }
            ("closed.example", 5432) => {
                Doors { postgres: Door::Closed("it was not given it".to_owned()), ..none }
            }
            _ => none,
        })
    }

    #[test]
    fn splice_is_told_only_where_it_holds() {
        let text = "[[allow]]\nhost = [\"free.example\", \"bound.example\", \"pg.example\"]\nport = [443, 5432]\nsplice = true\n\
                    [[allow]]\nhost = \"own.example\"\nport = 5432\npostgres = true\n\
                    [[allow]]\nhost = \"own.example\"\nport = 5432\nsplice = true\n";
        let set = PolicySet::combine(vec![Arc::new(Policy::parse("spliced", "s.toml", text).unwrap())]);
        let admit = |host: &HostName, port: u16| {
            let decrypted = host.as_str() == "bound.example";
            let doors = keyed(host, port).filter(|_| host.as_str() != "own.example").unwrap_or(Doors::none());
            Some(Doors { decrypted, ..doors })
        };
        for (url, said) in [
            ("https://free.example/", Some("TLS is not decrypted")),
            ("https://bound.example/", Some("splice: not here")),
            ("https://pg.example:5432/", Some("splice: not here")),
            ("https://own.example:5432/", Some("splice: not here")),
            ("postgres://app@pg.example/app", None),
            ("postgres://app@free.example/app", None),
            ("tcp://free.example:5432", None),
        ] {
            let method = url.starts_with("https").then_some("GET");
            let explained = explain(&set, Mode::Deny, &Asked::parse(url, method).unwrap(), &admit);
            let told: String = explained.rules.iter().map(|rule| rule.terms.as_str()).collect();
            match said {
                Some(said) => assert!(told.contains(said), "{url}: {told}"),
                None => assert!(!told.contains("splice"), "{url}: {told}"),
            }
        }
    }

    #[test]
    fn bytes_and_git_over_ssh_are_decided_and_never_asked_about() {
        for (url, method, rule, reason) in [
            ("tcp://db.example:5432", None, Some("m.toml:12"), None),
            ("tcp://db.example:5433", None, None, Some("protocol-not-allowed")),
            ("tcp://other.example:5432", None, None, Some("protocol-not-allowed")),
            ("tcp://bad.example:5432", None, Some("m.toml:20"), Some("denied-by-rule")),
            // Requests are no way to a rule for bytes, and the other way round.
            ("https://db.example:5432", Some("GET"), None, Some("host-not-allowed")),
            ("tcp://git.example:22", None, None, Some("protocol-not-allowed")),
            ("ssh://git@git.example/org/repo", None, Some("m.toml:2"), None),
            ("git@git.example:org/repo.git", None, Some("m.toml:2"), None),
            ("ssh://git.example/org/repo", None, Some("m.toml:2"), None),
            ("git@git.example:org/repo", Some("git-receive-pack"), None, Some("path-not-allowed")),
            ("git@git.example:org/secret", None, Some("m.toml:7"), Some("denied-by-rule")),
            ("git@git.example:else/repo", None, None, Some("path-not-allowed")),
            ("git@git.example:org/re%20po", None, None, Some("protocol-not-allowed")),
            ("git@git.example:../x", None, None, Some("protocol-not-allowed")),
            ("root@git.example:org/repo", None, None, Some("credential-restricted")),
            ("ssh://git@git.example:2222/org/repo", None, None, Some("protocol-not-allowed")),
            ("git@closed.example:org/repo", None, None, Some("credential-not-granted")),
            ("git@own.example:org/repo", None, Some("m.toml:23"), None),
            ("git@other.example:org/repo", None, None, Some("protocol-not-allowed")),
            ("postgres://app@pg.example/app", None, Some("m.toml:27"), None),
            ("postgresql://pg.example:5432/app", None, Some("m.toml:27"), None),
            ("postgres://app@pg.example/other", None, None, Some("host-not-allowed")),
            ("postgres://admin@pg.example/app", None, None, Some("credential-restricted")),
            ("postgres://app@closed.example/app", None, None, Some("credential-not-granted")),
            ("postgres://app@bare.example/app", None, None, Some("credential-not-granted")),
            ("postgres://app@own.example/app", None, None, Some("host-not-allowed")),
            ("postgres://app@db.example/app", None, None, Some("credential-not-granted")),
            ("tcp://pg.example:5432", None, None, Some("protocol-not-allowed")),
            ("tcp://own.example:5432", None, None, Some("protocol-not-allowed")),
            ("tcp://bare.example:5432", None, None, Some("protocol-not-allowed")),
            ("https://pg.example:5432", Some("GET"), None, Some("host-not-allowed")),
        ] {
            for mode in [Mode::Deny, Mode::Ask, Mode::Log] {
                if url.starts_with("https") && mode != Mode::Deny {
                    continue;
                }
                let told = of(&mixed(), mode, url, method, &keyed);
                let decision = if reason.is_some() { Outcome::Refused } else { Outcome::Allowed };
                assert_eq!(
                    (told.decision, told.rule.as_deref(), told.reason.as_deref()),
                    (decision, rule, reason),
                    "{url} {method:?} {mode}"
                );
                assert!(!told.remedy.is_empty() && told.assumed.is_none(), "{told:?}");
            }
        }
    }

    #[test]
    fn what_would_change_it_is_of_the_kind_that_was_asked_about() {
        for (url, method, said) in [
            ("tcp://other.example:5432", None, "[[allow]] host = \"other.example\", port = 5432, tcp = true"),
            ("tcp://db.example:5432", None, "`understudy deny db.example:5432 --container NAME`"),
            ("tcp://git.example:22", None, "`understudy explain ssh://git.example:22/OWNER/REPO`"),
            ("git@git.example:else/repo", None, "git = \"read\", repos = [\"else/repo\"]"),
            ("git@git.example:org/r", Some("git-receive-pack"), "git = \"write\", repos = [\"org/r\"]"),
            ("git@git.example:org/secret", None, "change or remove the denial at m.toml:7"),
            ("git@other.example:o/r", None, "declare an SSH key for other.example:22"),
            ("root@git.example:o/r", None, "write git@HOST"),
            ("postgres://app@pg.example/other", None, "postgres = true, databases = [\"other\"]"),
            (
                "postgres://app@bare.example/app",
                None,
                "no secret of kind \"postgres\" is for bare.example:5432",
            ),
            ("tcp://pg.example:5432", None, "`understudy explain postgres://pg.example:5432/DATABASE`"),
        ] {
            let told = of(&mixed(), Mode::Deny, url, method, &keyed);
            assert!(told.remedy.contains(said), "{url}: {}", told.remedy);
        }
        // Of files alone nobody knows who has a key.
        let told = of(&mixed(), Mode::Deny, "git@git.example:org/repo", None, &nobody);
        assert_eq!(
            text(&told),
            "git-upload-pack git.example:22/org/repo\npolicy: mixed\nallowed by m.toml:2\n\
             to change it: run `understudy deny git.example:22 --container NAME`, or add to a policy: \
             [[deny]] host = \"git.example\", port = 22\n\
             taken for given: that an SSH key is for git.example:22, and that the container was given it\n  \
             m.toml:2 [[allow]] git.example: matches\n  \
             m.toml:7 [[deny]] git.example: another path or query\n"
        );
        let told = of(&mixed(), Mode::Deny, "tcp://git.example:22", None, &nobody);
        assert!(
            text(&told).contains("m.toml:2 [[allow]] git.example: for requests only (no tcp)\n"),
            "{}",
            text(&told)
        );
    }
}
