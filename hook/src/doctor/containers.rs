//! Containers that Podman runs, or would run, without our hooks.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Check;
use crate::child;
use crate::installation::Installation;
use crate::precreate::is_ours;

const LIMIT: Duration = Duration::from_secs(30);

/// The annotation of a sidecar, which is no agent and has no record.
const ROLE: &str = "understudy.role";

/// As `podman ps --format json` lists it, as far as it is looked at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    state: String,
}

impl Listed {
    fn name(&self) -> &str {
        self.names.iter().flatten().next().unwrap_or(&self.id)
    }
}

type Annotations = BTreeMap<String, String>;

pub(crate) fn checks(installation: &Installation) -> [Check; 2] {
    let listed = podman::<Vec<Listed>>(&["ps", "--all", "--no-trunc", "--format", "json"]);
    let (labels, protected) = match &listed {
        Ok(listed) => {
            let is_known = |id: &str| installation.containers().join(id).join("record.json").exists();
            (judge_labels(listed, annotations), judge_protection(listed, annotations, is_known))
        }
        Err(error) => {
            let again = || Err(anyhow::anyhow!("{error:#}"));
            (again(), again())
        }
    };
    [
        Check::new("no container has a label instead of an annotation", labels),
        Check::new("every running container with an annotation was started by the hook", protected),
    ]
}

/// None of a container that is gone.
fn annotations(id: &str) -> Result<Option<Annotations>> {
    let format = "{{json .Config.Annotations}}";
    match podman::<Option<Annotations>>(&["container", "inspect", "--format", format, id]) {
        Ok(annotations) => Ok(Some(annotations.unwrap_or_default())),
        Err(error) => {
            let exists = child::run(Command::new("podman").args(["container", "exists", id]), b"", LIMIT)?;
            if exists.status.code() == Some(1) { Ok(None) } else { Err(error) }
        }
    }
}

/// Podman runs hooks by annotations alone, so nothing refuses a container that has a label where the annotation was meant.
fn judge_labels(listed: &[Listed], annotations: impl Fn(&str) -> Result<Option<Annotations>>) -> Result<()> {
    for container in listed {
        let Some(key) = container.labels.iter().flatten().map(|(key, _)| key).find(|key| is_ours(key)) else {
            continue;
        };
        let annotated = annotations(&container.id)?.is_none_or(|found| found.keys().any(|key| is_ours(key)));
        ensure!(
            annotated,
            "{} has the label {key:?} and no annotation, so it is not protected at all (make it again with --annotation; \
             Annotation= in a Quadlet unit, annotations: in a compose file)",
            container.name()
        );
    }
    Ok(())
}

/// A container that was made while `--hooks-dir` named our hooks is started without them by a Podman that does not read that directory.
///
/// `is_known`: whether the hook has a record of it.
fn judge_protection(
    listed: &[Listed],
    annotations: impl Fn(&str) -> Result<Option<Annotations>>,
    is_known: impl Fn(&str) -> bool,
) -> Result<()> {
    for container in listed.iter().filter(|container| container.state == "running") {
        if is_known(&container.id) {
            continue;
        }
        let Some(found) = annotations(&container.id)? else { continue };
        let asked = found.keys().any(|key| is_ours(key) && key != ROLE);
        ensure!(
            !asked,
            "{0} runs without the protection that its annotations ask for: Podman did not run the hook when it started (podman stop {0}; \
             make `podman info` read the directory of the hooks: understudy-hook install; podman start {0})",
            container.name()
        );
    }
    Ok(())
}

fn podman<T: DeserializeOwned>(arguments: &[&str]) -> Result<T> {
    let mut command = Command::new("podman");
    let output = child::run(command.args(arguments), b"", LIMIT)?;
    let what = || format!("podman {}", arguments.join(" "));
    ensure!(output.status.success(), "{}: {}", what(), output.stderr.trim());
    serde_json::from_str(&output.stdout).with_context(|| format!("{}: not understood", what()))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    const LISTED: &str = r#"[
        {"Id":"1","Names":["plain"],"Labels":null,"State":"exited"},
        {"Id":"2","Names":["other"],"Labels":{"io.buildah.version":"1"},"State":"running"},
        {"Id":"3","Names":["both"],"Labels":{"understudy.harness":"x"},"State":"created"},
        {"Id":"4","Names":["meant"],"Labels":{"a":"b","Understudy.Harness":"x"},"State":"running"}
    ]"#;

    fn listed() -> Vec<Listed> {
        serde_json::from_str(LISTED).unwrap()
    }

    fn annotated(key: &str) -> Annotations {
        BTreeMap::from([(key.to_owned(), "x".to_owned())])
    }

    #[test]
    fn a_label_without_an_annotation_is_told_with_the_containers_name() {
        let third =
            |id: &str| if id == "3" { Ok(Some(annotated("understudy.harness"))) } else { bail!("{id}") };
        judge_labels(&listed()[..3], third).unwrap();
        let only_third =
            |id: &str| Ok(Some(if id == "3" { annotated("understudy.policy") } else { annotated("x") }));
        let error = judge_labels(&listed(), only_third).unwrap_err().to_string();
        assert!(error.contains("meant") && error.contains("--annotation"), "{error}");
        assert!(judge_labels(&listed(), |_| bail!("unreadable")).is_err());
        judge_labels(&listed(), |_| Ok(None)).unwrap();
    }

    #[test]
    fn a_container_that_runs_without_the_hook_is_told_with_its_name() {
        let asks = |_: &str| Ok(Some(annotated("understudy.harness")));
        let error = judge_protection(&listed(), asks, |id| id == "2").unwrap_err().to_string();
        assert!(error.contains("podman stop meant") && error.contains("did not run the hook"), "{error}");
        judge_protection(&listed(), asks, |id| id == "2" || id == "4").unwrap();
        judge_protection(&listed(), |_| Ok(Some(annotated(ROLE))), |_| false).unwrap();
        judge_protection(&listed(), |_| Ok(Some(annotated("else"))), |_| false).unwrap();
        judge_protection(&listed(), |_| Ok(None), |_| false).unwrap();
        assert!(judge_protection(&listed(), |_| bail!("unreadable"), |_| false).is_err());
    }
}
