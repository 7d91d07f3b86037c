//! What an operator changes while containers run: `allow`, `deny`, `withdraw`, `revoke`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use understudy_control::{Decide, DecisionStatus, Effect, Lasting, Reply, Request};

use understudy_policies::HostPattern;

use crate::output::Output;
use crate::status::decided;
use crate::trail::{Call, filter};

#[derive(Debug, clap::Args)]
pub struct DecideArguments {
    /// A host, or `*.HOST` for those below it; with `:PORT` (without: 443 is allowed, every port denied)
    host: String,
    /// For this container, as long as it exists: its name, its id, or the beginning of its id
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// For a time, as `10m`, `2h` or `1d`
    #[arg(long = "for", value_name = "TIME", value_parser = filter::seconds)]
    time: Option<u64>,
    /// Until it is taken back
    #[arg(long, conflicts_with = "time")]
    always: bool,
    /// For the requests that wait for an answer now, and no others
    #[arg(long, conflicts_with_all = ["time", "always"])]
    once: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub struct WithdrawArguments {
    /// As `status` lists it
    #[arg(required_unless_present = "gone")]
    number: Option<u64>,
    /// All that are for a container that the sidecar does not know now, which `status` marks: it was removed, or is stopped
    /// and may start again, then without them. Never those for every container, or that were made with --always
    #[arg(long, conflicts_with = "number")]
    gone: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub struct RevokeArguments {
    /// Its name, its id, or the beginning of its id
    #[arg(required_unless_present = "all")]
    container: Option<String>,
    /// Every container that the sidecar knows now; one that is made later is another
    #[arg(long, conflicts_with = "container")]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Questions that one answer was for.
#[derive(Debug, Serialize)]
struct Answered {
    answered: u64,
}

/// What people call the containers.
#[derive(Debug, Serialize)]
struct Revoked {
    revoked: Vec<String>,
}

pub fn decide(arguments: &DecideArguments, effect: Effect, call: Call<'_>) -> Result<ExitCode> {
    match call(Request::Decide(wanted(arguments, effect)))? {
        Reply::Decided(decision) => arguments.output.print(&decision, told)?,
        Reply::Answered { questions } => {
            arguments.output.print(&Answered { answered: questions }, answered)?;
        }
        _ => bail!("the sidecar answered another question"),
    }
    Ok(ExitCode::SUCCESS)
}

pub fn withdraw(arguments: &WithdrawArguments, call: Call<'_>) -> Result<ExitCode> {
    let request = arguments.number.map_or(Request::WithdrawGone, |number| Request::Withdraw { number });
    match call(request)? {
        Reply::Decided(decision) => arguments.output.print(&decision, taken_back)?,
        Reply::Withdrawn(decisions) => {
            arguments.output.print(&decisions, |decisions| all_taken_back(decisions))?;
        }
        _ => bail!("the sidecar answered another question"),
    }
    Ok(ExitCode::SUCCESS)
}

pub fn revoke(arguments: &RevokeArguments, call: Call<'_>) -> Result<ExitCode> {
    let Reply::Revoked(revoked) = call(Request::Revoke { container: arguments.container.clone() })? else {
        bail!("the sidecar answered another question");
    };
    arguments.output.print(&Revoked { revoked }, |Revoked { revoked }| {
        revoked.iter().map(|label| format!("revoked: {label}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn wanted(arguments: &DecideArguments, effect: Effect) -> Decide {
    let lasting = match arguments {
        DecideArguments { once: true, .. } => Lasting::Once,
        DecideArguments { time: Some(seconds), .. } => Lasting::Seconds(*seconds),
        DecideArguments { always: true, .. } => Lasting::Always,
        _ => Lasting::Container,
    };
    let (host, container) = (arguments.host.clone(), arguments.container.clone());
    Decide { effect, host, container, lasting }
}

fn line(decision: &DecisionStatus) -> String {
    decided(decision) + "\n"
}

/// With what whoever allows it should know.
fn told(decision: &DecisionStatus) -> String {
    let pattern = decision.host.parse::<HostPattern>().ok().filter(|_| decision.effect == Effect::Allow);
    let caution = pattern.and_then(|pattern| pattern.caution());
    line(decision) + &caution.map(|caution| format!("warning: {caution}\n")).unwrap_or_default()
}

fn all_taken_back(decisions: &[DecisionStatus]) -> String {
    if decisions.is_empty() {
        return "nothing is decided for a container that is gone\n".to_owned();
    }
    decisions.iter().map(taken_back).collect()
}

fn taken_back(decision: &DecisionStatus) -> String {
    format!("taken back: {}", line(decision))
}

fn answered(Answered { answered }: &Answered) -> String {
    let plural = if *answered == 1 { "" } else { "s" };
    format!("answered {answered} question{plural}\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: DecideArguments,
    }

    #[test]
    fn who_allows_what_anybody_can_have_is_told() {
        let answer = |effect, host: &str| {
            let (host, port) = (host.to_owned(), Some(443));
            told(&DecisionStatus { number: 3, effect, host, port, container: None, until: None })
        };
        let warned = answer(Effect::Allow, "*.github.io");
        assert!(warned.contains("\nwarning: anybody can have a name below `github.io`"), "{warned}");
        for (effect, host) in [(Effect::Deny, "*.github.io"), (Effect::Allow, "me.github.io")] {
            assert!(!answer(effect, host).contains("warning"), "{host}");
        }
    }

    #[test]
    fn how_long_and_for_whom_is_what_was_written() {
        let whom = Some("agent".to_owned());
        for (words, container, lasting) in [
            (&["--container", "agent"][..], &whom, Lasting::Container),
            (&["--container", "agent", "--for", "10m"], &whom, Lasting::Seconds(600)),
            (&["--container", "agent", "--always"], &whom, Lasting::Always),
            (&["--container", "agent", "--once"], &whom, Lasting::Once),
            (&["--for", "2h"], &None, Lasting::Seconds(7200)),
            (&["--always"], &None, Lasting::Always),
            (&["--once"], &None, Lasting::Once),
            // The sidecar says that a container has to be named.
            (&[], &None, Lasting::Container),
        ] {
            let line = ["allow", "a.example:8443"].iter().chain(words);
            let Line { arguments } = Line::try_parse_from(line).unwrap();
            let expected = Decide {
                effect: Effect::Deny,
                host: "a.example:8443".to_owned(),
                container: container.clone(),
                lasting,
            };
            assert_eq!(wanted(&arguments, Effect::Deny), expected, "{words:?}");
        }
        for words in [&["--for", "1h", "--always"][..], &["--for", "1h", "--once"], &["--for", "0s"]] {
            assert!(Line::try_parse_from(["allow", "a.example"].iter().chain(words)).is_err(), "{words:?}");
        }
    }
}
