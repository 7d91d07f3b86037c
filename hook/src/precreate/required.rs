//! Hook stage `precreate` of *every* container, where the machine's administrator requires annotations
//! (`install --required`): those that carry one, and those that no rule is about, pass as they are.

use std::collections::HashMap;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde::de::IgnoredAny;
use understudy_control::{ManagedFile, Refusal};
use understudy_policies::ceiling::Required;

use super::annotations::is_ours;
use super::config::Config;
use super::refused;
use super::storage::Storage;
use crate::installation::{Installation, guest_binary_directory};
use crate::{managed, refusals};

/// A larger configuration is nobody's; it passes through memory once.
const LARGEST: u64 = 64 * 1024 * 1024;

#[derive(Deserialize)]
struct Annotated {
    #[serde(default)]
    annotations: Option<HashMap<String, IgnoredAny>>,
}

/// The state directory may be the system's, of which a user sees only the binaries.
pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes);
    read.context("the configuration on stdin cannot be read")?;
    if bytes.len() as u64 > LARGEST {
        bail!("the configuration on stdin has more than {LARGEST} bytes");
    }
    let out = decide(state, bytes, managed::files())?;
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(&out).and_then(|()| stdout.flush());
    written.context("the configuration cannot be written to stdout")?;
    Ok(ExitCode::SUCCESS)
}

fn decide(state: &Path, bytes: Vec<u8>, managed: Result<Vec<ManagedFile>, Refusal>) -> Result<Vec<u8>> {
    let annotated: Annotated =
        serde_json::from_slice(&bytes).context("the configuration on stdin is not one JSON document")?;
    if annotated.annotations.iter().flatten().any(|(key, _)| is_ours(key)) {
        return Ok(bytes);
    }
    let rules = match managed.and_then(|files| managed::required(&files)) {
        Ok(rules) if rules.is_empty() => return Ok(bytes),
        rules => rules,
    };
    let config = Config::parse(&bytes)?;
    match rules.and_then(|rules| permitted(&config, &rules)) {
        Ok(()) => Ok(bytes),
        Err(refusal) => {
            if let Ok(installation) = Installation::load(state) {
                // What cannot be noted does not make the refusal weaker.
                let _ = refusals::note(&installation, &config.id, None, &refusal);
            }
            let document = refused::document(&config, &guest_binary_directory(state), &refusal);
            Ok(serde_json::to_vec(&document)?)
        }
    }
}

fn permitted(config: &Config, rules: &[Required]) -> Result<(), Refusal> {
    if let Some(rule) = rules.iter().find(|rule| rule.of.is_for_all()) {
        return Err(unannotated(rule));
    }
    let image = Storage::locate(config)?.described(config)?;
    match rules.iter().find(|rule| rule.of.matches(&image.names, &image.labels)) {
        Some(rule) => Err(unannotated(rule)),
        None => Ok(()),
    }
}

fn unannotated(rule: &Required) -> Refusal {
    Refusal::new(
        format!("managed rule `required` ({}): this container carries no understudy annotation", rule.place),
        "start it with --network=none --annotation understudy.harness=NAME (generic, if it is no known agent)",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{ID, Tree};
    use super::*;

    fn outcome(tree: &Tree, annotation: Option<&str>, managed: Result<&[&str], &str>) -> Value {
        let mut document = tree.config().document;
        document["annotations"].as_object_mut().unwrap().retain(|key, _| !is_ours(key));
        if let Some(key) = annotation {
            document["annotations"][key] = json!("x");
        }
        let bytes = document.to_string().into_bytes();
        let file = |text: &&str| ManagedFile::new("/m.toml", *text);
        let managed = managed.map(|texts| texts.iter().map(file).collect());
        let state = tree.installation().state;
        let out = decide(&state, bytes.clone(), managed.map_err(|why| Refusal::new(why, "mend it"))).unwrap();
        if out == bytes { json!("as it was") } else { serde_json::from_slice(&out).unwrap() }
    }

    fn refused(outcome: &Value, said: &str) {
        assert_eq!(outcome["process"]["args"][1], "refuse", "{outcome}");
        assert!(outcome["process"]["args"][3].as_str().unwrap().contains(said), "{outcome}");
    }

    fn tree() -> Tree {
        let tree = Tree::new();
        tree.describe_image(&["localhost/agents/claude:1"], json!({"agent": "yes"}));
        tree
    }

    #[test]
    fn containers_that_no_rule_is_about_pass_byte_for_byte() {
        let tree = tree();
        let others =
            "required = true\nrequired-images = \"localhost/other*\"\nrequired-labels = \"agent=no\"";
        for managed in [&[][..], &["hosts = []"], &["required = false"], &[others]] {
            assert_eq!(outcome(&tree, None, Ok(managed)), "as it was", "{managed:?}");
        }
    }

    #[test]
    fn those_with_an_annotation_are_another_stages_matter() {
        let tree = tree();
        for key in ["understudy.harness", "understudy.role", "Understudy.typo"] {
            assert_eq!(outcome(&tree, Some(key), Ok(&["required = true"])), "as it was");
        }
    }

    #[test]
    fn those_that_a_rule_is_about_are_refused_with_its_line() {
        let tree = tree();
        let label = "required = true\nrequired-labels = \"agent=*\"";
        for rule in ["required = true", "required = true\nrequired-images = \"*/agents/*\"", label] {
            refused(&outcome(&tree, None, Ok(&["", rule])), "managed rule `required` (/m.toml:1)");
        }
        let notes = tree.installation().refusals().join(format!("{ID}.json"));
        assert!(!notes.exists(), "there is no installation to note it in");
        tree.installation().save().unwrap();
        outcome(&tree, None, Ok(&["required = true"]));
        assert!(notes.exists());
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let tree = tree();
        refused(&outcome(&tree, None, Err("unreadable")), "unreadable");
        refused(&outcome(&tree, None, Ok(&["hots = 1"])), "/m.toml:1:1: unknown key");
        std::fs::remove_dir_all(tree.image()).unwrap();
        let rule = "required = true\nrequired-images = \"x\"";
        refused(&outcome(&tree, None, Ok(&[rule])), "manifest: no such file");
        assert!(decide(tree.path(), b"nonsense".to_vec(), Ok(Vec::new())).is_err());
    }
}
