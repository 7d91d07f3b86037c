//! The configuration of a refused container: made anew out of an allow-list, so that nothing has to be thought of to
//! be taken away. All that it runs is our own binary, which says why.

use std::path::Path;

use serde_json::{Map, Value, json};
use understudy_control::Refusal;

use super::config::Config;
use super::{GUEST_BINARY, GUEST_BINARY_DIRECTORY};

/// Longer texts are cut: they become arguments.
const LONGEST: usize = 2000;

/// Beginnings of annotations that Podman and systemd need for their own book-keeping.
const PODMANS: [&str; 5] = [
    "io.container.manager",
    "io.podman.annotations.",
    "io.kubernetes.cri-o.",
    "org.opencontainers.image.stopSignal",
    "org.systemd.property.",
];

const MASKED: [&str; 11] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys/fs/selinux",
    "/sys/dev/block",
];

const READ_ONLY: [&str; 6] =
    ["/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// `binaries` is the directory that holds our binary and nothing else.
pub(crate) fn document(config: &Config, binaries: &Path, refusal: &Refusal) -> Value {
    let original = &config.document;
    let mut document = json!({
        "ociVersion": original["ociVersion"],
        "process": process(&original["process"], refusal),
        "root": {"path": original["root"]["path"], "readonly": true},
        "mounts": mounts(original, binaries),
        "linux": linux(&original["linux"]),
        "annotations": annotations(&original["annotations"]),
    });
    if let (Some(document), Value::String(name)) = (document.as_object_mut(), &original["hostname"]) {
        document.insert("hostname".into(), json!(name));
    }
    document
}

fn process(original: &Value, refusal: &Refusal) -> Value {
    let mut process = json!({
        "user": original["user"],
        "args": arguments(refusal),
        "env": ["PATH=/nonexistent"],
        "cwd": "/",
        "capabilities": {"bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": []},
        "noNewPrivileges": true,
    });
    if let Some(process) = process.as_object_mut() {
        keep(original, process, &["terminal", "consoleSize", "selinuxLabel", "apparmorProfile"]);
    }
    process
}

fn arguments(refusal: &Refusal) -> Value {
    let mut arguments = vec![GUEST_BINARY.to_owned(), "refuse".to_owned()];
    arguments.extend(refusal.temporary.then(|| "--temporary".to_owned()));
    arguments.extend(["--".to_owned(), argument(&refusal.reason), argument(&refusal.remedy)]);
    json!(arguments)
}

fn mounts(original: &Value, binaries: &Path) -> Value {
    // The group of terminals is mapped differently by every kind of user namespace: Podman knows.
    let group = original["mounts"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|mount| mount["destination"] == "/dev/pts" && mount["type"] == "devpts")
        .and_then(|mount| mount["options"].as_array()?.iter().find(|option| is_group(option)));
    let mut pts = vec![
        json!("nosuid"),
        json!("noexec"),
        json!("newinstance"),
        json!("ptmxmode=0666"),
        json!("mode=0620"),
    ];
    pts.extend(group.cloned());
    json!([
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "noexec", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": pts},
        {"destination": GUEST_BINARY_DIRECTORY, "type": "bind", "source": binaries,
         "options": ["bind", "ro", "nosuid", "nodev", "rprivate"]},
    ])
}

fn is_group(option: &Value) -> bool {
    option
        .as_str()
        .and_then(|option| option.strip_prefix("gid="))
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn linux(original: &Value) -> Value {
    let mut namespaces: Vec<Value> =
        ["pid", "network", "ipc", "uts", "mount"].iter().map(|name| json!({"type": name})).collect();
    let inherited = |namespace: &&Value| namespace["type"] == "user" || namespace["type"] == "cgroup";
    namespaces.extend(original["namespaces"].as_array().into_iter().flatten().filter(inherited).cloned());
    let mut linux = Map::from_iter([
        ("namespaces".to_owned(), json!(namespaces)),
        ("resources".to_owned(), json!({})),
        ("maskedPaths".to_owned(), json!(MASKED)),
        ("readonlyPaths".to_owned(), json!(READ_ONLY)),
    ]);
    keep(original, &mut linux, &["uidMappings", "gidMappings", "cgroupsPath", "mountLabel"]);
    Value::Object(linux)
}

fn annotations(original: &Value) -> Value {
    let all = original.as_object().into_iter().flatten();
    let kept = all.filter(|(key, _)| PODMANS.iter().any(|start| key.starts_with(start)));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn keep(original: &Value, into: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        if let Some(value) = original.get(name) {
            into.insert((*name).to_owned(), value.clone());
        }
    }
}

/// A NUL cannot be in an argument.
fn argument(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Tree, config_of};
    use super::*;

    fn refused(change: impl FnOnce(&mut Value)) -> Value {
        let tree = Tree::new();
        let mut original = tree.config().document;
        change(&mut original);
        let refusal = Refusal::new("the reason\0", "the remedy");
        document(&config_of(&original), &tree.installation().guest_binary_directory(), &refusal)
    }

    #[test]
    fn the_process_is_ours_and_has_no_power() {
        let document = refused(|_| {});
        let args: Vec<String> = serde_json::from_value(document["process"]["args"].clone()).unwrap();
        assert_eq!(args, [GUEST_BINARY, "refuse", "--", "the reason", "the remedy"]);
        let temporary = arguments(&Refusal::new("-r", "m").temporary());
        assert_eq!(temporary, json!([GUEST_BINARY, "refuse", "--temporary", "--", "-r", "m"]));
        assert_eq!(document["process"]["env"], json!(["PATH=/nonexistent"]));
        assert_eq!(document["process"]["capabilities"]["bounding"], json!([]));
        assert_eq!(document["process"]["noNewPrivileges"], true);
    }

    #[test]
    fn nothing_of_the_host_is_left() {
        let secret = json!({"destination": "/run/secrets/k", "type": "bind", "source": "/secret", "options": ["bind"]});
        let document = refused(|original| {
            original["mounts"].as_array_mut().unwrap().push(secret);
            original["process"]["env"].as_array_mut().unwrap().push(json!("KEY=real"));
            original["hooks"] = json!({"startContainer": [{"path": "/evil"}]});
            original["linux"]["devices"] = json!([{"path": "/dev/sda", "type": "b", "major": 8, "minor": 0}]);
            original["linux"]["namespaces"] =
                json!([{"type": "network", "path": "/proc/1/ns/net"}, {"type": "mount"}]);
            original["linux"]["rootfsPropagation"] = json!("shared");
            original["annotations"]["run.oci.handler"] = json!("krun");
            original["x-later"] = json!(1);
        });
        let text = document.to_string();
        for gone in ["/secret", "KEY=real", "/evil", "/dev/sda", "/proc/1/ns", "shared", "krun", "x-later"] {
            assert!(!text.contains(gone), "{gone}");
        }
        let types: Vec<_> =
            document["linux"]["namespaces"].as_array().unwrap().iter().map(|n| n["type"].clone()).collect();
        for own in ["pid", "network", "ipc", "uts", "mount"] {
            assert!(types.contains(&json!(own)), "{own}");
        }
    }

    #[test]
    fn user_namespace_terminal_and_cgroup_stay() {
        let document = refused(|original| {
            original["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
            original["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 1, "size": 1000}]);
            original["process"]["terminal"] = json!(true);
        });
        assert!(document["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "user"})));
        assert_eq!(document["linux"]["uidMappings"][0]["size"], 1000);
        assert_eq!(document["process"]["terminal"], true);
        assert!(document["linux"]["cgroupsPath"].is_string());
        assert!(serde_json::from_value::<oci_spec::runtime::Spec>(document).is_ok());
    }
}
