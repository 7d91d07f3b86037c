//! Whose network namespace the container joins, if it is another's.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use understudy_control::{ContainerId, Refusal};

use super::storage::Storage;
use crate::installation::Installation;
use crate::network::mode::Mode;
use crate::network::netlink;
use crate::network::netns::{Forbidden, Netns};
use crate::process::Process;
use crate::shared::{self, Neighbour};

/// Podman writes it (with the id of the pod's infra container, which holds the namespaces) for members of a pod.
const SANDBOX: &str = "io.kubernetes.cri-o.SandboxID";

/// The process whose network namespace is joined: a pod's, or that of a container that is protected itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) pid: i32,
    /// Whether that process is a pod's infra container, which shares more than its network.
    pub(crate) pod: bool,
    /// A container that is attached there. None: this one is the first.
    pub(crate) with: Option<ContainerId>,
}

impl Joined {
    /// The path by which Podman names a namespace of that process.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join("ns").join(name)
    }
}

/// None where the namespace is the container's own, or nothing that may be joined: the guard tells which.
pub(super) fn joined(
    spec: &Spec,
    installation: &Installation,
    storage: &Storage,
    mode: &Mode,
) -> Result<Option<Joined>, Refusal> {
    let Some(pid) = process_of(spec) else { return Ok(None) };
    // The annotation alone is anybody's.
    let sandbox = spec.annotations().as_ref().and_then(|all| all.get(SANDBOX));
    let pod = sandbox.and_then(|id| id.parse().ok()).is_some_and(|id| storage.is_first_process(&id, pid));
    let unexamined = |error: anyhow::Error| {
        Refusal::new(
            format!("the network that the container joins cannot be examined: {error:#}"),
            "start the pod, or the container whose network it is, again",
        )
    };
    let forbidden = Forbidden::host().map_err(unexamined)?;
    let netns = Process::open(pid).and_then(|process| Netns::of_container(&process, &forbidden));
    let netns = netns.map_err(unexamined)?;
    let with = shared::neighbour(installation, &netns).map_err(unexamined)?.map(|Neighbour { id, .. }| id);
    if !pod && with.is_none() {
        return Ok(None);
    }
    if mode.is_guarded() {
        return Err(Refusal::new(
            "a network that containers share is never guarded: one without annotations could undo the rules",
            "create the pod with --network=none, and remove understudy.network",
        ));
    }
    netns.inside(netlink::only_loopback).map_err(|error| {
        Refusal::new(
            format!("the container joins a network with a way out: {error:#}"),
            "create the pod with --network=none (podman pod create, podman kube play): its containers then reach \
             each other on localhost, and everything else through the sidecar",
        )
    })?;
    Ok(Some(Joined { pid, pod, with }))
}

/// `/proc/PID/ns/net` is how Podman names the namespace of another container.
fn process_of(spec: &Spec) -> Option<i32> {
    let all = spec.linux().as_ref()?.namespaces().as_ref()?;
    let network = all.iter().find(|namespace| namespace.typ() == LinuxNamespaceType::Network)?;
    let path = network.path().as_ref()?.to_str()?;
    path.strip_prefix("/proc/")?.strip_suffix("/ns/net")?.parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Tree, config_of};
    use super::*;

    fn spec(path: &str) -> Spec {
        let tree = Tree::new();
        let mut document = tree.config().document;
        let all = document["linux"]["namespaces"].as_array_mut().unwrap();
        all.retain(|namespace| namespace["type"] != "network");
        all.push(json!({"type": "network", "path": path}));
        config_of(&document).spec
    }

    #[test]
    fn only_the_path_of_a_process_is_one() {
        assert_eq!(process_of(&spec("/proc/77/ns/net")), Some(77));
        for path in [
            "/proc/self/ns/net",
            "/proc/77/ns/../ns/net",
            "/proc/77/task/78/ns/net",
            "/proc/-1/ns/net",
            "/proc/0/ns/net",
            "/run/netns/x",
            "/proc/77/root/proc/1/ns/net",
        ] {
            assert_eq!(process_of(&spec(path)), None, "{path}");
        }
        assert_eq!(process_of(&Tree::new().config().spec), None);
    }

    #[test]
    fn a_namespace_of_nobody_or_of_the_host_is_refused_or_not_joined() {
        let tree = Tree::new();
        let storage = Storage::locate(&tree.config()).unwrap();
        let gone = joined(
            &spec(&format!("/proc/{}/ns/net", i32::MAX)),
            &tree.installation(),
            &storage,
            &Mode::Sealed,
        );
        assert!(gone.unwrap_err().reason.contains("cannot be examined"));
        let host = format!("/proc/{}/ns/net", std::process::id());
        let host = joined(&spec(&host), &tree.installation(), &storage, &Mode::Sealed).unwrap_err();
        assert!(host.reason.contains("shares the network namespace of the hook"), "{host:?}");
    }
}
