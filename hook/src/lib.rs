//! `understudy-hook`: the OCI hook of Understudy, and the commands that install and check it. A program, not a library:
//! nothing is public but its `main`, what its manual is made from, and what is fuzzed.

mod child;
mod create_runtime;
mod doctor;
#[doc(hidden)]
pub mod fuzzed;
mod generation;
mod install;
mod installation;
mod managed;
mod mounted;
mod network;
mod place;
mod poststop;
mod precreate;
mod process;
mod reap;
mod reattach;
mod record;
mod refusals;
mod refuse;
mod shared;
mod sidecar;
#[cfg(test)]
mod stages;
mod state;
#[cfg(test)]
mod testing;
mod trust;
mod why;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// OCI hook that gives agent containers stand-ins and a policed way out.
///
/// Podman calls the stages; people call `install`, `doctor`, `why`, `scan` and `uninstall`.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the hook files where this Podman reads them
    Install(install::Arguments),
    /// Take away what `install` wrote, and restore what was there
    Uninstall(install::UninstallArguments),
    /// Check everything that could silently disable the protection
    Doctor(doctor::Arguments),
    /// Show why containers were refused
    Why(why::Arguments),
    /// Look for what an agent may have left in a directory for programs of the host; runs none of them
    Scan(workspace::scan::Arguments),
    /// Hook stage: changes the configuration on stdin
    #[command(hide = true)]
    Precreate(StageArguments),
    /// Hook stage of every container: refuses those that must carry an annotation, and do not
    #[command(hide = true)]
    Required(StageArguments),
    /// Hook stage: redirects the network namespace and hands its sockets to the sidecar
    #[command(hide = true)]
    CreateRuntime(StageArguments),
    /// Hook stage: places files, inside the container
    #[command(hide = true)]
    Place(place::Arguments),
    /// Started by a stage: keeps a container's guards where they are while the host replaces files
    #[command(hide = true)]
    Watch(StageArguments),
    /// Hook stage: tells the sidecar that a container is gone
    #[command(hide = true)]
    Poststop(StageArguments),
    /// Hook stage: gives a new sidecar every live container
    #[command(hide = true)]
    Reattach(reattach::Arguments),
    /// What a refused container runs instead of its process
    #[command(hide = true)]
    Refuse(refuse::Arguments),
}

/// What the hook files give to every stage.
#[derive(Debug, clap::Args)]
struct StageArguments {
    /// The installation's state directory
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Ignored: words for whoever reads this command line in an error of Podman's
    #[arg(trailing_var_arg = true, hide = true)]
    hint: Vec<String>,
}

/// All commands and their arguments, for the manual and for completions.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command or the hook stage that the arguments of the process name.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Install(arguments) => install::install(&arguments),
        Command::Uninstall(arguments) => install::uninstall(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::Scan(arguments) => workspace::scan::run(&arguments),
        Command::Precreate(stage) => precreate::run(&stage.state),
        Command::Required(stage) => precreate::required::run(&stage.state),
        Command::CreateRuntime(stage) => create_runtime::run(&stage.state),
        Command::Place(arguments) => place::run(&arguments),
        Command::Watch(stage) => workspace::watch::run(&stage.state),
        Command::Poststop(stage) => poststop::run(&stage.state),
        Command::Reattach(arguments) => reattach::run(&arguments),
        Command::Refuse(arguments) => Ok(refuse::run(&arguments)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("understudy-hook: {error:#}");
        ExitCode::FAILURE
    })
}
