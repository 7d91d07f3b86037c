//! Containers with a label where the annotation was meant: Podman runs hooks by annotations alone, so nothing refuses them.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Check;
use crate::child;
use crate::precreate::is_ours;

const LIMIT: Duration = Duration::from_secs(30);

/// As `podman ps --format json` lists it, as far as it is looked at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

pub(crate) fn check() -> Check {
    Check::new("no container has a label instead of an annotation", looked_at())
}

fn looked_at() -> Result<()> {
    let listed: Vec<Listed> = podman(&["ps", "--all", "--no-trunc", "--format", "json"])?;
    judge(&listed, |id| {
        let format = "{{json .Config.Annotations}}";
        let found: Option<BTreeMap<String, String>> =
            podman(&["container", "inspect", "--format", format, id])?;
        Ok(found.is_some_and(|annotations| annotations.keys().any(|key| is_ours(key))))
    })
}

/// `is_annotated`: by its id, whether Podman runs our hooks for it.
fn judge(listed: &[Listed], is_annotated: impl Fn(&str) -> Result<bool>) -> Result<()> {
    for container in listed {
        let Some(key) = container.labels.iter().flatten().map(|(key, _)| key).find(|key| is_ours(key)) else {
            continue;
        };
        let name = container.names.iter().flatten().next().unwrap_or(&container.id);
        ensure!(
            is_annotated(&container.id)?,
            "{name} has the label {key:?} and no annotation, so it is not protected at all (make it again with --annotation; \
             Annotation= in a Quadlet unit, annotations: in a compose file)"
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
        {"Id":"2","Names":["other"],"Labels":{"io.buildah.version":"1"}},
        {"Id":"3","Names":["both"],"Labels":{"understudy.harness":"x"}},
        {"Id":"4","Names":["meant"],"Labels":{"a":"b","Understudy.Harness":"x"}}
    ]"#;

    #[test]
    fn a_label_without_an_annotation_is_told_with_the_containers_name() {
        let listed: Vec<Listed> = serde_json::from_str(LISTED).unwrap();
        judge(&listed[..3], |id| if id == "3" { Ok(true) } else { bail!("{id} was looked at") }).unwrap();
        let error = judge(&listed, |id| Ok(id == "3")).unwrap_err().to_string();
        assert!(error.contains("meant") && error.contains("--annotation"), "{error}");
        assert!(judge(&listed, |_| bail!("gone")).is_err());
    }
}
