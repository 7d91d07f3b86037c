//! The policies that a container can name: the built-in ones and the files of one directory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::model::Inherited;
use crate::{Policy, builtin, document};

/// More than any policy needs; a larger file is a mistake.
const MAX_FILE: u64 = 1024 * 1024;

/// By name. A file that cannot be used is in it as a policy that failed, so that naming it denies everything.
#[derive(Debug, Clone)]
pub struct Policies {
    by_name: BTreeMap<String, Arc<Policy>>,
    /// Why a policy of `by_name` is what an earlier file said.
    stale: BTreeMap<String, String>,
    /// Why the directory could not be read; then nobody knows what there is.
    unread: Option<String>,
    /// Of files that cannot be what their author meant.
    odd: Vec<String>,
}

impl Policies {
    /// Reads every `NAME.toml` in `directory`; one that does not exist has none. Those that begin with a dot are an editor's.
    pub fn load(directory: Option<&Path>) -> Self {
        let mut policies = Self::default();
        let Some(directory) = directory else { return policies };
        let paths = std::fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
        let paths = match paths {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return policies,
            Err(error) => {
                policies.unread = Some(format!("{}: {error}", directory.display()));
                return policies;
            }
        };
        for path in paths {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Of `.toml` alone nothing is the extension.
            match file.strip_suffix(".toml") {
                None => {}
                Some(_) if file.starts_with('.') => {
                    policies.odd.push(format!("{file:?} begins with a dot, so it is not read as a policy"));
                }
                Some(name) => policies.put_file(name, &path),
            }
        }
        policies.odd.sort();
        policies.put_together();
        policies
    }

    fn put_file(&mut self, name: &str, path: &Path) {
        if name.contains(|c: char| c == ',' || c.is_whitespace()) {
            self.odd.push(format!(
                "{:?}: no annotation can name this policy, since commas and white space stand between names; rename the file",
                format!("{name}.toml")
            ));
        }
        self.put(read(path));
    }

    /// What `before` has stays in force where the same file cannot be used any more; `problems` says so. A file that is
    /// gone takes its policy with it.
    #[must_use]
    pub fn or_before(mut self, before: &Self) -> Self {
        if let Some(error) = self.unread {
            return Self { unread: Some(error), ..before.clone() };
        }
        for (name, policy) in &mut self.by_name {
            let good = before.by_name.get(name).filter(|before| before.error().is_none());
            if let (Some(error), Some(good)) = (policy.error(), good) {
                self.stale.insert(name.clone(), error.to_owned());
                *policy = Arc::clone(good);
            }
        }
        self
    }

    /// Replaces a policy of the same name. A reserved name makes a policy that failed, under that name.
    pub fn insert(&mut self, policy: Policy) {
        self.put(policy);
        self.put_together();
    }

    fn put(&mut self, policy: Policy) {
        let policy = if builtin::is_reserved(policy.name()) {
            let error = format!("`{}` is the name of a built-in policy; rename the file", policy.name());
            Policy::failed(policy.name(), error)
        } else {
            policy
        };
        self.by_name.insert(policy.name().to_owned(), Arc::new(policy));
    }

    /// Gives each policy the rules of those that it extends; one that cannot have them fails.
    fn put_together(&mut self) {
        let whole: Vec<Policy> = self
            .by_name
            .values()
            .filter(|policy| !policy.extends().is_empty())
            .map(|policy| {
                let mut inherited = Inherited::default();
                match self.inherit(policy, &mut vec![policy.name().to_owned()], &mut inherited) {
                    Ok(()) => Policy::clone(policy).extended(inherited),
                    Err(error) => Policy::failed(policy.name(), error),
                }
            })
            .collect();
        self.by_name.extend(whole.into_iter().map(|policy| (policy.name().to_owned(), Arc::new(policy))));
    }

    /// `way` holds the names from the policy that is put together to this one.
    fn inherit(
        &self,
        policy: &Policy,
        way: &mut Vec<String>,
        inherited: &mut Inherited,
    ) -> Result<(), String> {
        for extends in policy.extends() {
            let name = &extends.policy;
            let failed = |why: String| format!("{}: `extends`: {why}", extends.place);
            if way.contains(name) {
                return Err(failed(format!("policy `{name}` extends itself, through {}", way.join(", "))));
            }
            let other = match name.as_str() {
                builtin::HARNESS_ONLY => {
                    return Err(failed(
                        "`harness-only` is another for each harness; name both in understudy.policy".into(),
                    ));
                }
                builtin::GITHUB_PR => Arc::new(builtin::github_pr(&extends.repos)),
                name => self.policy(name).ok_or_else(|| failed(self.missing(name)))?,
            };
            if let Some(error) = other.error() {
                return Err(failed(format!("policy `{name}`: {error}")));
            }
            way.push(name.clone());
            inherited.rules.extend(other.rules().iter().cloned());
            inherited.limits = inherited.limits.and(other.limits());
            // One that was put together before has its own already.
            for name in [name].into_iter().chain(other.inherits()) {
                if !inherited.names.contains(name) {
                    inherited.names.push(name.clone());
                }
            }
            self.inherit(&other, way, inherited)?;
            way.pop();
        }
        Ok(())
    }

    fn missing(&self, name: &str) -> String {
        match document::closest(name, self.names()) {
            Some(meant) => format!("there is no policy {name:?}; did you mean `{meant}`?"),
            None => format!("there is no policy {name:?}"),
        }
    }

    /// `harness-only` is not among them: it is made for each harness.
    pub fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        self.by_name.get(name).cloned()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The name that a misspelt one was probably meant to be.
    pub fn suggestion(&self, name: &str) -> Option<&str> {
        document::closest(name, self.names().chain([builtin::HARNESS_ONLY]))
    }

    /// One line for each policy that could not be loaded.
    pub fn problems(&self) -> Vec<String> {
        // One that is compiled in fails only where it is named without what it needs.
        let own = |policy: &&Arc<Policy>| {
            policy.name() != builtin::GITHUB_PR || policy.error() != builtin::github_pr(&[]).error()
        };
        let problem = |policy: &Arc<Policy>| Some(format!("policy `{}`: {}", policy.name(), policy.error()?));
        let stale = self.stale.iter();
        let stale = stale
            .map(|(name, error)| format!("policy `{name}`: {error}; what it said before stays in force"));
        let unread = self.unread.iter().map(|error| {
            format!(
                "policies: {error}; what was read before stays in force, and nothing is known of what is new"
            )
        });
        unread.chain(self.by_name.values().filter(own).filter_map(problem)).chain(stale).collect()
    }

    /// One line for each thing that the author of a policy probably did not mean.
    pub fn warnings(&self) -> Vec<String> {
        let of_rules = self.by_name.values().flat_map(|policy| policy.warnings().to_vec());
        self.odd.iter().cloned().chain(of_rules).collect()
    }
}

/// The built-in ones alone.
impl Default for Policies {
    fn default() -> Self {
        let named = builtin::named().map(|policy| (policy.name().to_owned(), Arc::new(policy)));
        Self { by_name: named.collect(), stale: BTreeMap::new(), unread: None, odd: Vec::new() }
    }
}

fn read(path: &Path) -> Policy {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let text = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Policy::failed(name, format!("{file}: not a file")),
        Ok(metadata) if metadata.len() > MAX_FILE => {
            return Policy::failed(name, format!("{file}: larger than {MAX_FILE} bytes"));
        }
        Ok(_) => std::fs::read_to_string(path),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => {
            Policy::parse(&name, &file, &text).unwrap_or_else(|error| Policy::failed(name, error.to_string()))
        }
        Err(error) => Policy::failed(name, format!("{file}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::{PolicySet, Verdict};

    #[test]
    fn limits_come_along_and_the_lowest_holds() {
        let mut policies = Policies::default();
        for (name, text) in [
            ("base", "max-requests = 10\nmax-runtime = \"8h\""),
            ("more", "extends = [\"base\"]\nmax-requests = 20\nmax-bytes = \"1K\""),
        ] {
            policies.insert(Policy::parse(name, name, text).unwrap());
        }
        let limits = PolicySet::combine(vec![policies.policy("more").unwrap()]).limits();
        assert_eq!((limits.requests, limits.bytes), (Some(10), Some(1024)));
        assert_eq!(limits.runtime.unwrap().as_secs(), 8 * 3600);
    }

    #[test]
    fn files_are_found_and_broken_ones_fail_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.path().join(file), text).unwrap();
        write("web.toml", "[[allow]]\nhost = \"a.example\"");
        write("broken.toml", "[[allow]]\nhots = \"a.example\"");
        write("harness-only.toml", "[[allow]]\nhost = \"a.example\"");
        write("readme.md", "not a policy");
        std::fs::create_dir(directory.path().join("folder.toml")).unwrap();
        let policies = Policies::load(Some(directory.path()));
        assert_eq!(
            policies.names().collect::<Vec<_>>(),
            ["broken", "folder", "git-hosts", "github-pr", "harness-only", "locked", "open", "web"]
        );
        assert_eq!(policies.policy("web").unwrap().rules()[0].place, "web.toml:2");
        let problems = policies.problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].starts_with("policy `broken`: broken.toml:2:1: unknown key `hots`"),
            "{problems:?}"
        );
        assert!(problems[2].contains("built-in policy"), "{problems:?}");
        assert_eq!(policies.suggestion("wep"), Some("web"));
        assert!(policies.policy("nothing").is_none());
    }

    #[test]
    fn a_file_that_breaks_leaves_what_it_said_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("web.toml");
        let host = "a.example".parse().unwrap();
        std::fs::write(&file, "[[allow]]\nhost = \"a.example\"").unwrap();
        let mut policies = Policies::load(Some(directory.path()));
        std::fs::write(&file, "[[allow]]\nhots = 1").unwrap();
        // Also when it is looked at again.
        for _ in 0..2 {
            policies = Policies::load(Some(directory.path())).or_before(&policies);
            assert!(policies.policy("web").unwrap().rules()[0].is_about(&host));
            let problems = policies.problems();
            assert!(problems.len() == 1 && problems[0].ends_with("stays in force"), "{problems:?}");
        }
        std::fs::remove_file(&file).unwrap();
        policies = Policies::load(Some(directory.path())).or_before(&policies);
        assert!(policies.policy("web").is_none() && policies.problems().is_empty());
    }

    #[test]
    fn a_directory_that_cannot_be_read_leaves_what_was_there_and_one_that_is_gone_does_not() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("policies");
        let load = |before: &Policies| Policies::load(Some(&directory)).or_before(before);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("web.toml"), "[[allow]]\nhost = \"a.example\"").unwrap();
        std::fs::write(directory.join("bad.toml"), "[[allow]]\nhots = 1").unwrap();
        let first = load(&Policies::default());
        std::fs::rename(&directory, place.path().join("elsewhere")).unwrap();
        // Read access cannot be taken from root; a file is no directory for anybody.
        std::fs::write(&directory, "").unwrap();
        let mut policies = first;
        for _ in 0..2 {
            policies = load(&policies);
            assert!(policies.policy("web").is_some_and(|policy| policy.error().is_none()));
            let problems = policies.problems();
            assert_eq!(problems.len(), 2, "{problems:?}");
            assert!(
                problems[0].starts_with("policies: /") && problems[0].contains("stays in force"),
                "{problems:?}"
            );
        }
        assert_eq!(load(&Policies::default()).problems().len(), 1);
        std::fs::remove_file(&directory).unwrap();
        let gone = load(&policies);
        assert!(gone.policy("web").is_none() && gone.problems().is_empty(), "{:?}", gone.problems());
    }

    #[test]
    fn a_policy_that_extends_a_broken_one_stays_what_both_said() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.path().join(file), text).unwrap();
        write("base.toml", "[[deny]]\nhost = \"a.example\"");
        write("web.toml", "extends = \"base\"\n[[allow]]\nhost = \"*.b.example\"");
        let good = Policies::load(Some(directory.path()));
        write("base.toml", "[[deny]]\nhots = 1");
        let kept = Policies::load(Some(directory.path())).or_before(&good);
        assert_eq!(kept.policy("web"), good.policy("web"));
        assert_eq!(kept.policy("base"), good.policy("base"));
        assert_eq!(kept.problems().len(), 2, "{:?}", kept.problems());
        // Without what there was before, it denies everything.
        assert!(Policies::load(Some(directory.path())).policy("web").unwrap().error().is_some());
        write("base.toml", "");
        let mended = Policies::load(Some(directory.path())).or_before(&kept);
        assert!(mended.problems().is_empty() && mended.policy("web").unwrap().rules().len() == 1);
    }

    #[test]
    fn what_is_no_text_of_a_policy_fails_and_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |file: &str| directory.path().join(file);
        let line = "# 0123456789abc\n";
        std::fs::write(path("most.toml"), line.repeat(1024 * 1024 / line.len())).unwrap();
        std::fs::write(path("more.toml"), line.repeat(1024 * 1024 / line.len()) + "#").unwrap();
        std::fs::write(path("bytes.toml"), b"# \xff\n").unwrap();
        mknodat(CWD, path("pipe.toml"), FileType::Fifo, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink("nowhere", path("link.toml")).unwrap();
        let policies = Policies::load(Some(directory.path()));
        for (name, said) in [
            ("most", None),
            ("more", Some("more.toml: larger than 1048576 bytes")),
            ("bytes", Some("bytes.toml: stream did not contain valid UTF-8")),
            ("pipe", Some("pipe.toml: not a file")),
            ("link", Some("link.toml: No such file")),
        ] {
            let policy = policies.policy(name).unwrap();
            let told = policy.error().map(|error| said.is_some_and(|said| error.starts_with(said)));
            assert_eq!(told, said.map(|_| true), "{name}: {:?}", policy.error());
        }
    }

    #[test]
    fn files_that_nobody_can_mean_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str| std::fs::write(directory.path().join(file), "").unwrap();
        ["a b.toml", "a,b.toml", ".toml", ".web.toml", "web.toml~"].into_iter().for_each(write);
        std::os::unix::fs::symlink("me@host.1:2", directory.path().join(".#web.toml")).unwrap();
        let policies = Policies::load(Some(directory.path()));
        assert!(policies.problems().is_empty(), "{:?}", policies.problems());
        let warnings = policies.warnings();
        assert_eq!(warnings.len(), 5, "{warnings:?}");
        let dot = |file: &str| format!("{file:?} begins with a dot, so it is not read as a policy");
        for said in [".#web.toml", ".toml", ".web.toml"].map(dot) {
            assert!(warnings.contains(&said), "{warnings:?}");
        }
        for file in ["a b.toml", "a,b.toml"] {
            let said = format!("{file:?}: no annotation can name this policy");
            assert!(warnings.iter().any(|line| line.starts_with(&said)), "{warnings:?}");
            assert!(policies.policy(file.trim_end_matches(".toml")).is_some());
        }
    }

    #[test]
    fn without_a_directory_there_are_the_built_in_ones() {
        let names = |policies: &Policies| policies.names().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&Policies::load(None)), ["git-hosts", "github-pr", "locked", "open"]);
        assert_eq!(
            names(&Policies::load(Some(Path::new("/nonexistent")))),
            ["git-hosts", "github-pr", "locked", "open"]
        );
    }
    fn library(files: &[(&str, &str)]) -> Policies {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(format!("{name}.toml")), text).unwrap();
        }
        Policies::load(Some(directory.path()))
    }

    #[test]
    fn what_is_extended_is_put_in_through_every_step_and_denials_with_it() {
        let policies = library(&[
            ("a", "extends = [\"b\", \"git-hosts\"]\n[[allow]]\nhost = \"a.example\""),
            ("b", "extends = \"c\"\n[[allow]]\nhost = \"b.example\""),
            ("c", "[[deny]]\nhost = \"a.example\""),
            ("pr", "extends = \"github-pr\"\nrepos = \"me/project\""),
        ]);
        assert!(policies.problems().is_empty(), "{:?}", policies.problems());
        let set = PolicySet::combine(vec![policies.policy("a").unwrap()]);
        let decide = |host: &str| set.decide(&host.parse().unwrap(), 443);
        assert!(matches!(decide("a.example"), Verdict::Denied { .. }));
        assert_eq!(
            decide("b.example"),
            Verdict::Allowed { rule: "b.toml:3".into(), given: crate::Given::default() }
        );
        assert!(matches!(decide("codeberg.org"), Verdict::Allowed { .. }));
        assert_eq!(policies.policy("a").unwrap().inherits(), ["b", "c", "git-hosts"]);
        assert_eq!(policies.policy("pr").unwrap().rules().len(), 5);
    }

    #[test]
    fn what_cannot_be_extended_fails_by_name() {
        for (text, said) in [
            ("extends = \"x\"", "x.toml:1:11: `extends`: policy `x` extends itself"),
            (
                "extends = [\n  \"locked\",\n  \"nosuch\",\n]",
                "x.toml:3:3: `extends`: there is no policy \"nosuch\"",
            ),
            ("extends = \"y\"", "`extends`: policy `x` extends itself, through x, y"),
            (
                "extends = \"git-host\"",
                "x.toml:1:11: `extends`: there is no policy \"git-host\"; did you mean `git-hosts`?",
            ),
            ("extends = \"harness-only\"", "x.toml:1:11: `extends`: `harness-only` is another for each"),
            ("extends = \"broken\"", "x.toml:1:11: `extends`: policy `broken`: broken.toml:1:1"),
            ("extends = \"github-pr\"", "x.toml:1:11: `extends`: policy `github-pr`: it needs repositories"),
        ] {
            let policies =
                library(&[("x", text), ("y", "extends = [\"locked\", \"x\"]"), ("broken", "hots = 1")]);
            let error = policies.policy("x").unwrap().error().unwrap().to_owned();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_policy_whose_extensions_nobody_put_in_allows_nothing() {
        let policy =
            Policy::parse("p", "p.toml", "extends = \"c\"\n[[allow]]\nhost = \"a.example\"").unwrap();
        let set = PolicySet::combine(vec![Arc::new(policy)]);
        assert!(matches!(set.decide(&"a.example".parse().unwrap(), 443), Verdict::Failed { .. }));
        assert!(!set.may_permit(&"a.example".parse().unwrap()));
    }
}
