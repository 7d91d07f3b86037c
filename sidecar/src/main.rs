//! `understudy`: the sidecar, and its operator's commands.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use understudy::config::Directories;
use understudy::control::Control;
use understudy::credentials::Catalogue;
use understudy::secrets::{add, kinds};
use understudy::{
    check, environment_file, explain, harness_files, login, policy_files, quadlet, secrets, serve, status,
    trail,
};
use understudy_control::{Decide, Effect, Lasting, Reply, Request};
use understudy_harnesses::Harnesses;

/// Lets AI coding agents run unattended in Podman containers without giving them a real credential.
///
/// `serve` is the sidecar. The other commands are for its operator; run them in the sidecar's container:
///
///     podman exec understudy /understudy status
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
    Check(Directories),
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
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List secrets: where each comes from and may go, who holds its stand-in, what was done with it
    Secrets(SecretsArguments),
    /// Accounts: logins that the sidecar keeps and renews
    #[command(subcommand)]
    Login(login::Command),
    /// Let containers that run reach a host, beside what policies say; within both ceilings
    ///
    /// The decision is kept in the state volume, is listed by `status`, and is taken back by `withdraw`.
    Allow(DecideArguments),
    /// Keep containers that run from a host, whatever policies say
    Deny(DecideArguments),
    /// Take back what `allow` or `deny` decided
    Withdraw {
        #[command(flatten)]
        control: Control,
        /// As `status` lists it
        number: u64,
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
    /// Print counts in the text format of Prometheus
    Metrics(Control),
    /// Print a policy of what a container was refused, or was let through without a rule
    Learn {
        #[command(flatten)]
        control: Control,
        /// Its name, or the beginning of its id
        container: String,
    },
    /// End a container's connections and grants at once, and keep it from getting new ones, also when it is started again
    Revoke {
        #[command(flatten)]
        control: Control,
        /// Its name, its id, or the beginning of its id
        #[arg(required_unless_present = "all")]
        container: Option<String>,
        /// Every container that the sidecar knows now; one that is made later is another
        #[arg(long, conflicts_with = "container")]
        all: bool,
    },
    /// Exit with 0 if the sidecar answers; for HEALTHCHECK
    Health(Control),
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
    /// Print JSON
    #[arg(long)]
    json: bool,
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
}

#[derive(Debug, clap::Args)]
struct ConfigDirectory {
    /// Configuration: secrets.toml, catalogue/, harnesses/
    #[arg(long, value_name = "DIR", default_value = "/etc/understudy")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct DecideArguments {
    #[command(flatten)]
    control: Control,
    /// A host, or `*.HOST` for those below it; with `:PORT` (without: 443 is allowed, every port denied)
    host: String,
    /// For this container, as long as it exists: its name, its id, or the beginning of its id
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// For a time, as `10m`, `2h` or `1d`
    #[arg(long = "for", value_name = "TIME", value_parser = trail::filter::seconds)]
    time: Option<u64>,
    /// Until it is taken back
    #[arg(long, conflicts_with = "time")]
    always: bool,
    /// For the requests that wait for an answer now, and no others
    #[arg(long, conflicts_with_all = ["time", "always"])]
    once: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments.directories, Duration::from_secs(arguments.drain))
            .map(|()| ExitCode::SUCCESS),
        Command::Check(directories) => Ok(check::run(&directories)),
        Command::Explain(arguments) => {
            let control = Control::of(&arguments.directories);
            explain::run(&arguments, &|request| control.call(request))
        }
        Command::Env(arguments) => environment_file::run(&arguments),
        Command::Quadlet(command) => quadlet::run(&command),
        Command::Policy(command) => policy_files::run(&command),
        Command::Harness(command) => harness_files::run(&command),
        Command::Status { control, json } => print_status(&control, json),
        Command::Secrets(arguments) => print_secrets(&arguments),
        Command::Login(command) => login::run(&command).map(|told| {
            print!("{told}");
            ExitCode::SUCCESS
        }),
        Command::Allow(arguments) => decide(&arguments, Effect::Allow),
        Command::Deny(arguments) => decide(&arguments, Effect::Deny),
        Command::Withdraw { control, number } => control.call(Request::Withdraw { number }).map(|reply| {
            if let Reply::Decided(decision) = reply {
                println!("taken back: {}", status::decided(&decision));
            }
            ExitCode::SUCCESS
        }),
        Command::Log { control, arguments } => {
            trail::log(&arguments, &|request| control.call(request)).map(|()| ExitCode::SUCCESS)
        }
        Command::Watch { control, arguments } => {
            trail::watch::run(&arguments, &|request| control.call(request)).map(|()| ExitCode::SUCCESS)
        }
        Command::Metrics(control) => control.call(Request::Metrics).map(|reply| {
            if let Reply::Metrics(text) = reply {
                print!("{text}");
            }
            ExitCode::SUCCESS
        }),
        Command::Learn { control, container } => {
            trail::learn::run(&container, &|request| control.call(request)).map(|()| ExitCode::SUCCESS)
        }
        Command::Revoke { control, container, .. } => {
            control.call(Request::Revoke { container }).map(|reply| {
                if let Reply::Revoked(labels) = reply {
                    labels.iter().for_each(|label| println!("revoked: {label}"));
                }
                ExitCode::SUCCESS
            })
        }
        Command::Health(control) => control.call(Request::Status).map(|_| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("understudy: {error:#}");
        ExitCode::FAILURE
    })
}

fn print_status(control: &Control, json: bool) -> Result<ExitCode> {
    let Reply::Status(found) = control.call(Request::Status)? else {
        bail!("the sidecar answered another question");
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{}", status::table(&found));
    }
    Ok(ExitCode::SUCCESS)
}

fn decide(arguments: &DecideArguments, effect: Effect) -> Result<ExitCode> {
    let lasting = match arguments {
        DecideArguments { once: true, .. } => Lasting::Once,
        DecideArguments { time: Some(seconds), .. } => Lasting::Seconds(*seconds),
        DecideArguments { always: true, .. } => Lasting::Always,
        _ => Lasting::Container,
    };
    let (host, container) = (arguments.host.clone(), arguments.container.clone());
    match arguments.control.call(Request::Decide(Decide { effect, host, container, lasting }))? {
        Reply::Decided(decision) if arguments.json => println!("{}", serde_json::to_string(&decision)?),
        Reply::Decided(decision) => println!("{}", status::decided(&decision)),
        _ => {}
    }
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
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        print!("{}", secrets::text(&found, u64::try_from(now.as_millis()).unwrap_or(u64::MAX)));
    }
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
    print!("{}", add::run(&config.join("secrets.toml"), &wanted, &catalogue, &harnesses)?);
    Ok(ExitCode::SUCCESS)
}

fn print_kinds(arguments: &KindsArguments) -> Result<ExitCode> {
    let catalogue = Catalogue::load(&arguments.config.config.join("catalogue"))?;
    if arguments.unconfirmed {
        for line in catalogue.unconfirmed() {
            println!("{line}");
        }
    } else if let Some(name) = &arguments.kind {
        print!("{}", kinds::details(&catalogue, catalogue.kind(name)?));
    } else {
        print!("{}", kinds::table(&catalogue));
    }
    Ok(ExitCode::SUCCESS)
}
