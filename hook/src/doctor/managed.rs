//! The rules of the machine: can they be followed, and is every container asked what they require of it?

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use understudy_control::{ManagedFile, Refusal};

use super::Check;
use crate::install::REQUIRED;
use crate::managed;

/// `directories` in the order in which Podman reads hook files. Nothing on a machine without rules.
pub(crate) fn checks(directories: &[PathBuf]) -> Vec<Check> {
    of(managed::files(), directories)
}

fn of(files: Result<Vec<ManagedFile>, Refusal>, directories: &[PathBuf]) -> Vec<Check> {
    let rules = files.and_then(|files| {
        let known = !files.is_empty();
        managed::required(&files).map(|required| (known, required))
    });
    let required = match rules {
        Ok((false, _)) => return Vec::new(),
        Ok((true, required)) => required,
        Err(refusal) => return vec![Check::new("managed rules", Err(refusal.into()))],
    };
    let mut checks = vec![Check::new("managed rules", Ok(()))];
    checks.extend(
        required
            .first()
            .map(|rule| Check::new(format!("hook file for `required` ({})", rule.place), asked(directories))),
    );
    checks
}

fn asked(directories: &[PathBuf]) -> Result<()> {
    const REMEDY: &str = "as root: understudy-hook install --required";
    // A later directory's file replaces an earlier one's of the same name.
    let file = directories.iter().rev().map(|directory| directory.join(REQUIRED)).find(|path| path.exists());
    let file = file.context(format!("there is none, so that nothing is required ({REMEDY})"))?;
    let text = fs::read(&file).with_context(|| super::unreadable(&file))?;
    let hook: serde_json::Value = serde_json::from_slice(&text)?;
    let binary = hook["hook"]["path"].as_str().unwrap_or_default();
    ensure!(hook["when"]["always"] == true, "{} is not for every container ({REMEDY})", file.display());
    ensure!(Path::new(binary).is_file(), "{} names a program that is gone ({REMEDY})", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, directories: &[PathBuf]) -> Vec<String> {
        let file = ManagedFile::new("/m.toml", text);
        of(Ok(vec![file]), directories).iter().map(Check::line).collect()
    }

    #[test]
    fn a_machine_without_rules_is_well() {
        assert!(of(Ok(Vec::new()), &[]).is_empty());
    }

    #[test]
    fn rules_that_cannot_be_followed_are_found() {
        let found = of(Err(Refusal::new("others can write it", "mend it")), &[]);
        assert!(found[0].line().contains("others can write it"), "{found:?}");
        assert!(lines("hots = 1", &[])[0].starts_with("FAIL  managed rules: /m.toml:1:1"));
        assert_eq!(lines("deny = \"a.example\"", &[]), ["ok    managed rules"]);
    }

    #[test]
    fn what_is_required_needs_a_hook_for_every_container() {
        let scratch = tempfile::tempdir().unwrap();
        let directories = [scratch.path().to_owned(), "/nonexistent".into()];
        let verdict = || lines("required = true", &directories)[1].clone();
        assert!(verdict().contains("nothing is required"), "{}", verdict());
        let write = |when: &str, path: &str| {
            let text = format!(r#"{{"when":{when},"hook":{{"path":"{path}"}}}}"#);
            fs::write(scratch.path().join(REQUIRED), text).unwrap();
        };
        write(r#"{"always":true}"#, "/proc/self/exe");
        assert!(verdict().starts_with("ok"), "{}", verdict());
        write(r#"{"always":true}"#, "/nonexistent");
        assert!(verdict().contains("a program that is gone"), "{}", verdict());
        write("{}", "/proc/self/exe");
        assert!(verdict().contains("not for every container"), "{}", verdict());
    }
}
