//! The program `understudy`: the sidecar, and its operator's commands.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::config::Directories;
use crate::control::Control;
use crate::credentials::Catalogue;
use crate::operator::decisions::now;
use crate::output::Output;
use crate::secrets::{add, kinds};
use crate::{
    check, environment_file, explain, harness_files, login, orders, places, policy_files, quadlet, secrets,
    serve, status, trail,
};
use anyhow::{Result, anyhow, bail};
use clap::{CommandFactory as _, Parser, Subcommand};
use understudy_control::{Effect, Reply, Request};
use understudy_harnesses::Harnesses;

/// Lets AI coding agents run unattended in Podman containers without giving them a real credential.
///
/// `serve` is the sidecar. The other commands are for its operator, in the sidecar's container (`podman exec understudy
/// /understudy status`) or on the host, where `make install` and the package put this program, too.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the sidecar until SIGTERM
    Serve(ServeArguments),
    /// Read the whole configuration and say what is wrong with it, with file and line
    Check(check::Arguments),
    /// Say what policy makes of a request, by which rule, and what would change it; of files, or of a container that runs
    Explain(explain::Arguments),
    /// Print what a container of a harness is given in its environment, for --env-file and EnvironmentFile=
    Env(environment_file::Arguments),
    /// Print systemd units for Quadlet, filled in
    #[command(subcommand)]
    Quadlet(quadlet::Command),
    /// The policies that there are
    #[command(subcommand)]
    Policy(policy_files::Command),
    /// The harnesses that there are, and what each sets, allows and refuses
    #[command(subcommand)]
    Harness(harness_files::Command),
    /// List containers, their policies, grants and counts
    Status {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        output: Output,
    },
    /// List secrets: where each comes from and may go, who holds its stand-in, what was done with it
    Secrets(SecretsArguments),
    /// Accounts: logins that the sidecar keeps and renews
    #[command(subcommand)]
    Login(login::Command),
    /// Let containers that run reach a host, beside what policies say; within both ceilings
    ///
    /// The decision is kept in the state volume, is listed by `status`, and is taken back by `withdraw`.
    Allow {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: orders::DecideArguments,
    },
    /// Keep containers that run from a host, whatever policies say
    Deny {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: orders::DecideArguments,
    },
    /// Take back what `allow` or `deny` decided
    Withdraw {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: orders::WithdrawArguments,
    },
    /// The last audit lines, by container, host, time
    Log {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: trail::LogArguments,
    },
    /// Each audit line as it comes; on a terminal, a key answers what containers in mode `ask` ask
    Watch {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: trail::watch::WatchArguments,
    },
    /// Print counts in the text format of Prometheus (OpenMetrics), which is the form for programs
    Metrics(Control),
    /// Print a policy of what a container was refused, or was let through without a rule
    Learn {
        #[command(flatten)]
        control: Control,
        /// Its name, or the beginning of its id
        container: String,
        #[command(flatten)]
        from: trail::From,
        #[command(flatten)]
        output: Output,
    },
    /// End a container's connections and grants at once, and keep it from getting new ones, also when it is started again
    Revoke {
        #[command(flatten)]
        control: Control,
        #[command(flatten)]
        arguments: orders::RevokeArguments,
    },
    /// Replace what containers are started with
    #[command(subcommand)]
    Rotate(RotateCommand),
    /// Say that the state volume holds what is to hold, after it was lost or put back from a backup
    ///
    /// `status` and the log say when that is needed: no container is given anything before. What was decided and is not in
    /// the volume (see `status`) is to be decided again first. What was revoked stays revoked.
    AcceptState(Control),
    /// Exit with 0 if the sidecar answers; for HEALTHCHECK
    Health(Control),
}

#[derive(Debug, Subcommand)]
enum RotateCommand {
    /// The certificate authority: containers that run keep trusting the one before, until they end
    ///
    /// It is done half a year before it ends, too, without being told.
    Ca(Control),
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    #[command(flatten)]
    directories: Directories,
    /// Seconds that open connections get to end after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct SecretsArguments {
    #[command(subcommand)]
    command: Option<SecretsCommand>,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum SecretsCommand {
    /// Declare a secret of a known kind in secrets.toml, and say what is left to do
    ///
    /// The value is never asked for: as an argument it would be in the shell's history and in the list of processes.
    Add(AddArguments),
    /// List the kinds that `--like` and `like` in secrets.toml can name
    Kinds(KindsArguments),
}

#[derive(Debug, clap::Args)]
struct AddArguments {
    /// What you call it
    name: String,
    /// Its kind, as `github-pat`
    #[arg(long, value_name = "KIND")]
    like: String,
    /// The absolute path of the file that will hold the value
    #[arg(long, value_name = "PATH", conflicts_with = "podman_secret")]
    file: Option<PathBuf>,
    /// The Podman secret that will hold the value [default: the name]
    #[arg(long, value_name = "NAME")]
    podman_secret: Option<String>,
    /// Where it may be sent, instead of the kind's own hosts; can be repeated
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Who may have it; can be repeated [default: the harnesses of which it is a login, else `generic`]
    #[arg(long, value_name = "HARNESS")]
    grant_to: Vec<String>,
    #[command(flatten)]
    config: ConfigDirectory,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct KindsArguments {
    /// All that is known of this one
    kind: Option<String>,
    /// What the providers' documentation was not seen to say
    #[arg(long, conflicts_with = "kind")]
    unconfirmed: bool,
    #[command(flatten)]
    config: ConfigDirectory,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct ConfigDirectory {
    /// Configuration: secrets.toml, catalogue/, harnesses/ [default: ~/.config/understudy if it is there, else /etc/understudy]
    #[arg(long, value_name = "DIR", default_value_os_t = places::configuration(), hide_default_value = true)]
    config: PathBuf,
}

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments.directories, Duration::from_secs(arguments.drain))
            .map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check::run(&arguments),
        Command::Explain(arguments) => {
            let control = Control::of(&arguments.directories);
            explain::run(&arguments, &|request| control.call(request))
        }
        Command::Env(arguments) => environment_file::run(&arguments),
        Command::Quadlet(command) => quadlet::run(&command),
        Command::Policy(command) => policy_files::run(&command),
        Command::Harness(command) => harness_files::run(&command),
        Command::Status { control, output } => print_status(&control, output),
        Command::Secrets(arguments) => print_secrets(&arguments),
        Command::Login(command) => login::run(&command).map(|told| {
            print!("{told}");
            ExitCode::SUCCESS
        }),
        Command::Allow { control, arguments } => {
            orders::decide(&arguments, Effect::Allow, &|request| control.call(request))
        }
        Command::Deny { control, arguments } => {
            orders::decide(&arguments, Effect::Deny, &|request| control.call(request))
        }
        Command::Withdraw { control, arguments } => {
            orders::withdraw(&arguments, &|request| control.call(request))
        }
        Command::Log { control, arguments } => {
            trail::log(&arguments, &|request| control.call(request)).map(|()| ExitCode::SUCCESS)
        }
        Command::Watch { control, arguments } => {
            trail::watch::run(&arguments, &control).map(|()| ExitCode::SUCCESS)
        }
        Command::Metrics(control) => control.call(Request::Metrics).map(|reply| {
            if let Reply::Metrics(text) = reply {
                print!("{text}");
            }
            ExitCode::SUCCESS
        }),
        Command::Learn { control, container, from, output } => {
            trail::learn::run(&container, &from, output, &|request| control.call(request))
                .map(|()| ExitCode::SUCCESS)
        }
        Command::Revoke { control, arguments } => {
            orders::revoke(&arguments, &|request| control.call(request))
        }
        Command::Rotate(RotateCommand::Ca(control)) => control.call(Request::RotateAuthority).map(|_| {
            println!(
                "containers that are started from now on trust a new authority; those that run keep theirs"
            );
            ExitCode::SUCCESS
        }),
        Command::AcceptState(control) => control.call(Request::AcceptState).map(|_| {
            println!("accepted; start the containers again, or the sidecar: it gives back those that it can");
            ExitCode::SUCCESS
        }),
        Command::Health(control) => control.call(Request::Status).map(|_| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("understudy: {error:#}");
        ExitCode::FAILURE
    })
}

/// All commands and their arguments, for the manual and for completions.
pub fn command() -> clap::Command {
    Arguments::command()
}

fn print_status(control: &Control, output: Output) -> Result<ExitCode> {
    let Reply::Status(found) = control.call(Request::Status)? else {
        bail!("the sidecar answered another question");
    };
    output.print(&found, status::table)?;
    Ok(ExitCode::SUCCESS)
}

fn print_secrets(arguments: &SecretsArguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(SecretsCommand::Add(arguments)) => return add_secret(arguments),
        Some(SecretsCommand::Kinds(arguments)) => return print_kinds(arguments),
        None => {}
    }
    let Reply::Secrets(found) = arguments.control.call(Request::Secrets)? else {
        bail!("the sidecar answered another question");
    };
    arguments.output.print(&found, |found| secrets::text(found, now()))?;
    Ok(ExitCode::SUCCESS)
}

fn add_secret(arguments: &AddArguments) -> Result<ExitCode> {
    let config = &arguments.config.config;
    let source = match (&arguments.file, &arguments.podman_secret) {
        (Some(path), _) => add::Source::File(path.clone()),
        (None, Some(name)) => add::Source::PodmanSecret(name.clone()),
        (None, None) => add::Source::PodmanSecretOfThatName,
    };
    let wanted = add::Wanted {
        name: arguments.name.clone(),
        like: arguments.like.clone(),
        source,
        hosts: arguments.hosts.clone(),
        grant_to: arguments.grant_to.clone(),
    };
    let catalogue = Catalogue::load(&config.join("catalogue"))?;
    let harnesses = Harnesses::load(Some(&config.join("harnesses")));
    let added = add::run(&config.join("secrets.toml"), &wanted, &catalogue, &harnesses)?;
    arguments.output.print(&added, add::Added::text)?;
    Ok(ExitCode::SUCCESS)
}

fn print_kinds(arguments: &KindsArguments) -> Result<ExitCode> {
    let catalogue = Catalogue::load(&arguments.config.config.join("catalogue"))?;
    let output = arguments.output;
    if arguments.unconfirmed {
        output.print(&catalogue.unconfirmed(), |lines| {
            lines.iter().map(|line| format!("{line}\n")).collect()
        })?;
    } else if let Some(name) = &arguments.kind {
        let kind = catalogue.kind(name).map_err(|error| match kinds::by_hand(name) {
            Some(told) => anyhow!(told),
            None => error.into(),
        })?;
        output.print(&kinds::detailed(&catalogue, kind), |_| kinds::details(&catalogue, kind))?;
    } else {
        output.print(&kinds::listed(&catalogue), |_| kinds::table(&catalogue))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What prints nothing, or what is a file or a form for programs already, or is for a person to follow.
    const WITHOUT: [&str; 12] = [
        "serve",
        "env",
        "quadlet sidecar",
        "quadlet agent",
        "policy new",
        "metrics",
        "health",
        "accept-state",
        "rotate ca",
        "login reseal",
        "login arm",
        "login decline",
    ];

    #[test]
    fn every_command_that_tells_something_has_json_by_the_same_switch() {
        fn leaves(command: &clap::Command, before: &str, found: &mut Vec<(String, Option<String>)>) {
            for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
                let name = format!("{before}{}", command.get_name());
                let json = command.get_arguments().find(|argument| argument.get_id() == "json");
                let help = json.and_then(|json| json.get_help()).map(ToString::to_string);
                if !command.has_subcommands() || help.is_some() {
                    found.push((name.clone(), help));
                }
                leaves(command, &format!("{name} "), found);
            }
        }
        let mut found = Vec::new();
        leaves(&Arguments::command(), "", &mut found);
        let without: Vec<&str> =
            found.iter().filter(|(_, help)| help.is_none()).map(|(name, _)| name.as_str()).collect();
        for name in &without {
            assert!(WITHOUT.contains(name), "{name} has no --json");
        }
        assert_eq!(without.len(), WITHOUT.len(), "{without:?}");
        // These are audit lines: JSON lines as they are.
        for (name, help) in found.iter().filter(|(name, _)| !["log", "watch"].contains(&name.as_str())) {
            assert!(help.as_ref().is_none_or(|help| help == "Print JSON"), "{name}: {help:?}");
        }
    }
}
