//! `make bench` (see the library's `bench`), and the programs that it starts in containers.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use understudy_integration_tests::bench;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// An origin for uploads.
    Sink {
        /// Where `leaf.crt` and `leaf.key` are.
        directory: PathBuf,
    },
    /// A plain TCP relay to the origin.
    Relay,
    /// Keeps connections open until stdin ends.
    Hold { authority: PathBuf, connections: usize },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Option<Command>) -> Result<()> {
    match command {
        None => bench::run(),
        Some(Command::Hold { authority, connections }) => bench::hold(&authority, connections),
        Some(Command::Relay) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(bench::relay::serve())
        }
        Some(Command::Sink { directory }) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(bench::sink::serve(&directory))
        }
    }
}
