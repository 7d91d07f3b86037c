//! `understudy check`: reads the configuration as `serve` would, and says what is wrong with it.

use std::process::ExitCode;

use crate::config::Directories;
use crate::configuration::Configuration;
use crate::credentials::Secret;

/// Prints one line for each part or problem; success only without problems.
pub fn run(directories: &Directories) -> ExitCode {
    let configuration = match Configuration::load(directories) {
        Ok(configuration) => configuration,
        Err(error) => {
            eprintln!("understudy: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let problems = configuration.problems();
    for problem in &problems {
        eprintln!("understudy: {problem}");
    }
    if !problems.is_empty() {
        return ExitCode::FAILURE;
    }
    for warning in configuration.policies.warnings() {
        eprintln!("understudy: warning: {warning}");
    }
    println!("configuration in {} is good", directories.config.display());
    println!(
        "  secrets:   {}",
        configuration.vault.secrets().iter().map(Secret::name).collect::<Vec<_>>().join(", ")
    );
    println!("  policies:  {}", configuration.policies.names().collect::<Vec<_>>().join(", "));
    println!("  harnesses: {}", configuration.harnesses.names().collect::<Vec<_>>().join(", "));
    ExitCode::SUCCESS
}
