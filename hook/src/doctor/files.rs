//! The hook files, as Podman reads them: a file that is missing is passed over without a word, a broken one stops every
//! container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::{Check, unreadable};

const STAGES: [&str; 7] =
    ["precreate", "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// The stages that the hook files of an installation name.
const NEEDED: [&str; 4] = ["precreate", "createRuntime", "poststart", "poststop"];

/// As far as it is looked at; oci-hooks(5).
#[derive(Debug, Clone, Deserialize)]
struct HookFile {
    version: String,
    hook: Hook,
    #[serde(rename = "when")]
    _when: serde_json::Map<String, serde_json::Value>,
    stages: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Hook {
    path: PathBuf,
    timeout: Option<i64>,
}

/// `directories` in the order in which Podman reads them; `binary` is what ours run.
pub(crate) fn checks(directories: &[PathBuf], binary: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    // A later directory's file replaces an earlier one's of the same name.
    let mut effective: BTreeMap<String, HookFile> = BTreeMap::new();
    for directory in directories {
        for (name, path) in json_files(directory) {
            match read(&path) {
                Ok(file) => {
                    effective.insert(name, file);
                }
                Err(error) => {
                    let what = format!("hook file {}", path.display());
                    let remedy = "it stops every container (mend or remove it)";
                    checks.push(Check::new(what, Err(error.context(remedy))));
                }
            }
        }
    }
    let shown: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
    let found = if shown.is_empty() { "no directory".to_owned() } else { shown.join(", ") };
    checks.extend(NEEDED.iter().map(|stage| {
        Check::new(format!("hook file for {stage}"), stage_check(&effective, stage, binary, &found))
    }));
    checks
}

fn json_files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeMap::new() };
    entries
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, _)| name.ends_with(".json"))
        .collect()
}

fn read(path: &Path) -> Result<HookFile> {
    let text = fs::read(path).with_context(|| unreadable(path))?;
    let file: HookFile = serde_json::from_slice(&text)?;
    ensure!(file.version == "1.0.0", "its version is {:?}, Podman knows 1.0.0", file.version);
    if let Some(stage) = file.stages.iter().find(|stage| !STAGES.contains(&stage.as_str())) {
        bail!("unknown stage {stage:?}");
    }
    Ok(file)
}

fn stage_check(files: &BTreeMap<String, HookFile>, stage: &str, binary: &Path, found: &str) -> Result<()> {
    let ours = files.values().find(|file| file.hook.path == binary && file.stages.iter().any(|s| s == stage));
    let Some(file) = ours else {
        bail!("none in {found} runs {} (run: understudy-hook install)", binary.display());
    };
    ensure!(
        file.hook.timeout.is_some_and(|timeout| timeout > 0),
        "it has no timeout, so a hook could hold up Podman for ever (run: understudy-hook install)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &str = "/state/bin/understudy-hook";

    fn hook(stage: &str, path: &str) -> String {
        format!(
            r#"{{"version":"1.0.0","hook":{{"path":"{path}","timeout":10}},"when":{{"always":true}},"stages":["{stage}"]}}"#
        )
    }

    fn complete() -> tempfile::TempDir {
        let scratch = tempfile::tempdir().unwrap();
        for stage in NEEDED {
            fs::write(scratch.path().join(format!("{stage}.json")), hook(stage, BINARY)).unwrap();
        }
        scratch
    }

    fn failures(directories: &[&Path]) -> Vec<String> {
        let directories: Vec<PathBuf> = directories.iter().map(|path| path.to_path_buf()).collect();
        checks(&directories, Path::new(BINARY))
            .into_iter()
            .filter(|check| check.result.is_err())
            .map(|check| check.line())
            .collect()
    }

    #[test]
    fn four_stages_are_needed() {
        let scratch = complete();
        assert!(failures(&[scratch.path()]).is_empty());
        fs::remove_file(scratch.path().join("precreate.json")).unwrap();
        let failures_ = failures(&[scratch.path()]);
        assert!(failures_.len() == 1 && failures_[0].contains("precreate"), "{failures_:?}");
        assert_eq!(failures(&[]).len(), NEEDED.len());
    }

    #[test]
    fn a_hook_of_another_binary_or_without_timeout_does_not_count() {
        let scratch = complete();
        let path = scratch.path().join("precreate.json");
        fs::write(&path, hook("precreate", "/other")).unwrap();
        assert_eq!(failures(&[scratch.path()]).len(), 1);
        fs::write(&path, hook("precreate", BINARY).replace(",\"timeout\":10", "")).unwrap();
        assert_eq!(failures(&[scratch.path()]).len(), 1);
        fs::write(&path, hook("precreate", BINARY).replace("10", "0")).unwrap();
        assert_eq!(failures(&[scratch.path()]).len(), 1);
    }

    #[test]
    fn a_later_directory_wins() {
        let (first, later) = (complete(), tempfile::tempdir().unwrap());
        fs::write(later.path().join("precreate.json"), hook("precreate", "/other")).unwrap();
        assert_eq!(failures(&[first.path(), later.path()]).len(), 1);
        assert!(failures(&[later.path(), first.path()]).is_empty());
    }

    #[test]
    fn a_broken_file_of_somebody_else_is_named() {
        let scratch = complete();
        for broken in ["{", "{}", &hook("nonsense", "/x"), &hook("precreate", "/x").replace("1.0.0", "2.0.0")]
        {
            fs::write(scratch.path().join("other.json"), broken).unwrap();
            let failures = failures(&[scratch.path()]);
            assert!(failures.len() == 1 && failures[0].contains("other.json"), "{failures:?}");
        }
        fs::rename(scratch.path().join("other.json"), scratch.path().join("other.txt")).unwrap();
        assert!(failures(&[scratch.path()]).is_empty());
    }
}
