//! What policy makes of one request, as a value and as a person reads it. Pure.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use http::Uri;
use understudy_control::{Effect, Explained, ExplainedRule, Outcome};
use understudy_policies::{Considered, HostName, PolicySet, Request};

use crate::decide::{Denial, decide};
use crate::operator::mode::{Course, LOGGED, Mode};

/// # Errors
/// If `url` is none, or names an address.
pub fn explain(set: &PolicySet, mode: Mode, url: &str, method: &str) -> Result<Explained> {
    let (host, port, target) = parts(url)?;
    let request = Request::new(&host, port, method, &target);
    let explained = Explained {
        request: format!("{method} {host}:{port}{target}"),
        container: None,
        policy: set.label().to_owned(),
        mode: mode.to_string(),
        decision: Outcome::Allowed,
        rule: None,
        reason: None,
        remedy: String::new(),
        rules: set.explain(&request).into_iter().map(considered).collect(),
    };
    Ok(match decide(set, &request) {
        Ok(permit) => {
            Explained { rule: Some(permit.rule().to_owned()), remedy: deny(&host, port), ..explained }
        }
        Err(denial) => match mode.course(denial.reason) {
            Course::Record => {
                let rule = Some(LOGGED.to_owned());
                Explained { rule, reason: None, remedy: deny(&host, port), ..explained }
            }
            Course::Ask => Explained { decision: Outcome::Asked, ..refused(explained, denial) },
            Course::Refuse => refused(explained, denial),
        },
    })
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
    let Explained { request, container, policy, mode, decision, rule, reason, remedy, rules } = explained;
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

fn considered(rule: Considered) -> ExplainedRule {
    let splice = if rule.splice { ", splice: TLS is not decrypted" } else { "" };
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

/// Host, port, and target in origin-form.
fn parts(url: &str) -> Result<(HostName, u16, String)> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let uri: Uri = in_ascii(&whole).parse().with_context(|| format!("{url:?} is not a URL"))?;
    let authority = uri.authority().context("a URL needs a host")?;
    if authority.as_str().contains('@') {
        bail!("leave out what stands before the `@`");
    }
    let port = match (uri.scheme_str(), uri.port_u16()) {
        (_, Some(port)) => port,
        (Some("https" | "wss"), None) => 443,
        (Some("http" | "ws"), None) => 80,
        (other, None) => bail!("{:?} is not a scheme that leaves a container", other.unwrap_or_default()),
    };
    let host = authority.host().parse().with_context(|| format!("{:?}", authority.host()))?;
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Ok((host, port, target.to_owned()))
}

/// With its host in Punycode, where it has letters that no [`Uri`] has.
fn in_ascii(url: &str) -> String {
    let named = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#', ':']).unwrap_or(rest.len());
        let (host, rest) = rest.split_at_checked(end).filter(|(host, _)| !host.is_ascii())?;
        Some(format!("{scheme}://{}{rest}", host.parse::<HostName>().ok()?))
    });
    named.unwrap_or_else(|| url.to_owned())
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

    fn told(url: &str, method: &str) -> (String, Outcome) {
        let explained = explain(&web(), Mode::Deny, url, method).unwrap();
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
            let explained = explain(&web(), mode, url, method).unwrap();
            assert_eq!(explained.decision, decision, "{mode} {url} {method}");
        }
        let explained = named(explain(&web(), Mode::Ask, "a.example.net", "GET").unwrap(), "agent");
        let text = text(&explained);
        assert!(
            text.contains("container: agent, mode ask\n") && text.contains("waits for your answer"),
            "{text}"
        );
        assert!(text.contains("`understudy allow a.example.net --container agent`"), "{text}");
    }

    #[test]
    fn what_is_no_url_is_an_error() {
        for url in ["", "https://", "ftp://a.example", "https://u@a.example", "https://10.0.0.1/", "a b"] {
            assert!(explain(&web(), Mode::Deny, url, "GET").is_err(), "{url}");
        }
    }
}
