//! `understudy explain`: what policy makes of a request, which rules were asked, and what would change it. Reads files
//! only; nothing is resolved or sent.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use http::Uri;
use understudy_control::annotation;
use understudy_harnesses::Harnesses;
use understudy_policies::{Effect, HostName, Policies, Policy, PolicySet, Request, builtin};

use crate::ceiling;
use crate::config::Directories;
use crate::decide::decide;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    directories: Directories,
    /// As `https://api.example.com/v1/x?key=1`; `https://` may be left out
    url: String,
    /// The request's method
    #[arg(long, default_value = "GET")]
    method: String,
    /// As in the annotation understudy.policy
    #[arg(long, value_name = "NAMES", default_value = builtin::HARNESS_ONLY)]
    policy: String,
    /// As in the annotation understudy.allow
    #[arg(long, value_name = "HOSTS")]
    allow: Option<String>,
    /// Whose hosts `harness-only` means
    #[arg(long, value_name = "NAME", default_value = "generic")]
    harness: String,
    /// The harness's login that the container has
    #[arg(long, value_name = "NAME")]
    login: Option<String>,
    /// As in the annotation understudy.privacy
    #[arg(long, value_name = "LEVEL")]
    privacy: Option<String>,
}

/// Exit status 0 if it is allowed, 2 if it is refused.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let policies = Policies::load(Some(&arguments.directories.policies()));
    let harnesses = Harnesses::load(Some(&arguments.directories.harnesses()));
    let mut set = Vec::new();
    for name in annotation::list(&arguments.policy) {
        set.push(policy(name, arguments, &policies, &harnesses)?);
    }
    if let Some(allow) = &arguments.allow {
        set.push(Arc::new(Policy::from_allow_annotation(allow)?));
    }
    set.extend(ceiling::load(&arguments.directories.ceiling_toml())?.denials().map(Arc::new));
    let (text, allowed) = explain(&PolicySet::combine(set), &arguments.url, &arguments.method)?;
    print!("{text}");
    Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn policy(
    name: &str,
    arguments: &Arguments,
    policies: &Policies,
    harnesses: &Harnesses,
) -> Result<Arc<Policy>> {
    if name == builtin::HARNESS_ONLY {
        let harness = harnesses.harness(&arguments.harness)?;
        let login = arguments.login.as_ref().map(|name| {
            let login = harness.logins.iter().find(|login| login.name == *name);
            login.with_context(|| format!("harness {} has no login `{name}`", harness.name))
        });
        let level = harness.level(arguments.privacy.as_deref());
        if let Some(asked) = arguments.privacy.as_ref().filter(|asked| *asked != level) {
            bail!("harness {} has no privacy level `{asked}`", harness.name);
        }
        let hosts = harness.allowed_hosts(login.transpose()?, level);
        return Ok(Arc::new(builtin::harness_only(&harness.name, hosts)));
    }
    policies.policy(name).with_context(|| match policies.suggestion(name) {
        Some(meant) => format!("there is no policy {name:?}; did you mean `{meant}`?"),
        None => format!("there is no policy {name:?}; list them with: understudy policy list"),
    })
}

fn explain(set: &PolicySet, url: &str, method: &str) -> Result<(String, bool)> {
    let (host, port, target) = parts(url)?;
    let request = Request::new(&host, port, method, &target);
    let mut text = format!("{method} {host}:{port}{target}\npolicy: {}\n", set.label());
    let verdict = decide(set, &request);
    let _ = match &verdict {
        Ok(permit) => writeln!(text, "allowed by {}", permit.rule()),
        Err(denial) => {
            let rule = denial.rule.as_ref().map(|rule| format!(" ({rule})")).unwrap_or_default();
            writeln!(text, "refused: {}{rule}\noperator: {}", denial.reason.code(), denial.remedy)
        }
    };
    let considered = set.explain(&request);
    if considered.is_empty() {
        text.push_str("no rule is about this host\n");
    }
    for rule in considered {
        let effect = match rule.effect {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
        };
        let splice = if rule.splice { ", splice: TLS is not decrypted" } else { "" };
        let note = rule.note.map(|note| format!(" ({note})")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {} [[{effect}]] {}{splice}{}: {}{note}",
            rule.place, rule.hosts, rule.terms, rule.outcome
        );
    }
    Ok((text, verdict.is_ok()))
}

/// Host, port, and target in origin-form.
fn parts(url: &str) -> Result<(HostName, u16, String)> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let uri: Uri = whole.parse().with_context(|| format!("{url:?} is not a URL"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> PolicySet {
        let text = "[[allow]]\nhost = \"*.example.com\"\nmethods = \"GET\"\n\
                    [[deny]]\nhost = \"up.example.com\"\nnote = \"uploads\"\n";
        PolicySet::combine(vec![Arc::new(Policy::parse("web", "web.toml", text).unwrap())])
    }

    #[test]
    fn a_decision_is_told_with_every_rule_that_was_asked() {
        assert_eq!(
            explain(&web(), "https://a.example.com/x?y=1", "GET").unwrap(),
            (
                "GET a.example.com:443/x?y=1\npolicy: web\nallowed by web.toml:2\n  \
                 web.toml:2 [[allow]] *.example.com: matches\n"
                    .to_owned(),
                true
            )
        );
        let (text, allowed) = explain(&web(), "up.example.com", "POST").unwrap();
        assert!(!allowed);
        assert!(text.contains("refused: denied-by-rule (web.toml:5)\noperator: change or remove"), "{text}");
        assert!(text.contains("web.toml:2 [[allow]] *.example.com: another method\n"), "{text}");
        assert!(text.ends_with("web.toml:5 [[deny]] up.example.com: matches (uploads)\n"), "{text}");
        let (text, _) = explain(&web(), "http://a.example.net", "GET").unwrap();
        assert!(
            text.contains("a.example.net:80/\n") && text.ends_with("no rule is about this host\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_url_is_an_error() {
        for url in ["", "https://", "ftp://a.example", "https://u@a.example", "https://10.0.0.1/", "a b"] {
            assert!(explain(&web(), url, "GET").is_err(), "{url}");
        }
    }
}
