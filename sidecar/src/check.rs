//! `understudy check`: reads the configuration as `serve` would, and says what is wrong with it.

use std::process::ExitCode;

use crate::config::Directories;
use crate::configuration::{Live, Remember};
use crate::credentials::{Secret, Surroundings};

/// Prints one line for each part or problem; success only without problems (warnings are none).
pub fn run(directories: &Directories) -> ExitCode {
    let configuration = match Live::load(directories, Surroundings::of_this_process(), Remember::No) {
        Ok(live) => live.current(),
        Err(error) => {
            eprintln!("understudy: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let problems = configuration.problems();
    for problem in &problems {
        eprintln!("understudy: {problem}");
    }
    for warning in configuration.warnings() {
        eprintln!("understudy: warning: {warning}");
    }
    if !problems.is_empty() {
        return ExitCode::FAILURE;
    }
    println!("configuration in {} is good", directories.config.display());
    println!(
        "  secrets:   {}",
        configuration.vault.secrets().iter().map(Secret::name).collect::<Vec<_>>().join(", ")
    );
    println!("  policies:  {}", configuration.policies.names().collect::<Vec<_>>().join(", "));
    println!("  harnesses: {}", configuration.harnesses.names().collect::<Vec<_>>().join(", "));
    let unconfirmed = configuration.catalogue.unconfirmed().len();
    let (kinds, providers) = configuration.catalogue.size();
    println!("  catalogue: {kinds} kinds of {providers} providers");
    println!(
        "  {unconfirmed} of its details are not confirmed by the providers; `understudy secrets kinds --unconfirmed` lists them"
    );
    ExitCode::SUCCESS
}
