//! Namespaces must be the container's own.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Spec};
use understudy_control::Refusal;
use understudy_control::annotation::{GUARDED, INBOUND, NETWORK};

use super::super::joined::Joined;
use super::Surroundings;
use crate::network::mode::Mode;

pub(super) fn check(spec: &Spec, surroundings: &Surroundings<'_>) -> Result<(), Refusal> {
    let Surroundings { mode, joined: shared, .. } = *surroundings;
    let all = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    let find = |typ| all.into_iter().flatten().find(move |namespace| namespace.typ() == typ);
    network(find(LinuxNamespaceType::Network), mode, shared)?;
    if *mode == Mode::Sealed && shared.is_none() && configured_later(spec, &surroundings.storage.userdata) {
        return Err(guarded_at_the_most("a network is configured for the container"));
    }
    own("pid", find(LinuxNamespaceType::Pid))?;
    let ipc = find(LinuxNamespaceType::Ipc);
    if !shared.is_some_and(|shared| shared.pod && joins(ipc, &shared.path("ipc"))) {
        own("ipc", ipc)?;
    }
    if find(LinuxNamespaceType::Mount).is_none_or(joined) {
        return Err(Refusal::new(
            "the container has no mount namespace of its own",
            "start it with podman run",
        ));
    }
    if find(LinuxNamespaceType::User).is_some_and(joined) {
        return Err(Refusal::new(
            "the container joins the user namespace of another",
            "remove --userns (of a pod: create it without)",
        ));
    }
    Ok(())
}

fn joined(namespace: &LinuxNamespace) -> bool {
    namespace.path().is_some()
}

fn joins(namespace: Option<&LinuxNamespace>, path: &Path) -> bool {
    namespace.and_then(|namespace| namespace.path().as_deref()) == Some(path)
}

fn network(namespace: Option<&LinuxNamespace>, mode: &Mode, shared: Option<&Joined>) -> Result<(), Refusal> {
    if shared.is_some_and(|shared| joins(namespace, &shared.path("net"))) {
        return Ok(());
    }
    match namespace {
        None => Err(no_other_network("--network=host shares the host's network")),
        Some(namespace) => match namespace.path() {
            None => Ok(()),
            Some(path) if path.starts_with("/proc") => Err(no_other_network(
                "the container joins the network of another that is not protected (--network=container:…)",
            )),
            Some(path) if mode.is_guarded() && is_made_by_podman(path) => Ok(()),
            Some(path) if mode.is_guarded() => Err(no_other_network(&format!(
                "the container joins the network namespace {}, which may be another's, too (--network=ns:…)",
                super::shown(path)
            ))),
            Some(_) => Err(guarded_at_the_most("the container has a network other than none")),
        },
    }
}

/// `…/netns/netns-UUID`, made for this container alone. A name of that kind that `ip netns add` made is the user's own doing.
fn is_made_by_podman(path: &Path) -> bool {
    let uuid = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("netns-"));
    path.parent().is_some_and(|parent| parent.ends_with("netns"))
        && uuid
            .is_some_and(|uuid| uuid.len() == 36 && uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()))
}

/// With a user namespace Podman makes the network only after the container, and its namespace has no path yet; but
/// Podman mounts a `resolv.conf` of its own into every container that has a network.
fn configured_later(spec: &Spec, userdata: &[PathBuf; 2]) -> bool {
    spec.mounts().iter().flatten().any(|mount| {
        mount.destination().ends_with("resolv.conf")
            && mount
                .source()
                .as_ref()
                .is_some_and(|source| userdata.iter().any(|own| source.starts_with(own)))
    })
}

fn no_other_network(reason: &str) -> Refusal {
    Refusal::new(reason, "add --network=none: traffic then goes through the sidecar, and nowhere else")
}

fn guarded_at_the_most(reason: &str) -> Refusal {
    Refusal::new(
        reason,
        format!(
            "add --network=none; or, if something has to reach the container from outside, --annotation \
             {NETWORK}={GUARDED} {INBOUND}=PORT,…: then rules alone keep traffic from leaving, and whoever reaches those \
             ports can be answered with anything"
        ),
    )
}

fn own(name: &str, namespace: Option<&LinuxNamespace>) -> Result<(), Refusal> {
    let whose = match namespace {
        None => "the host's",
        Some(namespace) if joined(namespace) => "another container's",
        Some(_) => return Ok(()),
    };
    Err(Refusal::new(
        format!("the container shares {whose} {name} namespace (--{name}, or a pod's --share)"),
        format!("remove --{name}; of a pod, leave {name} out of --share"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::tests::{Tree, config_of};
    use super::*;

    fn refusal(change: impl FnOnce(&mut Vec<Value>)) -> Refusal {
        let tree = Tree::new();
        let mut document = tree.config().document;
        change(document["linux"]["namespaces"].as_array_mut().unwrap());
        tree.check(&config_of(&document)).unwrap_err()
    }

    fn with(typ: &str, namespace: Option<Value>) -> Refusal {
        refusal(|all| {
            all.retain(|namespace| namespace["type"] != typ);
            all.extend(namespace);
        })
    }

    #[test]
    fn every_network_but_none_is_refused_with_the_flag() {
        for (namespace, says) in [
            (None, "--network=host"),
            (Some(json!({"type": "network", "path": "/proc/77/ns/net"})), "container:"),
            (Some(json!({"type": "network", "path": "/run/user/1000/netns/netns-1"})), "other than none"),
        ] {
            let refusal = with("network", namespace);
            assert!(refusal.reason.contains(says), "{refusal:?}");
            assert!(refusal.remedy.contains("add --network=none"));
            let own = says == "other than none";
            assert_eq!(refusal.remedy.contains("understudy.network=guarded understudy.inbound=PORT"), own);
        }
    }

    #[test]
    fn a_network_that_is_configured_later_is_refused() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        let source = tree.run_userdata().join("resolv.conf");
        document["mounts"].as_array_mut().unwrap().push(
            json!({"destination": "/etc/resolv.conf", "type": "bind", "source": source, "options": ["bind"]}),
        );
        let config = config_of(&document);
        assert!(tree.check(&config).unwrap_err().remedy.contains("--network=none"));
        tree.check_in(&Mode::Guarded { inbound: Vec::new() }, &config).unwrap();
    }

    #[test]
    fn guarded_takes_a_network_of_its_own_and_no_other() {
        let guarded = Mode::Guarded { inbound: vec![3000] };
        let uuid = "470d7311-fef1-32d3-879d-131afc76c472";
        let tree = Tree::new();
        for (namespace, passes) in [
            (Some(json!({"type": "network"})), true),
            (Some(json!({"type": "network", "path": format!("/run/user/1000/netns/netns-{uuid}")})), true),
            (Some(json!({"type": "network", "path": "/proc/77/ns/net"})), false),
            (Some(json!({"type": "network", "path": "/run/netns/shared"})), false),
            (Some(json!({"type": "network", "path": format!("/tmp/netns-{uuid}")})), false),
            (None, false),
        ] {
            let mut document = tree.config().document;
            let all = document["linux"]["namespaces"].as_array_mut().unwrap();
            all.retain(|namespace| namespace["type"] != "network");
            all.extend(namespace.clone());
            let checked = tree.check_in(&guarded, &config_of(&document));
            assert_eq!(checked.is_ok(), passes, "{namespace:?} {checked:?}");
        }
    }

    #[test]
    fn a_pods_network_and_ipc_are_joined_and_those_of_its_infra_container_alone() {
        let tree = Tree::new();
        let check = |pod: bool, network: &str, ipc: Value| {
            let mut document = tree.config().document;
            let all = document["linux"]["namespaces"].as_array_mut().unwrap();
            all.retain(|namespace| namespace["type"] != "network" && namespace["type"] != "ipc");
            all.extend([json!({"type": "network", "path": network}), ipc]);
            let joined = Joined { pid: 77, pod, with: None };
            tree.check_joined(&Mode::Sealed, Some(&joined), &config_of(&document))
        };
        let own = json!({"type": "ipc"});
        let shared = |pid: u32| json!({"type": "ipc", "path": format!("/proc/{pid}/ns/ipc")});
        check(true, "/proc/77/ns/net", shared(77)).unwrap();
        check(true, "/proc/77/ns/net", own.clone()).unwrap();
        check(false, "/proc/77/ns/net", own.clone()).unwrap();
        check(true, "/proc/78/ns/net", own).unwrap_err();
        check(true, "/proc/77/ns/net", shared(78)).unwrap_err();
        check(false, "/proc/77/ns/net", shared(77)).unwrap_err();
    }

    #[test]
    fn shared_pid_and_ipc_are_refused() {
        for name in ["pid", "ipc"] {
            assert!(with(name, None).reason.contains("the host's"));
            let path = format!("/proc/77/ns/{name}");
            let refusal = with(name, Some(json!({"type": name, "path": path})));
            assert!(refusal.reason.contains("another container's") && refusal.reason.contains(name));
        }
        assert!(
            with("user", Some(json!({"type": "user", "path": "/proc/77/ns/user"}))).reason.contains("user")
        );
        assert!(with("mount", None).reason.contains("mount namespace"));
    }
}
