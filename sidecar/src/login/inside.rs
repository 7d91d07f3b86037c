//! `understudy login arm` and what follows it: a login inside of a container, which the operator lets happen and confirms.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::termios::{QueueSelector, tcflush};
use serde::Serialize;
use understudy_control::{
    ArmLogin, ArmedStatus, ContainerId, ContainerStatus, Decide, Effect, Lasting, LoginKept, LoginMade,
    Reply, Request,
};
use understudy_harnesses::{Harnesses, Purpose};

use crate::control::Control;
use crate::output::Output;
use crate::places;
use crate::trail::filter;

const ANOTHER: &str = "the sidecar answered another question";
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
    /// Which login it is that you looked at, as `login armed` says
    code: String,
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
    let Reply::Armed(armed) = control.call(Request::ArmLogin(arm))? else { bail!(ANOTHER) };
    let Some(armed) = armed.into_iter().next() else { bail!(ANOTHER) };
    let mut told = format!("container `{container}` may log in once, for {time} s\n");
    if !arguments.no_hosts {
        told.push_str(&let_reach(arguments, &armed)?);
    }
    let stdin = std::io::stdin();
    if arguments.no_wait || !stdin.is_terminal() {
        told.push_str(&format!(
            "log in inside of it now; its program waits until you have seen whose account it is:\n  understudy login armed\n  understudy login confirm {container} CODE\n"
        ));
        return Ok(told);
    }
    println!("{told}log in inside of it now; this waits (Ctrl-C leaves it armed)");
    std::io::stdout().flush()?;
    let mut failed = None;
    loop {
        let Some(armed) = armed_one(control, &armed.container_id)? else {
            bail!("the time is over, or somebody else answered");
        };
        if let Some(made) = armed.made {
            // What was typed before there was a question is no answer to it.
            tcflush(&stdin, QueueSelector::IFlush)?;
            print!("{}", question(&made));
            std::io::stdout().flush()?;
            let mut answer = String::new();
            stdin.lock().read_line(&mut answer)?;
            return match answer.trim() {
                // To this one, whatever waits by now.
                "y" | "yes" => keep(control, container, &made.code).map(|kept| self::told(&kept)),
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
    let Confirm { answer, code, output } = arguments;
    output.form(&keep(&answer.control, &answer.container, code)?, told)
}

pub(super) fn decline(arguments: &Answer) -> Result<String> {
    decline_one(&arguments.control, &arguments.container)
}

fn keep(control: &Control, container: &str, code: &str) -> Result<Confirmed> {
    let (container, code) = (container.to_owned(), code.to_owned());
    match control.call(Request::AnswerLogin { container, keep: Some(code) })? {
        Reply::LoginKept(kept) => Ok(Confirmed::of(kept)),
        _ => bail!(ANOTHER),
    }
}

fn decline_one(control: &Control, container: &str) -> Result<String> {
    control.call(Request::AnswerLogin { container: container.to_owned(), keep: None })?;
    Ok("nothing was stored, and the container is not armed any more; what the provider gave is forgotten: end that login at the provider if it is not yours\n".to_owned())
}

/// As long as the container is armed, and within ceilings: a host that may not be reached is told.
fn let_reach(arguments: &Arm, armed: &ArmedStatus) -> Result<String> {
    let Reply::Status(status) = arguments.control.call(Request::Status)? else {
        bail!(ANOTHER);
    };
    let wanted = &arguments.container;
    let is_meant = |container: &&ContainerStatus| {
        let name = container.name.as_ref();
        container.id == armed.container_id
            || name == Some(wanted)
            || container.id.as_str().starts_with(wanted.as_str())
    };
    // Of a pod any will do: all have the same harness.
    let found = status.containers.iter().find(is_meant);
    let names = found.map(|container| container.harness.clone()).unwrap_or_default();
    let harnesses = Harnesses::load(Some(&arguments.config.join("harnesses")));
    let mut told = String::new();
    for harness in names.split(',').filter_map(|name| harnesses.harness(name).ok()) {
        for host in harness.hosts.of(Purpose::Login) {
            let host = host.0.to_string();
            let decide = Decide {
                effect: Effect::Allow,
                host: host.clone(),
                container: Some(wanted.clone()),
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
        _ => bail!(ANOTHER),
    }
}

/// By the id that the sidecar told: the container that was named may share another one's.
fn armed_one(control: &Control, id: &ContainerId) -> Result<Option<ArmedStatus>> {
    Ok(list(control)?.into_iter().find(|one| one.container_id == *id))
}

fn whose(made: &LoginMade) -> String {
    let LoginMade { account, kind, whose, .. } = made;
    let whose = whose.as_deref().unwrap_or("somebody whom the provider did not name");
    format!("`{account}` ({kind}) of {whose}")
}

fn question(made: &LoginMade) -> String {
    let whose = whose(made);
    match made.to_be_made {
        true => format!(
            "its program asks the provider to make the key of account {whose}\nLet it be made, keep it for the sidecar, and give the program a stand-in? [y/N] "
        ),
        false => format!(
            "its program logged in to account {whose}\nKeep it for the sidecar, and give the program stand-ins? [y/N] "
        ),
    }
}

fn line(armed: &ArmedStatus) -> String {
    let ArmedStatus { container, left, made, failed, .. } = armed;
    match (made, failed) {
        (Some(made), _) => {
            let what = if made.to_be_made { "asks for the key of" } else { "logged in to" };
            format!(
                "{container}: {what} account {}; {left} s left: understudy login confirm {container} {}, or decline\n",
                whose(made),
                made.code
            )
        }
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
    let becomes = if login.to_be_made { "made now, and then stored" } else { "stored" };
    let mut text = format!("account {} is {becomes}\n", whose(login));
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
        let (account, kind, whose) =
            ("work".to_owned(), "chatgpt-account".to_owned(), whose.map(str::to_owned));
        LoginMade { account, kind, whose, code: "c0de".to_owned(), to_be_made: false }
    }

    #[test]
    fn what_is_asked_is_what_a_yes_does() {
        assert!(
            question(&made(None)).contains("logged in to account `work` (chatgpt-account) of somebody whom")
        );
        let key = LoginMade { to_be_made: true, ..made(Some("me@example.com")) };
        assert!(
            question(&key).contains("to make the key of account `work` (chatgpt-account) of me@example.com")
        );
        let container_id = "a".repeat(64).parse().unwrap();
        let armed = ArmedStatus {
            container: "agent".to_owned(),
            container_id,
            account: None,
            left: 5,
            made: Some(key),
            failed: None,
        };
        let line = line(&armed);
        assert!(line.contains("asks for the key of") && line.contains("login confirm agent c0de,"), "{line}");
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
        let login = serde_json::json!({"account": "work", "kind": "chatgpt-account", "whose": "me@example.com", "code": "c0de", "to_be_made": false});
        let expected =
            serde_json::json!({"login": login, "secrets": ["a"], "granted": ["a"], "told": true, "left": ""});
        assert_eq!(document, expected);
    }
}
