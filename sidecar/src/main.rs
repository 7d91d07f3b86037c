//! `understudy`: the sidecar, and its operator's commands.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use understudy::config::Directories;
use understudy::{check, explain, policy_files, secrets, serve, status};
use understudy_control::{Client, ControlDirectory, Reply, Request};

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
    /// Say what policy makes of a request, by which rule, and what would change it; reads files only
    Explain(explain::Arguments),
    /// The policies that there are
    #[command(subcommand)]
    Policy(policy_files::Command),
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
    /// End a container's connections and grants at once, and keep it from getting new ones
    Revoke {
        #[command(flatten)]
        control: Control,
        /// Its name, its id, or the beginning of its id
        container: String,
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
struct SecretsArguments {
    #[command(flatten)]
    control: Control,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Control {
    /// The directory of the control socket
    #[arg(long, value_name = "DIR", default_value = "/run/understudy/control")]
    control: PathBuf,
}

impl Control {
    fn call(&self, request: Request) -> Result<Reply> {
        let client = Client::new(ControlDirectory::new(&self.control), Duration::from_secs(5));
        Ok(client.call(request, &[])?)
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments.directories, Duration::from_secs(arguments.drain))
            .map(|()| ExitCode::SUCCESS),
        Command::Check(directories) => Ok(check::run(&directories)),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Policy(command) => policy_files::run(&command),
        Command::Status { control, json } => print_status(&control, json),
        Command::Secrets(arguments) => print_secrets(&arguments),
        Command::Revoke { control, container } => {
            control.call(Request::Revoke { container }).map(|_| ExitCode::SUCCESS)
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

fn print_secrets(arguments: &SecretsArguments) -> Result<ExitCode> {
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
