//! `understudy policy`: the policies that there are, and a first one to start from.

mod shown;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use understudy_policies::from::{self, Paths};
use understudy_policies::{Policies, Policy, builtin};

use crate::ceiling;
use crate::config::Directories;
use crate::output::Output;
pub use shown::Proposed;
use shown::{Difference, Listed, ShownPolicy};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Names of all policies, and what is wrong with them
    List {
        #[command(flatten)]
        directories: Directories,
        #[command(flatten)]
        output: Output,
    },
    /// The text of one
    Show {
        #[command(flatten)]
        directories: Directories,
        #[command(flatten)]
        output: Output,
        /// Its name, as `policy list` prints it
        name: String,
    },
    /// What the rules of one policy are that another has not, and the other way round; exit status 1 if there are any
    Diff {
        #[command(flatten)]
        directories: Directories,
        #[command(flatten)]
        output: Output,
        /// A policy's name, or a file (a path with a `/` in it)
        before: String,
        /// What it is compared with, in the same form
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
        /// Write each path, however many there are. Without it, more than 24 of one host become the directory that they share,
        /// which is more than the files name
        #[arg(long)]
        all_paths: bool,
        #[command(flatten)]
        output: Output,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List { directories, output } => {
            let policies = Policies::load(Some(&directories.policies()));
            output.print(&Listed::all(&policies), |list| lines(list))?;
        }
        Command::Show { directories, output, name } => {
            let shown = show(directories, name)?;
            for warning in &shown.warnings {
                eprintln!("understudy: warning: {warning}");
            }
            output.print(&shown, |shown| shown.text.clone())?;
        }
        Command::Diff { directories, output, before, after } => {
            let difference = difference(directories, before, after)?;
            output.print(&difference, Difference::text)?;
            return Ok(if difference.same { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::New => print!("{NEW}"),
        Command::From { directory, all_paths, output } => return propose(directory, *all_paths, *output),
    }
    Ok(ExitCode::SUCCESS)
}

fn difference(directories: &Directories, before: &str, after: &str) -> Result<Difference> {
    let policies = Policies::load(Some(&directories.policies()));
    let usable = |name: &str| -> Result<Arc<Policy>> {
        let policy = named_or_file(&policies, name)?;
        match policy.error() {
            Some(error) => bail!("policy {name:?}: {error}"),
            None => Ok(policy),
        }
    };
    Ok(Difference::between(&*usable(before)?, &*usable(after)?))
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

fn propose(directory: &Path, all_paths: bool, output: Output) -> Result<ExitCode> {
    let paths = if all_paths { Paths::All } else { Paths::Short };
    let proposal = from::propose(directory, paths).with_context(|| directory.display().to_string())?;
    for problem in &proposal.problems {
        eprintln!("understudy: {problem}");
    }
    let code = if proposal.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let proposed = Proposed::new(proposal.text, proposal.problems)?;
    output.print(&proposed, |proposed| proposed.policy.clone())?;
    Ok(code)
}

const NEW: &str = include_str!("../data/new-policy.toml");

fn lines(list: &[Listed]) -> String {
    let mut text = String::new();
    for Listed { name, built_in, open, rules, error } in list {
        let kind = if *built_in { "built in, " } else { "" };
        let open = if *open { ", open: every public host" } else { "" };
        let _ = match (error, rules) {
            (Some(error), _) => writeln!(text, "{name}: {kind}not usable: {error}"),
            (None, Some(rules)) => {
                let plural = if *rules == 1 { "" } else { "s" };
                writeln!(text, "{name}: {kind}{rules} rule{plural}{open}")
            }
            (None, None) => writeln!(text, "{name}: {kind}what the container's harness needs"),
        };
    }
    text
}

fn show(directories: &Directories, name: &str) -> Result<ShownPolicy> {
    let policies = Policies::load(Some(&directories.policies()));
    let missing = || format!("there is no policy {name:?}; list them with: understudy policy list");
    if let Some((_, text)) = builtin::FILES.iter().find(|(file, _)| *file == name) {
        let policy = policies.policy(name).with_context(missing)?;
        return Ok(ShownPolicy::new(&policy, (*text).to_owned()));
    }
    if builtin::is_reserved(name) {
        bail!("`{name}` is made for each container (docs/policies.md)");
    }
    let policy = policies.policy(name).with_context(missing)?;
    let path = directories.policies().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut shown = ShownPolicy::new(&policy, text);
    shown.warnings.extend(ceiling::warnings_of(&policy, &ceiling::load(&directories.ceiling_toml())?));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let list = Listed::all(&Policies::load(Some(&directories.policies())));
        let text = lines(&list);
        for line in [
            "harness-only: built in, what the container's harness needs\n",
            "web: 1 rule\n",
            "bad: not usable: bad.toml:1:1: unknown key `hots`",
            "open: built in, 1 rule, open: every public host\n",
            "github-pr: built in, not usable: it needs repositories",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let json = serde_json::to_value(&list).unwrap();
        let of = |name: &str| json.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        assert_eq!(
            *of("web"),
            json!({"name": "web", "built-in": false, "open": false, "rules": 1, "error": null})
        );
        assert_eq!(
            *of("harness-only"),
            json!({"name": "harness-only", "built-in": true, "open": false, "rules": null, "error": null})
        );
        assert_eq!(of("open")["open"], true);
        assert!(of("bad")["rules"].is_null() && of("bad")["error"].as_str().unwrap().contains("`hots`"));
    }

    #[test]
    fn two_policies_differ_in_rules_and_not_in_their_order() {
        let a = "[[allow]]\nhost = \"a.example\"\n[[allow]]\nhost = \"b.example\"";
        let b = "[[allow]]\nhost = \"b.example\"\n[[allow]]\nhost = \"a.example\"";
        let (_kept, directories) =
            directories(&[("a.toml", a), ("b.toml", b), ("c.toml", "extends = [\"a\"]\nopen = true")]);
        let between = |before: &str, after: &str| difference(&directories, before, after).unwrap();
        assert!(between("a", "b").same && between("a", "b").text().is_empty());
        let wider = between("a", "c");
        assert_eq!((wider.same, wider.text().as_str()), (false, "+ allow *, every port\n"));
        assert_eq!(between("c", "a").text(), "- allow *, every port\n");
        assert_eq!(
            serde_json::to_value(&wider).unwrap(),
            json!({
                "same": false,
                "limits": [],
                "only-before": [],
                "only-after": [{
                    "rule": "allow *, every port", "effect": "allow", "hosts": ["*"], "ports": null,
                    "place": "c.toml:2", "note": null,
                }],
            })
        );
        let file = directories.policies().join("b.toml");
        assert!(between("b", file.to_str().unwrap()).same);
        assert!(difference(&directories, "a", "none").is_err());
    }

    #[test]
    fn two_policies_differ_in_what_a_container_may_do_in_all() {
        let a = "max-requests = 5\nmax-bytes = \"1K\"\n[[allow]]\nhost = \"a.example\"";
        let b = "max-requests = 6\nmax-runtime = \"2h\"\n[[allow]]\nhost = \"a.example\"";
        let (_kept, directories) =
            directories(&[("a.toml", a), ("b.toml", b), ("c.toml", "extends = \"a\"")]);
        let between = |before: &str, after: &str| difference(&directories, before, after).unwrap();
        let found = between("a", "b");
        let text = "- max-requests = 5\n+ max-requests = 6\n- max-bytes = 1024\n+ max-runtime = \"7200s\"\n";
        assert_eq!((found.same, found.text().as_str()), (false, text));
        let limits = serde_json::to_value(&found).unwrap()["limits"].clone();
        assert_eq!(limits[1], json!({"key": "max-bytes", "before": 1024, "after": null}));
        assert!(between("a", "c").same);
    }

    #[test]
    fn what_is_shown_is_the_text_and_no_other_file() {
        let (_kept, directories) = directories(&[("web.toml", "# mine\n")]);
        assert_eq!(show(&directories, "web").unwrap().text, "# mine\n");
        assert!(show(&directories, "open").unwrap().text.contains("open = true"));
        for name in ["harness-only", "../secrets", "wep", ""] {
            assert!(show(&directories, name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_policy_is_json_with_all_that_it_says() {
        let text = "max-runtime = \"2h\"\nmax-bytes = \"1K\"\nextends = [\"more\"]\n[[allow]]\nhost = [\"a.example\", \"*.b.example\"]\n\
                    port = [443, 80]\nnote = \"docs\"\n";
        let more = "max-requests = 5\n[[deny]]\nhost = \"c.example\"\n";
        let (_kept, directories) = directories(&[("web.toml", text), ("more.toml", more)]);
        assert_eq!(
            serde_json::to_value(show(&directories, "web").unwrap()).unwrap(),
            json!({
                "name": "web", "built-in": false, "open": false, "error": null, "warnings": [],
                "max-requests": 5, "max-bytes": 1024, "max-runtime": 7200,
                "rules": [
                    {
                        "rule": "allow a.example, *.b.example, port 443 80", "effect": "allow",
                        "hosts": ["a.example", "*.b.example"], "ports": [443, 80], "place": "web.toml:5",
                        "note": "docs",
                    },
                    {
                        "rule": "deny c.example, every port", "effect": "deny", "hosts": ["c.example"],
                        "ports": null, "place": "more.toml:3", "note": null,
                    },
                ],
                "text": text,
            })
        );
    }

    #[test]
    fn a_proposal_is_json_with_its_text_and_the_rules_in_it() {
        let text = "# package-lock.json:3\n[[allow]]\nhost = \"registry.example\"\n";
        let proposed = Proposed::new(text.to_owned(), vec!["x: binary".to_owned()]).unwrap();
        assert_eq!(
            serde_json::to_value(proposed).unwrap(),
            json!({
                "policy": text,
                "rules": [{
                    "rule": "allow registry.example", "effect": "allow", "hosts": ["registry.example"],
                    "ports": [443], "place": "proposal:3", "note": null,
                }],
                "problems": ["x: binary"],
            })
        );
        assert!(Proposed::new("[[alow]]".to_owned(), Vec::new()).is_err());
    }
}
