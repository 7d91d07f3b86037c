//! `understudy harness`: the harnesses that there are, and what each sets, allows and refuses.

mod shown;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use understudy_harnesses::Harnesses;

use crate::config::Directories;
use crate::output::Output;
use shown::Shown;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Names of all harnesses, and what is wrong with them
    List {
        #[command(flatten)]
        directories: Directories,
        #[command(flatten)]
        output: Output,
    },
    /// All that one sets, allows and refuses
    Show {
        #[command(flatten)]
        directories: Directories,
        #[command(flatten)]
        output: Output,
        /// Its name, as `harness list` prints it
        name: String,
    },
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    description: &'a str,
    /// Versions that were run with it.
    proven: &'a [String],
    logins: Vec<&'a str>,
    /// Why it cannot be used.
    error: Option<String>,
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List { directories, output } => {
            let harnesses = Harnesses::load(Some(&directories.harnesses()));
            output.print(&list(&harnesses), |list| lines(list))?;
        }
        Command::Show { directories, output, name } => {
            let harnesses = Harnesses::load(Some(&directories.harnesses()));
            output.print(&Shown::new(harnesses.harness(name)?), Shown::to_string)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(harnesses: &Harnesses) -> Vec<Listed<'_>> {
    let listed = |name| match harnesses.harness(name) {
        Ok(harness) => Listed {
            name,
            description: &harness.description,
            proven: &harness.proven,
            logins: harness.logins.iter().map(|login| login.name.as_str()).collect(),
            error: None,
        },
        Err(error) => {
            Listed { name, description: "", proven: &[], logins: Vec::new(), error: Some(error.to_string()) }
        }
    };
    harnesses.names().map(listed).collect()
}

fn lines(list: &[Listed<'_>]) -> String {
    let width = list.iter().map(|listed| listed.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for listed in list {
        let proven = if listed.proven.is_empty() { "unproven".to_owned() } else { listed.proven.join(", ") };
        let _ = match &listed.error {
            Some(error) => writeln!(text, "{:width$}  not usable: {error}", listed.name),
            None => writeln!(text, "{:width$}  {proven}: {}", listed.name, listed.description),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_is_proven_and_what_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mine.toml"), "nam = 1").unwrap();
        let harnesses = Harnesses::load(Some(directory.path()));
        let list = list(&harnesses);
        let text = lines(&list);
        for line in [
            "goose         unproven: Goose,",
            "mistral-vibe  3.0.2: Mistral Vibe,",
            "mine          not usable: the descriptor of harness `mine` cannot be used: mine.toml:1:1: unknown key `nam`",
        ] {
            assert!(text.contains(line), "{text}\nexpected {line}");
        }
        let json: serde_json::Value = serde_json::from_str(&crate::output::document(&list).unwrap()).unwrap();
        let vibe = json.as_array().unwrap().iter().find(|listed| listed["name"] == "mistral-vibe").unwrap();
        assert_eq!(
            (vibe["proven"][0].as_str(), vibe["logins"][0].as_str()),
            (Some("3.0.2"), Some("api-key"))
        );
    }
}
