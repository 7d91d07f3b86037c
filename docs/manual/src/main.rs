//! `understudy-manual DIRECTORY`: writes manual pages and shell completions of both programs, in the places of `share/`
//! where `man`, bash, zsh and fish look for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;

/// Writes manual pages and shell completions of `understudy` and `understudy-hook`.
#[derive(Debug, Parser)]
struct Arguments {
    /// A `share` directory; what is in it stays, but for files of these names
    directory: PathBuf,
}

/// Where a shell looks for the completions of a program.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

fn main() -> ExitCode {
    match write(&Arguments::parse().directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("understudy-manual: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn programs() -> [(&'static str, Command); 2] {
    [("understudy", understudy::program::command()), ("understudy-hook", understudy_hook::command())]
        .map(|(name, command)| (name, without_hidden(name, &command)))
}

/// Podman calls the stages of the hook: nobody should be led to type them. The generators show them in some shells.
fn without_hidden(name: &'static str, command: &Command) -> Command {
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(command.get_about().cloned().unwrap_or_default())
        .long_about(command.get_long_about().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

fn write(share: &Path) -> Result<()> {
    for (name, program) in programs() {
        let mut built = program.clone().disable_help_subcommand(true);
        built.build();
        pages(&built, &directory(share, "man/man1")?)?;
        for (shell, below) in SHELLS {
            let completions = directory(share, below)?;
            clap_complete::generate_to(shell, &mut program.clone(), name, &completions)
                .with_context(|| format!("{} cannot be written", completions.display()))?;
        }
    }
    Ok(())
}

/// A page for the command, and for each below it: `understudy-policy-from(1)`.
fn pages(command: &Command, directory: &Path) -> Result<()> {
    Man::new(command.clone())
        .source(concat!("understudy ", env!("CARGO_PKG_VERSION")))
        .manual("Understudy")
        .generate_to(directory)
        .with_context(|| format!("{} cannot be written", directory.display()))?;
    command.get_subcommands().try_for_each(|command| pages(command, directory))
}

fn directory(share: &Path, below: &str) -> Result<PathBuf> {
    let path = share.join(below);
    fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(command: &Command, seen: &mut Vec<Command>) {
        seen.push(command.clone());
        for command in command.get_subcommands() {
            every(command, seen);
        }
    }

    #[test]
    fn every_command_and_argument_says_what_it_is() {
        let mut silent = Vec::new();
        for (name, program) in programs() {
            let mut seen = Vec::new();
            every(&program, &mut seen);
            assert!(seen.len() > 4, "{name}");
            for command in seen {
                let command_name = format!("{name} … {}", command.get_name());
                if command.get_about().is_none() {
                    silent.push(command_name.clone());
                }
                let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
                silent.extend(arguments.map(|argument| format!("{command_name}: {}", argument.get_id())));
            }
        }
        assert_eq!(silent, Vec::<String>::new());
    }

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let share = tempfile::tempdir().unwrap();
        write(share.path()).unwrap();
        let page = fs::read_to_string(share.path().join("man/man1/understudy-policy-from.1")).unwrap();
        assert!(page.contains("Understudy") && page.contains("all\\-paths"), "{page}");
        for file in [
            "man/man1/understudy.1",
            "man/man1/understudy-hook-doctor.1",
            "bash-completion/completions/understudy.bash",
            "bash-completion/completions/understudy-hook.bash",
            "zsh/site-functions/_understudy",
            "fish/vendor_completions.d/understudy-hook.fish",
        ] {
            let text = fs::read_to_string(share.path().join(file)).unwrap();
            assert!(!text.is_empty(), "{file}");
            assert!(
                !text.contains("create-runtime") && !text.contains("create\\-runtime"),
                "a hook stage in {file}"
            );
        }
    }
}
