//! What would undo the promise is refused: by flag, and with what to do instead.

mod capabilities;
mod devices;
mod mounts;
mod namespaces;
mod protected;
mod shared;

use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use understudy_control::Refusal;

use super::host::Host;
use super::joined::Joined;
use super::storage::Storage;
use crate::installation::Installation;
use crate::network::mode::Mode;

pub(crate) use capabilities::NOT_NEEDED;
pub(crate) use mounts::Bound;

pub(crate) struct Surroundings<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) storage: &'a Storage,
    /// Its root file system, as it is seen by this stage.
    pub(crate) root: &'a Path,
    /// What is mounted into the sidecar: its state holds the authority's key.
    pub(crate) private: &'a [PathBuf],
    pub(crate) mode: &'a Mode,
    /// Whose network it joins, where that may be.
    pub(crate) joined: Option<&'a Joined>,
    pub(crate) host: &'a dyn Host,
}

/// Answers with what of the host is mounted, as it was when it was looked at.
pub(crate) fn check(spec: &Spec, surroundings: &Surroundings<'_>) -> Result<Bound, Refusal> {
    privileged(spec)?;
    namespaces::check(spec, surroundings)?;
    capabilities::check(spec)?;
    kernel_settings(spec)?;
    devices::check(spec, surroundings.host)?;
    mounts::check(spec, surroundings)
}

fn privileged(spec: &Spec) -> Result<(), Refusal> {
    let annotation = spec.annotations().as_ref().and_then(|all| all.get("io.podman.annotations.privileged"));
    if annotation.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(Refusal::new("--privileged takes every boundary away", "remove --privileged"));
    }
    Ok(())
}

/// With `/proc/sys` writable, uid 0 of a rootful container sets `kernel.core_pattern` without any capability.
fn kernel_settings(spec: &Spec) -> Result<(), Refusal> {
    let read_only = spec.linux().as_ref().and_then(|linux| linux.readonly_paths().as_ref());
    for path in ["/proc/sys", "/proc/sysrq-trigger"] {
        if !read_only.into_iter().flatten().any(|covered| covered == path) {
            return Err(Refusal::new(
                format!("{path} is not read-only (--security-opt unmask)"),
                "remove --security-opt unmask",
            ));
        }
    }
    Ok(())
}

/// For messages: paths may hold anything.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Tree, config_of, sample};
    use super::*;

    fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> Option<Refusal> {
        let tree = Tree::new();
        let mut document = tree.config().document;
        change(&mut document);
        tree.check(&config_of(&document)).err()
    }

    #[test]
    fn a_sealed_container_passes() {
        assert_eq!(refusal(|_| {}), None);
    }

    #[test]
    fn privileged_is_refused() {
        let found = refusal(|d| d["annotations"]["io.podman.annotations.privileged"] = json!("TRUE"));
        assert!(found.unwrap().reason.contains("--privileged"));
        assert!(sample("none-5.4.2").spec.annotations().as_ref().is_some_and(|all| !all.is_empty()));
    }

    #[test]
    fn unmasked_kernel_settings_are_refused() {
        let found = refusal(|d| d["linux"]["readonlyPaths"] = json!(["/proc/bus"]));
        assert!(found.unwrap().reason.contains("/proc/sys"));
        assert!(refusal(|d| d["linux"]["readonlyPaths"] = json!(null)).is_some());
    }
}
