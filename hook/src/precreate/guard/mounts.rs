//! Mounts by what they are, not by what they are called: source and protected path are compared by device and inode,
//! over all their parents, in both directions.

use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use understudy_control::{HostMount, Refusal};

use super::super::config::owner;
use super::super::host::{Found, Host, Kind};
use super::super::search::Searched;
use super::super::storage::Storage;
use super::protected::{Protected, Reach, all};
use super::shared::Shared;
use super::{Surroundings, devices, shown};
use crate::mounted::Place;

/// Kinds of mounts that bring nothing of the host with them.
const FRESH: [&str; 7] = ["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"];

/// Options of an overlay that have a value, and show nothing (mount(8), Mount options for overlay).
const NOT_PATHS: [&str; 6] = ["context", "index", "metacopy", "nfs_export", "redirect_dir", "xino"];

/// What Podman mounts out of a container's own directories. Its secrets are not among them.
const STANDARD: [&str; 9] = [
    ".containerenv",
    "hosts",
    "hostname",
    "resolv.conf",
    "shm",
    "passwd",
    "group",
    "localtime",
    "run/secrets",
];

#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// For the placing hook to compare: a path can be made to mean something else between this and the runtime's mount, by
    /// whoever may write to a directory on the way.
    pub(crate) places: Vec<Place>,
    /// For the sidecar to compare with those of other containers.
    pub(crate) shared: Vec<HostMount>,
    pub(crate) searched: Vec<Searched>,
}

pub(super) fn check(spec: &Spec, surroundings: &Surroundings<'_>) -> Result<Bound, Refusal> {
    let protected = Protection::new(surroundings)?;
    let (mut bound, mut searched, mut shared) = (Vec::new(), Vec::new(), Shared::new(surroundings));
    for mount in spec.mounts().iter().flatten() {
        for source in sources(mount)? {
            let place = check_source(mount, &source, surroundings, &protected)?;
            if let Some(place) = &place {
                shared.add(mount, &source, place)?;
                searched.push(Searched::of(mount, &source));
            }
            // The other one is not seen inside: precreate takes it out.
            if is_bind(mount) && mount.destination() != Path::new("/etc/resolv.conf") {
                bound.extend(place);
            }
        }
    }
    // Also a root file system that is a directory of the host's (--rootfs).
    let root = surroundings.root;
    if !root.starts_with(&surroundings.storage.graph_root) {
        let found = look(surroundings.host, root)?;
        protected.check(root, found.as_ref(), surroundings)?;
        if let Some(found) = found {
            shared.add_root(spec, root, &found.place)?;
            bound.push(found.place);
        }
    }
    Ok(Bound { places: bound, shared: shared.all, searched })
}

/// crun and runc go by the option, whatever the type.
pub(super) fn is_bind(mount: &Mount) -> bool {
    let mut options = mount.options().iter().flatten();
    mount.typ().as_deref() == Some("bind") || options.any(|option| option == "bind" || option == "rbind")
}

/// What a mount shows of the host.
fn sources(mount: &Mount) -> Result<Vec<PathBuf>, Refusal> {
    let options = || mount.options().iter().flatten().map(String::as_str);
    let kind = mount.typ().as_deref().unwrap_or_default();
    if is_bind(mount) {
        return Ok(mount.source().iter().cloned().collect());
    }
    if FRESH.contains(&kind) {
        return Ok(Vec::new());
    }
    if kind == "overlay" {
        // `lowerdir=A:B` and its like; a colon in a name is written `\:`, and then the parts do not exist and are
        // refused.
        let layers = options().filter_map(|option| option.split_once('='));
        return Ok(layers
            .filter(|(name, _)| !NOT_PATHS.contains(name))
            .flat_map(|(_, list)| list.split(':'))
            .map(PathBuf::from)
            .collect());
    }
    Err(Refusal::new(
        format!("a mount of type {kind:?} at {} is not known", shown(mount.destination())),
        "use a bind mount, a volume or a tmpfs",
    ))
}

fn check_source(
    mount: &Mount,
    source: &Path,
    surroundings: &Surroundings<'_>,
    protected: &Protection,
) -> Result<Option<Place>, Refusal> {
    if !source.is_absolute() {
        return Err(Refusal::new(
            format!("the source of the mount at {} is not absolute", shown(mount.destination())),
            "name it from / on",
        ));
    }
    if is_of_those_it_joins(mount, source, surroundings) {
        return Ok(None);
    }
    let own = surroundings.storage.userdata.iter().find_map(|own| source.strip_prefix(own).ok());
    if let Some(file) = own {
        if STANDARD.iter().any(|standard| file == Path::new(standard)) {
            return Ok(None);
        }
        if file.starts_with("secrets") {
            return Err(Refusal::new(
                format!("a Podman secret is mounted at {} (--secret)", shown(mount.destination())),
                "give the secret to the sidecar: this container gets a stand-in for it",
            ));
        }
        // The upper layer of `-v DIR:PATH:O`; what it is put over is checked by itself.
        let upper = mount.typ().as_deref() == Some("overlay") && file.starts_with("overlay");
        let plain = file.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if upper && plain {
            return Ok(None);
        }
    }
    let found = look(surroundings.host, source)?;
    if let Some(found) = &found {
        match found.kind {
            Kind::Plain => {
                if let Some(socket) = surroundings.host.listener_in(source) {
                    return Err(socket_of_the_host(&socket, source));
                }
            }
            Kind::Socket => return Err(socket_of_the_host(source, source)),
            device if devices::permitted(device, surroundings.host) => return Ok(None),
            _ => return Err(devices::refused(&shown(source))),
        }
    }
    protected.check(source, found.as_ref(), surroundings)?;
    Ok(found.map(|found| found.place))
}

/// What Podman mounts from the container whose network is joined: its names, and in a pod the shared memory.
fn is_of_those_it_joins(mount: &Mount, source: &Path, surroundings: &Surroundings<'_>) -> bool {
    let Some(joined) = surroundings.joined else { return false };
    let file = match mount.destination().to_str() {
        Some("/etc/hosts") => "hosts",
        Some("/etc/hostname") => "hostname",
        Some("/etc/resolv.conf") => "resolv.conf",
        Some("/dev/shm") => "shm",
        _ => return false,
    };
    let Some((id, userdata)) = owner(source, file) else { return false };
    let containers = |userdata: &Path| userdata.ancestors().nth(2).map(Path::to_owned);
    let storage = surroundings.storage;
    let of_podman = storage.userdata.iter().any(|own| containers(own) == containers(&userdata));
    of_podman
        && (file != "shm" || joined.pod)
        && id.parse().is_ok_and(|id| storage.is_first_process(&id, joined.pid))
}

fn socket_of_the_host(socket: &Path, source: &Path) -> Refusal {
    Refusal::new(
        format!("{} is a socket of a program on the host", shown(socket)),
        format!("remove the mount of {}, or end that program", shown(source)),
    )
}

fn look(host: &dyn Host, path: &Path) -> Result<Option<Found>, Refusal> {
    host.find(path).map_err(|error| unexamined(path, &error))
}

pub(super) fn unexamined(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(
        format!("{} cannot be examined: {error}", shown(path)),
        format!("make {} readable, or remove the mount of it", shown(path)),
    )
}

struct Protection {
    present: Vec<(Protected, Found)>,
    /// Named volumes live in Podman's storage and are the user's own.
    volumes: Option<Found>,
    /// The same, the graph root and the run root, without links in them.
    storage: [PathBuf; 3],
    graphics: Option<Found>,
    devices: Option<Found>,
}

impl Protection {
    /// Only what exists can be mounted.
    fn new(surroundings: &Surroundings<'_>) -> Result<Self, Refusal> {
        let mut present = Vec::new();
        for protected in all(surroundings) {
            match surroundings.host.find(&protected.path) {
                Ok(Some(found)) => present.push((protected, found)),
                // What this user may not reach, this user cannot mount: another's home.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Ok(None) => {}
                Err(error) => return Err(unexamined(&protected.path, &error)),
            }
        }
        let Storage { graph_root, run_root, .. } = surroundings.storage;
        let volumes = graph_root.join("volumes");
        // Where there is none, nothing of it can be mounted.
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            present,
            volumes: look(surroundings.host, &volumes)?,
            storage: [&volumes, graph_root, run_root].map(|path| real(path)),
            graphics: look(surroundings.host, Path::new("/dev/dri"))?,
            devices: look(surroundings.host, Path::new("/dev"))?,
        })
    }

    fn check(
        &self,
        source: &Path,
        found: Option<&Found>,
        surroundings: &Surroundings<'_>,
    ) -> Result<(), Refusal> {
        let Some(found) = found else {
            return Err(Refusal::new(
                format!("{} does not exist", shown(source)),
                format!("make {} first, or remove the mount", shown(source)),
            ));
        };
        // `podman volume create --opt type=overlay`, or a volume that is bound to a container's root.
        if found.place.is_of_an_overlay_of(&self.storage.each_ref().map(PathBuf::as_path)) {
            return Err(Refusal::new(
                format!(
                    "{} shows an overlay file system that is mounted for it alone, and what that shows cannot be told",
                    shown(source)
                ),
                "mount the directory itself, with :O for an overlay of it",
            ));
        }
        let in_volume = self.volumes.as_ref().filter(|all| found.lies_in(all) && !found.is(all));
        for (protected, target) in &self.present {
            let lies_in = match in_volume {
                // By its path every volume lies in the storage; what it is bound to must not.
                Some(volumes) if protected.path == surroundings.storage.graph_root => {
                    found.place.lies_in(&target.place) && !found.place.lies_in(&volumes.place)
                }
                _ => found.lies_in(target),
            };
            let how = if found.is(target) {
                "is"
            } else if target.lies_in(found) {
                "contains"
            } else if protected.reach == Reach::Within && lies_in {
                "lies in"
            } else {
                continue;
            };
            let (source, path) = (shown(source), shown(&protected.path));
            let relation = if source == path { String::new() } else { format!(" {how} {path}") };
            return Err(Refusal::new(
                format!("the mount of {source}{relation}: {}", protected.what),
                format!("remove the mount of {source}; instead, {}", protected.instead),
            ));
        }
        let in_dev = self.devices.as_ref().is_some_and(|dev| found.lies_in(dev));
        if in_dev && !self.graphics.as_ref().is_some_and(|graphics| found.lies_in(graphics)) {
            return Err(devices::refused(&shown(source)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::mount::{MountFlags, mount, mount_bind};
    use serde_json::json;

    use super::super::super::tests::{Tree, config_of};
    use super::*;
    use crate::testing::in_private_netns;

    fn mounted(tree: &Tree, mount: serde_json::Value) -> Result<(), Refusal> {
        let mut document = tree.config().document;
        document["mounts"].as_array_mut().unwrap().push(mount);
        tree.check(&config_of(&document))
    }

    fn bind(tree: &Tree, source: impl AsRef<Path>) -> Result<(), Refusal> {
        let source = source.as_ref();
        mounted(
            tree,
            json!({"destination": "/x", "type": "bind", "source": source, "options": ["rbind", "rw"]}),
        )
    }

    #[test]
    fn what_podman_mounts_from_a_pods_infra_container_passes_and_nothing_else_of_it() {
        let tree = Tree::new();
        let (infra, other) = ("1".repeat(64), "2".repeat(64));
        let joined = |pod| super::super::Joined { pid: 77, pod, with: None };
        for (id, pid) in [(&infra, "77"), (&other, "78\n")] {
            let run = tree.run_userdata();
            let userdata = run.parent().unwrap().parent().unwrap().join(id).join("userdata");
            fs::create_dir_all(&userdata).unwrap();
            fs::write(userdata.join("pidfile"), pid).unwrap();
        }
        let outcome = |joined: Option<&super::super::Joined>, id: &str, file: &str, destination: &str| {
            let userdata = tree.graph_root().join("overlay-containers").join(id).join("userdata");
            fs::create_dir_all(&userdata).unwrap();
            fs::write(userdata.join(file), "").unwrap();
            let mut document = tree.config().document;
            let mount = json!({
                "destination": destination, "type": "bind", "source": userdata.join(file), "options": ["bind"]
            });
            document["mounts"].as_array_mut().unwrap().push(mount);
            tree.check_joined(&crate::network::mode::Mode::Sealed, joined, &config_of(&document))
        };
        let (pod, container) = (joined(true), joined(false));
        outcome(Some(&pod), &infra, "shm", "/dev/shm").unwrap();
        outcome(Some(&pod), &infra, "resolv.conf", "/etc/resolv.conf").unwrap();
        outcome(Some(&container), &infra, "hosts", "/etc/hosts").unwrap();
        for (joined, id, file, destination) in [
            (None, &infra, "shm", "/dev/shm"),
            (Some(&pod), &other, "shm", "/dev/shm"),
            (Some(&container), &infra, "shm", "/dev/shm"),
            (Some(&container), &other, "hosts", "/etc/hosts"),
            (Some(&pod), &other, "resolv.conf", "/etc/resolv.conf"),
            (Some(&pod), &infra, "shm", "/mnt/shm"),
            (Some(&pod), &infra, "config.json", "/etc/hosts"),
        ] {
            outcome(joined, id, file, destination).unwrap_err();
        }
    }

    #[test]
    fn a_project_and_a_named_volume_pass() {
        let tree = Tree::new();
        fs::create_dir_all(tree.home().join("project")).unwrap();
        bind(&tree, tree.home().join("project")).unwrap();
        let volume = tree.graph_root().join("volumes/cache/_data");
        fs::create_dir_all(&volume).unwrap();
        bind(&tree, &volume).unwrap();
        assert!(bind(&tree, tree.graph_root().join("volumes")).is_err());
    }

    #[test]
    fn credential_stores_are_refused_directly_from_above_from_below_and_through_a_link() {
        let tree = Tree::new();
        let home = tree.home();
        fs::create_dir_all(home.join(".ssh/keys")).unwrap();
        fs::create_dir_all(home.join(".codex")).unwrap();
        fs::write(home.join(".codex/auth.json"), "{}").unwrap();
        symlink(home.join(".ssh"), home.join("innocent")).unwrap();
        symlink(&home, tree.path().join("homelink")).unwrap();
        for source in [
            home.join(".ssh"),
            home.join(".ssh/keys"),
            home.clone(),
            home.parent().unwrap().to_owned(),
            home.join("innocent"),
            home.join("innocent/keys"),
            tree.path().join("homelink/.ssh"),
            home.join("x/../.codex"),
            home.join(".codex/auth.json"),
            home.join(".codex"),
        ] {
            fs::create_dir_all(home.join("x")).unwrap();
            let refusal = bind(&tree, &source).unwrap_err();
            assert!(
                ["credentials", "login", "keys", "home directory", "own files"]
                    .iter()
                    .any(|what| refusal.reason.contains(what)),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn each_store_says_what_to_do_instead_and_a_home_is_refused_though_it_has_none() {
        let tree = Tree::new();
        for (path, what, instead) in [
            (".aws", "credentials", "docs/secrets.md"),
            (".docker", "credentials", "stand-in"),
            (".mozilla", "browsers", "a profile of its own"),
            (".local/share/keyrings", "passwords", "secret"),
            (".var/app/org.browser", "browsers", "profile"),
        ] {
            fs::create_dir_all(tree.home().join(path)).unwrap();
            let refusal = bind(&tree, tree.home().join(path)).unwrap_err();
            assert!(refusal.reason.contains(what) && refusal.remedy.contains(instead), "{refusal:?}");
        }
        let bare = Tree::new();
        let refusal = bind(&bare, bare.home()).unwrap_err();
        assert!(refusal.reason.contains("home directory"), "{refusal:?}");
        for path in ["/home", "/etc", "/var"] {
            assert!(bind(&bare, path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_hard_link_to_a_login_file_is_that_file() {
        let tree = Tree::new();
        fs::write(tree.home().join(".netrc"), "x").unwrap();
        fs::hard_link(tree.home().join(".netrc"), tree.path().join("copy")).unwrap();
        assert!(bind(&tree, tree.path().join("copy")).is_err());
    }

    #[test]
    fn our_own_directories_and_podmans_are_refused() {
        let tree = Tree::new();
        let installation = tree.installation();
        for path in [&installation.state, &installation.runtime, &installation.configuration] {
            fs::create_dir_all(path.join("inner")).unwrap();
            assert!(bind(&tree, path).is_err());
            assert!(bind(&tree, path.join("inner")).is_err());
        }
        assert!(bind(&tree, tree.graph_root()).is_err());
        assert!(bind(&tree, tree.image()).is_err());
        assert!(bind(&tree, tree.run_userdata().parent().unwrap()).is_err());
    }

    #[test]
    fn the_host_as_a_whole_is_refused() {
        let tree = Tree::new();
        for path in ["/", "/proc", "/proc/1", "/sys", "/sys/fs/cgroup", "/dev", "/run", "/tmp", "/dev/shm"] {
            assert!(bind(&tree, path).is_err(), "{path}");
        }
        assert!(bind(&tree, "/usr/share").is_ok());
        assert!(bind(&tree, "/dev/null").is_ok());
    }

    #[test]
    fn sockets_overlays_of_stores_and_unknown_types_are_refused() {
        let tree = Tree::new();
        let socket = tree.home().join("engine.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(bind(&tree, &socket).unwrap_err().reason.contains("socket"));

        fs::create_dir_all(tree.home().join(".aws")).unwrap();
        let lower = format!("lowerdir={}", tree.home().join(".aws").display());
        let overlay =
            json!({"destination": "/x", "type": "overlay", "source": "overlay", "options": [lower]});
        assert!(mounted(&tree, overlay).unwrap_err().reason.contains("credentials"));
        let disk = json!({"destination": "/x", "type": "ext4", "source": "/dev/sda1", "options": []});
        assert!(mounted(&tree, disk).unwrap_err().reason.contains("ext4"));
        let more = format!("lowerdir+={}", tree.home().join(".aws").display());
        let newer = json!({"destination": "/x", "type": "overlay", "source": "overlay", "options": [more]});
        assert!(mounted(&tree, newer).unwrap_err().reason.contains("credentials"));
        assert!(bind(&tree, "relative").unwrap_err().reason.contains("not absolute"));
        let disguised =
            json!({"destination": "/x", "type": "tmpfs", "source": "/proc", "options": ["rbind"]});
        assert!(mounted(&tree, disguised).is_err());
    }

    #[test]
    fn a_directory_with_a_socket_that_is_listened_on_is_refused() {
        let tree = Tree::new();
        let directory = tree.home().join("agent");
        fs::create_dir_all(&directory).unwrap();
        let listener = UnixListener::bind(directory.join("agent.sock")).unwrap();
        let refusal = bind(&tree, &directory).unwrap_err();
        assert!(refusal.reason.contains("agent.sock is a socket"), "{refusal:?}");
        drop(listener);
        bind(&tree, &directory).unwrap();
        let _datagrams = std::os::unix::net::UnixDatagram::bind(directory.join("log")).unwrap();
        assert!(bind(&tree, &directory).is_err());
    }

    #[test]
    fn an_overlay_of_a_project_passes() {
        let tree = Tree::new();
        let project = tree.home().join("project");
        fs::create_dir_all(&project).unwrap();
        let own = tree.userdata().join("overlay/1");
        let options =
            [format!("lowerdir={}", project.display()), format!("upperdir={}/upper", own.display())];
        mounted(&tree, json!({"destination": "/x", "type": "overlay", "source": own, "options": options}))
            .unwrap();
    }

    #[test]
    fn a_podman_secret_goes_to_the_sidecar() {
        let tree = Tree::new();
        let refusal = bind(&tree, tree.userdata().join("secrets/key")).unwrap_err();
        assert!(refusal.remedy.contains("give the secret to the sidecar"), "{refusal:?}");
        let outside = tree.userdata().join("overlay/../secrets/key");
        let overlay = json!({"destination": "/x", "type": "overlay", "source": "o",
            "options": [format!("lowerdir={}", outside.display())]});
        assert!(mounted(&tree, overlay).is_err());
    }

    #[test]
    fn what_is_mounted_into_the_sidecar_is_refused() {
        let tree = Tree::new();
        let state = tree.graph_root().join("volumes/understudy/_data");
        fs::create_dir_all(&state).unwrap();
        bind(&tree, &state).unwrap();
        tree.make_private(&state);
        assert!(bind(&tree, &state).unwrap_err().reason.contains("only the sidecar"));
    }

    #[test]
    fn volumes_are_judged_by_what_is_mounted_there_also_where_the_root_is_an_overlay() {
        let name = "precreate::guard::mounts::tests::volumes_are_judged_by_what_is_mounted_there_also_where_the_root_is_an_overlay";
        if !in_private_netns(name) {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        mount("tmpfs", scratch.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        let overlay = |point: &Path, lower: &Path| {
            // Those two may not lie on an overlay themselves.
            let own = tempfile::tempdir_in(scratch.path()).unwrap().keep();
            overlay(point, lower, &own.join("upper"), &own.join("work"));
            point.to_owned()
        };
        let root = overlay(&scratch.path().join("root"), &scratch.path().join("lower"));
        for tree in [Tree::new(), Tree::new_in(&root)] {
            let volume = |name: &str| {
                let path = tree.graph_root().join("volumes").join(name).join("_data");
                fs::create_dir_all(&path).unwrap();
                path
            };
            let bound = |name: &str, source: &Path| {
                fs::create_dir_all(source).unwrap();
                mount_bind(source, volume(name)).unwrap();
                bind(&tree, volume(name))
            };
            let home = tree.home();
            bind(&tree, volume("plain")).unwrap();
            bound("project", &home.join("project")).unwrap();
            bound("of-a-volume", &volume("plain")).unwrap();
            for (name, source, reason) in [
                ("keys", home.join(".ssh"), "keys"),
                ("home", home.clone(), "contains"),
                ("secrets", tree.graph_root().join("secrets/filedriver"), "Podman's storage"),
                ("storage", tree.graph_root(), "Podman's storage"),
                ("volumes", tree.graph_root().join("volumes"), "Podman's storage"),
                ("container", overlay(&tree.graph_root().join("overlay/x/merged"), &home), "overlay"),
            ] {
                let refusal = bound(name, &source).unwrap_err();
                assert!(refusal.reason.contains(reason), "{name}: {refusal:?}");
            }
            let own = overlay(&volume("own"), &home.join(".ssh"));
            assert!(bind(&tree, own).unwrap_err().reason.contains("overlay"));
        }
    }

    fn overlay(point: &Path, lower: &Path, upper: &Path, work: &Path) {
        for directory in [point, lower, upper, work] {
            fs::create_dir_all(directory).unwrap();
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let options = std::ffi::CString::new(options).unwrap();
        mount("overlay", point, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
    }

    #[test]
    fn a_root_file_system_of_the_hosts_is_judged_like_a_mount() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["root"]["path"] = json!("/");
        assert!(tree.check(&config_of(&document)).is_err());
    }
}
