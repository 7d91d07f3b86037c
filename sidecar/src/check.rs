//! `understudy check`: reads the configuration as `serve` would, and says what is wrong with it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::config::Directories;
use crate::configuration::{Configuration, Live, Remember};
use crate::credentials::{Secret, Surroundings};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    output: Output,
}

/// What was found. Names, never a value.
#[derive(Debug, Default, Serialize)]
struct Checked {
    good: bool,
    /// The directory that was read.
    configuration: String,
    /// One line each. A sidecar runs on with what is left, unless it is the first.
    problems: Vec<String>,
    /// One line each, for what works and should be looked at.
    warnings: Vec<String>,
    secrets: Vec<String>,
    policies: Vec<String>,
    harnesses: Vec<String>,
    catalogue: Catalogued,
}

#[derive(Debug, Default, Serialize)]
struct Catalogued {
    kinds: usize,
    providers: usize,
    /// Details that the providers' documentation was not seen to say.
    unconfirmed: usize,
}

/// Prints one line for each part; problems and warnings go to standard error. Success only without problems.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { directories, output } = arguments;
    let checked = match Live::load(directories, Surroundings::of_this_process(), Remember::Nothing) {
        Ok(live) => Checked::of(directories, &live.current()),
        Err(error) => Checked { problems: vec![format!("{error:#}")], ..Checked::nothing(directories) },
    };
    for problem in &checked.problems {
        eprintln!("understudy: {problem}");
    }
    for warning in &checked.warnings {
        eprintln!("understudy: warning: {warning}");
    }
    output.print(&checked, text)?;
    Ok(if checked.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Checked {
    fn nothing(directories: &Directories) -> Self {
        Self { configuration: directories.config.display().to_string(), ..Self::default() }
    }

    fn of(directories: &Directories, configuration: &Configuration) -> Self {
        let problems = configuration.problems();
        let (kinds, providers) = configuration.catalogue.size();
        let unconfirmed = configuration.catalogue.unconfirmed().len();
        Self {
            good: problems.is_empty(),
            problems,
            warnings: configuration.warnings(),
            secrets: configuration.vault.secrets().iter().map(Secret::name).map(str::to_owned).collect(),
            policies: configuration.policies.names().map(str::to_owned).collect(),
            harnesses: configuration.harnesses.names().map(str::to_owned).collect(),
            catalogue: Catalogued { kinds, providers, unconfirmed },
            ..Self::nothing(directories)
        }
    }
}

/// Nothing of one that is not good: what it lists could be taken for what is in force.
fn text(checked: &Checked) -> String {
    let mut text = String::new();
    if !checked.good {
        return text;
    }
    let Catalogued { kinds, providers, unconfirmed } = checked.catalogue;
    let _ = writeln!(text, "configuration in {} is good", checked.configuration);
    let _ = writeln!(text, "  secrets:   {}", checked.secrets.join(", "));
    let _ = writeln!(text, "  policies:  {}", checked.policies.join(", "));
    let _ = writeln!(text, "  harnesses: {}", checked.harnesses.join(", "));
    let _ = writeln!(text, "  catalogue: {kinds} kinds of {providers} providers");
    let _ = writeln!(
        text,
        "  {unconfirmed} of its details are not confirmed by the providers; `understudy secrets kinds --unconfirmed` lists them"
    );
    text
}
