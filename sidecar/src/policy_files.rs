//! `understudy policy`: the policies that there are, and a first one to start from.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use understudy_policies::from::{self, Paths};
use understudy_policies::{Policies, Policy, builtin};

use crate::config::Directories;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Names of all policies, and what is wrong with them
    List(Directories),
    /// The text of one
    Show {
        #[command(flatten)]
        directories: Directories,
        name: String,
    },
    /// What the rules of one policy are that another has not, and the other way round; exit status 1 if there are any
    Diff {
        #[command(flatten)]
        directories: Directories,
        /// A policy's name, or a file (a path with a `/` in it)
        before: String,
        after: String,
    },
    /// Print a policy to start from; it allows nothing yet
    New,
    /// Print a policy with the hosts that lock files and package-manager configuration of a project name
    ///
    /// Nothing is run or fetched, and no symbolic link is followed. Each line says which file and line named it, and comments
    /// say what no file names. Whoever wrote those files chose the hosts: look at them. Exit status 1 if a file could not be
    /// read.
    From {
        /// The project
        directory: PathBuf,
        /// Write each path, however many there are
        #[arg(long)]
        all_paths: bool,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(directories) => {
            print!("{}", list(&Policies::load(Some(&directories.policies()))));
        }
        Command::Show { directories, name } => print!("{}", show(directories, name)?),
        Command::Diff { directories, before, after } => return diff(directories, before, after),
        Command::New => print!("{NEW}"),
        Command::From { directory, all_paths } => return propose(directory, *all_paths),
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(directories: &Directories, before: &str, after: &str) -> Result<ExitCode> {
    let policies = Policies::load(Some(&directories.policies()));
    let rules = |name: &str| -> Result<Vec<String>> {
        let policy = named_or_file(&policies, name)?;
        if let Some(error) = policy.error() {
            bail!("policy {name:?}: {error}");
        }
        Ok(policy.rules().iter().map(ToString::to_string).collect())
    };
    let (text, same) = difference(&rules(before)?, &rules(after)?);
    print!("{text}");
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn named_or_file(policies: &Policies, name: &str) -> Result<Arc<Policy>> {
    if name.contains('/') {
        let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
        let mut with = policies.clone();
        // Under a name of its own, so that it can extend what there is.
        with.insert(Policy::parse(name, name, &text)?);
        return with.policy(name).with_context(|| name.to_owned());
    }
    policies
        .policy(name)
        .with_context(|| format!("there is no policy {name:?}; list them with: understudy policy list"))
}

/// The order of rules means nothing.
fn difference(before: &[String], after: &[String]) -> (String, bool) {
    let only = |sign: char, these: &[String], others: &[String]| -> String {
        these.iter().filter(|rule| !others.contains(rule)).map(|rule| format!("{sign} {rule}\n")).collect()
    };
    let text = only('-', before, after) + &only('+', after, before);
    let same = text.is_empty();
    (text, same)
}

fn propose(directory: &Path, all_paths: bool) -> Result<ExitCode> {
    let paths = if all_paths { Paths::All } else { Paths::Short };
    let proposal = from::propose(directory, paths).with_context(|| directory.display().to_string())?;
    print!("{}", proposal.text);
    for problem in &proposal.problems {
        eprintln!("understudy: {problem}");
    }
    Ok(if proposal.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const NEW: &str = include_str!("../data/new-policy.toml");

fn list(policies: &Policies) -> String {
    let mut text = format!("{}: built in, what the container's harness needs\n", builtin::HARNESS_ONLY);
    for policy in policies.names().filter_map(|name| policies.policy(name)) {
        let kind = if builtin::is_reserved(policy.name()) { "built in, " } else { "" };
        let open = if policy.is_open() { ", open: every public host" } else { "" };
        let _ = match policy.error() {
            Some(error) => writeln!(text, "{}: {kind}not usable: {error}", policy.name()),
            None => {
                let rules = policy.rules().len();
                let plural = if rules == 1 { "" } else { "s" };
                writeln!(text, "{}: {kind}{rules} rule{plural}{open}", policy.name())
            }
        };
    }
    text
}

fn show(directories: &Directories, name: &str) -> Result<String> {
    if let Some((_, text)) = builtin::FILES.iter().find(|(file, _)| *file == name) {
        return Ok((*text).to_owned());
    }
    if builtin::is_reserved(name) {
        bail!("`{name}` is made for each container (docs/policies.md)");
    }
    if Policies::load(Some(&directories.policies())).policy(name).is_none() {
        bail!("there is no policy {name:?}; list them with: understudy policy list");
    }
    let path = directories.policies().join(format!("{name}.toml"));
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(files: &[(&str, &str)]) -> (tempfile::TempDir, Directories) {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        std::fs::create_dir(of("policies")).unwrap();
        for (name, text) in files {
            std::fs::write(of("policies").join(name), text).unwrap();
        }
        let directories = Directories {
            config: directory.path().to_owned(),
            state: of("state"),
            control: of("control"),
            store_key: Default::default(),
        };
        (directory, directories)
    }

    #[test]
    fn the_policy_to_start_from_is_well_formed_and_allows_nothing() {
        let policy = Policy::parse("new", "new.toml", NEW).unwrap();
        assert!(policy.rules().is_empty() && policy.extends().is_empty());
        // What it shows is well-formed, too.
        let shown: String =
            NEW.lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
        assert!(Policy::parse("new", "new.toml", &shown).unwrap().rules().len() > 2);
    }

    #[test]
    fn the_list_says_what_is_built_in_open_or_broken() {
        let (_kept, directories) =
            directories(&[("web.toml", "[[allow]]\nhost = \"a.example\""), ("bad.toml", "hots = 1")]);
        let text = list(&Policies::load(Some(&directories.policies())));
        for line in [
            "web: 1 rule\n",
            "bad: not usable: bad.toml:1:1: unknown key `hots`",
            "open: built in, 1 rule, open: every public host\n",
            "github-pr: built in, not usable: it needs repositories",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn two_policies_differ_in_rules_and_not_in_their_order() {
        let a = "[[allow]]\nhost = \"a.example\"\n[[allow]]\nhost = \"b.example\"";
        let b = "[[allow]]\nhost = \"b.example\"\n[[allow]]\nhost = \"a.example\"";
        let (_kept, directories) =
            directories(&[("a.toml", a), ("b.toml", b), ("c.toml", "extends = [\"a\"]\nopen = true")]);
        let policies = Policies::load(Some(&directories.policies()));
        let rules = |name: &str| -> Vec<String> {
            let policy = named_or_file(&policies, name).unwrap();
            policy.rules().iter().map(ToString::to_string).collect()
        };
        assert_eq!(difference(&rules("a"), &rules("b")), (String::new(), true));
        assert_eq!(difference(&rules("a"), &rules("c")), ("+ allow *, every port\n".to_owned(), false));
        let file = directories.policies().join("b.toml");
        assert_eq!(rules("b"), rules(file.to_str().unwrap()));
        assert!(named_or_file(&policies, "none").is_err());
    }

    #[test]
    fn what_is_shown_is_the_text_and_no_other_file() {
        let (_kept, directories) = directories(&[("web.toml", "# mine\n")]);
        assert_eq!(show(&directories, "web").unwrap(), "# mine\n");
        assert!(show(&directories, "open").unwrap().contains("open = true"));
        for name in ["harness-only", "../secrets", "wep", ""] {
            assert!(show(&directories, name).is_err(), "{name}");
        }
    }
}
