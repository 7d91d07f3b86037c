//! What was found, as the text of a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::found::{Access, Found};
use super::{Paths, Proposal};
use crate::{HostName, Policy};

/// Paths of one host that a short rule lists.
const SHORT: usize = 24;

const HEAD: &str = "# The hosts and paths that the files of a project name. Whoever wrote those files chose them: look at each before \
you use it.\n# Save it as ~/.config/understudy/policies/NAME.toml, and run `understudy check`.\n";

/// Of one host and port: paths, or repositories, with the first place that names each.
type Rules = BTreeMap<(HostName, u16, bool), BTreeMap<String, String>>;

pub(super) fn proposal(found: Found, paths: Paths) -> Proposal {
    let (mut rules, mut files) = (Rules::new(), Rules::new());
    for each in found.uses {
        let (git, what) = match each.access {
            Access::Below(path) => (false, path),
            Access::Repository(repository) => (true, repository),
            Access::File(path) => {
                let key = (each.host, each.port, false);
                files.entry(key.clone()).or_default().entry(path).or_insert(each.place);
                rules.entry(key).or_default();
                continue;
            }
        };
        rules.entry((each.host, each.port, git)).or_default().entry(what).or_insert(each.place);
    }
    let mut text = HEAD.to_owned();
    for line in found.notes.iter().chain(&found.problems) {
        let _ = writeln!(text, "#\n# {line}");
    }
    if rules.is_empty() {
        text.push_str("#\n# No file here names a host.\n");
    }
    for ((host, port, git), named) in &rules {
        let _ = write!(text, "\n[[allow]]\nhost = \"{host}\"\n");
        if *port != 443 {
            let _ = writeln!(text, "port = {port}");
        }
        let (condition, key) =
            if *git { ("git = \"read\"", "repos") } else { ("methods = \"GET\"", "paths") };
        let _ = writeln!(text, "{condition}\n{key} = [");
        let mut lines = if *git { whole(named) } else { patterns(named, paths) };
        lines.extend(files.get(&(host.clone(), *port, *git)).map(whole).unwrap_or_default());
        for (what, comment) in lines {
            let _ = writeln!(text, "    {what:?}, # {comment}");
        }
        text.push_str("]\n");
    }
    let mut problems = found.problems;
    // What it prints can be used; whatever else it were would be a mistake of ours.
    if let Err(error) = Policy::parse("proposal", "proposal", &text) {
        problems.push(format!("the printed policy is not well-formed: {error}"));
    }
    Proposal { text, problems }
}

fn whole(named: &BTreeMap<String, String>) -> Vec<(String, String)> {
    named.iter().map(|(what, place)| (what.clone(), place.clone())).collect()
}

fn patterns(named: &BTreeMap<String, String>, paths: Paths) -> Vec<(String, String)> {
    let distinct: BTreeSet<&str> = named.keys().map(String::as_str).collect();
    // One that lies below another adds nothing.
    let above = |path: &str| {
        let mut rest = path;
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if distinct.contains(parent) {
                return true;
            }
            rest = parent;
        }
        false
    };
    let kept: Vec<(&String, &String)> = named.iter().filter(|(path, _)| !above(path)).collect();
    if paths == Paths::Short && kept.len() > SHORT {
        let mut common = kept.first().map_or("", |(path, _)| path.as_str());
        for (path, _) in &kept {
            while !(path.starts_with(common)
                && path.get(common.len()..).is_some_and(|rest| rest.starts_with('/')))
            {
                common = common.rsplit_once('/').map_or("", |(parent, _)| parent);
            }
        }
        let first = kept.first().map_or("", |(_, place)| place.as_str());
        let wide = if common.is_empty() { "THE WHOLE HOST, since these share no directory: " } else { "" };
        let comment = format!("{wide}{first} and {} more; `--all-paths` writes each", kept.len() - 1);
        return vec![(format!("{common}/**"), comment)];
    }
    kept.into_iter().map(|(path, place)| (format!("{path}/**"), place.clone())).collect()
}
