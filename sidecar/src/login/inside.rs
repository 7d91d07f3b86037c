//! `understudy login arm` and what follows it: a login inside of a container, which the operator lets happen and confirms.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use understudy_control::{
    ArmLogin, ArmedStatus, Decide, Effect, Lasting, LoginKept, LoginMade, Reply, Request,
};
use understudy_harnesses::{Harnesses, Purpose};

use crate::control::Control;
use crate::output::Output;
use crate::places;
use crate::trail::filter;

const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct Arm {
    #[command(flatten)]
    control: Control,
    /// Its name, its id, or the beginning of its id
    container: String,
    /// For how long a login may be made, as `10m`
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = filter::seconds)]
    time: u64,
    /// What the account is to be called [default: as its format, such as `codex`]
    #[arg(long = "as", value_name = "NAME")]
    account: Option<String>,
    /// Do not let the container reach the hosts that its harness logs in at; policy has to
    #[arg(long)]
    no_hosts: bool,
    /// Do not wait for the login to ask about it; `login confirm` answers
    #[arg(long)]
    no_wait: bool,
    /// Configuration: harnesses/ [default: ~/.config/understudy if it is there, else /etc/understudy]
    #[arg(long, value_name = "DIR", default_value_os_t = places::configuration(), hide_default_value = true)]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Armed {
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub struct Confirm {
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    output: Output,
}

/// The login, and what the text says beside.
#[derive(Debug, Serialize)]
struct Confirmed {
    #[serde(flatten)]
    kept: LoginKept,
    /// For a person; empty if nothing is.
    left: String,
}

#[derive(Debug, clap::Args)]
pub struct Answer {
    #[command(flatten)]
    control: Control,
    /// Its name, its id, or the beginning of its id
    container: String,
}

/// Waits for the login on a terminal, unless told not to.
pub(super) fn arm(arguments: &Arm) -> Result<String> {
    let Arm { control, container, time, account, .. } = arguments;
    let arm = ArmLogin { container: container.clone(), account: account.clone(), seconds: *time };
    control.call(Request::ArmLogin(arm))?;
    let mut told = format!("container `{container}` may log in once, for {time} s\n");
    if !arguments.no_hosts {
        told.push_str(&let_reach(arguments)?);
    }
    let stdin = std::io::stdin();
    if arguments.no_wait || !stdin.is_terminal() {
        told.push_str(&format!(
            "log in inside of it now; its program waits until you have seen whose account it is:\n  understudy login armed\n  understudy login confirm {container}\n"
        ));
        return Ok(told);
    }
    println!("{told}log in inside of it now; this waits (Ctrl-C leaves it armed)");
    std::io::stdout().flush()?;
    let mut failed = None;
    loop {
        let Some(armed) = armed_one(control, container)? else {
            bail!("the time is over, or somebody else answered");
        };
        if let Some(made) = armed.made {
            print!("{}", question(&made));
            std::io::stdout().flush()?;
            let mut answer = String::new();
            stdin.lock().read_line(&mut answer)?;
            return match answer.trim() {
                "y" | "yes" => keep(control, container).map(|kept| self::told(&kept)),
                _ => decline_one(control, container),
            };
        }
        if armed.failed.is_some() && armed.failed != failed {
            eprintln!("understudy: {}", armed.failed.as_deref().unwrap_or_default());
            failed = armed.failed;
        }
        std::thread::sleep(PAUSE);
    }
}

pub(super) fn armed(arguments: &Armed) -> Result<String> {
    let armed = list(&arguments.control)?;
    arguments.output.form(&armed[..], |armed| match armed {
        [] => "no container is armed for a login\n".to_owned(),
        armed => armed.iter().map(line).collect(),
    })
}

pub(super) fn confirm(arguments: &Confirm) -> Result<String> {
    let Confirm { answer, output } = arguments;
    output.form(&keep(&answer.control, &answer.container)?, told)
}

pub(super) fn decline(arguments: &Answer) -> Result<String> {
    decline_one(&arguments.control, &arguments.container)
}

fn keep(control: &Control, container: &str) -> Result<Confirmed> {
    match control.call(Request::AnswerLogin { container: container.to_owned(), keep: true })? {
        Reply::LoginKept(kept) => Ok(Confirmed::of(kept)),
        _ => bail!("the sidecar answered another question"),
    }
}

fn decline_one(control: &Control, container: &str) -> Result<String> {
    control.call(Request::AnswerLogin { container: container.to_owned(), keep: false })?;
    Ok("nothing was stored, and the container is not armed any more; what the provider gave is forgotten: end that login at the provider if it is not yours\n".to_owned())
}

/// As long as the container is armed, and within ceilings: a host that may not be reached is told.
fn let_reach(arguments: &Arm) -> Result<String> {
    let Reply::Status(status) = arguments.control.call(Request::Status)? else {
        bail!("the sidecar answered another question");
    };
    let Some(armed) = armed_one(&arguments.control, &arguments.container)? else { return Ok(String::new()) };
    let found = status.containers.iter().find(|container| container.id == armed.container_id);
    let names = found.map(|container| container.harness.clone()).unwrap_or_default();
    let harnesses = Harnesses::load(Some(&arguments.config.join("harnesses")));
    let mut told = String::new();
    for harness in names.split(',').filter_map(|name| harnesses.harness(name).ok()) {
        for host in harness.hosts.of(Purpose::Login) {
            let host = host.0.to_string();
            let decide = Decide {
                effect: Effect::Allow,
                host: host.clone(),
                container: Some(armed.container_id.to_string()),
                lasting: Lasting::Seconds(arguments.time),
            };
            told.push_str(&match arguments.control.call(Request::Decide(decide)) {
                Ok(_) => format!("  it may reach {host} meanwhile\n"),
                Err(error) => format!("  it may not reach {host}: {error:#}\n"),
            });
        }
    }
    Ok(told)
}

fn list(control: &Control) -> Result<Vec<ArmedStatus>> {
    match control.call(Request::ArmedLogins)? {
        Reply::Armed(armed) => Ok(armed),
        _ => bail!("the sidecar answered another question"),
    }
}

fn armed_one(control: &Control, container: &str) -> Result<Option<ArmedStatus>> {
    let all = list(control)?;
    Ok(all.into_iter().find(|one| {
        one.container == container
            || (!container.is_empty() && one.container_id.as_str().starts_with(container))
    }))
}

fn whose(made: &LoginMade) -> String {
    let LoginMade { account, kind, whose } = made;
    // A provider may say anything.
    let plain = |whose: &String| whose.chars().filter(|c| !c.is_control()).take(120).collect::<String>();
    let whose =
        whose.as_ref().map(plain).unwrap_or_else(|| "somebody whom the provider did not name".to_owned());
    format!("`{account}` ({kind}) of {whose}")
}

fn question(made: &LoginMade) -> String {
    format!(
        "its program logged in to account {}\nKeep it for the sidecar, and give the program stand-ins? [y/N] ",
        whose(made)
    )
}

fn line(armed: &ArmedStatus) -> String {
    let ArmedStatus { container, left, made, failed, .. } = armed;
    match (made, failed) {
        (Some(made), _) => format!(
            "{container}: logged in to account {}; {left} s left: understudy login confirm {container}, or decline\n",
            whose(made)
        ),
        (None, Some(why)) => format!("{container}: armed for {left} s more; the last try failed: {why}\n"),
        (None, None) => format!("{container}: armed for {left} s more\n"),
    }
}

impl Confirmed {
    fn of(kept: LoginKept) -> Self {
        let left = left(&kept);
        Self { kept, left }
    }
}

fn told(confirmed: &Confirmed) -> String {
    let Confirmed { kept: LoginKept { login, granted, .. }, left } = confirmed;
    let mut text = format!("account {} is stored\n", whose(login));
    if !granted.is_empty() {
        text.push_str(&format!("the container has it as secret `{}`\n", granted.join("`, `")));
    }
    text + left
}

/// What is left to do.
fn left(kept: &LoginKept) -> String {
    let LoginKept { login, secrets, granted, told } = kept;
    let mut text = String::new();
    if secrets.is_empty() {
        text.push_str(&super::declare(&login.account, &login.kind));
        text.push_str("then start the container again: it has its stand-ins, and no grant yet\n");
    } else if granted.is_empty() {
        let names = secrets.join("`, `");
        text.push_str(&format!("secret `{names}` is it, and is not granted to this container's harness\n"));
    }
    if !told {
        text.push_str("its program did not wait for the answer: start it again\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(whose: Option<&str>) -> LoginMade {
        let whose = whose.map(str::to_owned);
        LoginMade { account: "work".to_owned(), kind: "chatgpt-account".to_owned(), whose }
    }

    #[test]
    fn what_a_provider_says_of_itself_cannot_write_on_a_terminal() {
        let asked = question(&made(Some("me@example.com\u{1b}[2J\r\nyou")));
        assert!(asked.contains("`work` (chatgpt-account) of me@example.com[2Jyou\n"), "{asked:?}");
        assert!(question(&made(None)).contains("did not name"));
    }

    #[test]
    fn what_is_left_to_do_is_told() {
        let kept = |secrets: &[&str], granted: &[&str], told| LoginKept {
            login: made(Some("me@example.com")),
            secrets: secrets.iter().map(ToString::to_string).collect(),
            granted: granted.iter().map(ToString::to_string).collect(),
            told,
        };
        for (kept, said) in [
            (kept(&[], &[], true), "account = \"work\""),
            (kept(&["a"], &[], true), "not granted to this container's harness"),
            (kept(&["a"], &["a"], true), "has it as secret `a`"),
            (kept(&["a"], &["a"], false), "start it again"),
        ] {
            let confirmed = Confirmed::of(kept);
            assert!(told(&confirmed).contains(said), "{}", told(&confirmed));
        }
        let document = serde_json::to_value(Confirmed::of(kept(&["a"], &["a"], true))).unwrap();
        let login =
            serde_json::json!({"account": "work", "kind": "chatgpt-account", "whose": "me@example.com"});
        let expected =
            serde_json::json!({"login": login, "secrets": ["a"], "granted": ["a"], "told": true, "left": ""});
        assert_eq!(document, expected);
    }
}
