//! What a container has of the host, for the sidecar to find out which containers could hand each other something by it.

use std::path::{Component, Path};

use oci_spec::runtime::{Mount, Spec};
use understudy_control::{HostMount, MOST_MOUNTS, Refusal};

use super::mounts::{is_bind, unexamined};
use super::{Surroundings, shown};
use crate::mounted::Place;

pub(super) struct Shared<'a> {
    surroundings: &'a Surroundings<'a>,
    pub(super) all: Vec<HostMount>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(surroundings: &'a Surroundings<'a>) -> Self {
        Self { surroundings, all: Vec::new() }
    }

    pub(super) fn add(&mut self, mount: &Mount, source: &Path, place: &Place) -> Result<(), Refusal> {
        let has =
            |wanted: &[&str]| mount.options().iter().flatten().any(|has| wanted.contains(&has.as_str()));
        let writable = !has(&["ro", "rro"]);
        if !is_bind(mount) {
            // Of an overlay's directories one is written to.
            let upper =
                mount.options().iter().flatten().filter_map(|option| option.strip_prefix("upperdir="));
            return self.one(
                source,
                place,
                writable && upper.into_iter().any(|upper| Path::new(upper) == source),
            );
        }
        self.one(source, place, writable)?;
        // `ro` makes none of those read-only.
        if has(&["rbind"]) { self.below(source, !has(&["rro"])) } else { Ok(()) }
    }

    pub(super) fn add_root(&mut self, spec: &Spec, root: &Path, place: &Place) -> Result<(), Refusal> {
        let read_only = spec.root().as_ref().and_then(|root| root.readonly()).unwrap_or_default();
        self.one(root, place, !read_only)?;
        self.below(root, true)
    }

    fn below(&mut self, source: &Path, writable: bool) -> Result<(), Refusal> {
        let below =
            self.surroundings.host.mounted_below(source).map_err(|error| unexamined(source, &error))?;
        below.iter().try_for_each(|(place, read_only)| self.one(source, place, writable && !read_only))
    }

    fn one(&mut self, source: &Path, place: &Place, writable: bool) -> Result<(), Refusal> {
        let mount = place.for_sidecar(writable, &self.name(source)).ok_or_else(|| {
            Refusal::new(
                format!("where {} lies in its file system is not understood", shown(source)),
                "remove the mount of it",
            )
        })?;
        self.all.push(mount);
        if self.all.len() > MOST_MOUNTS {
            return Err(Refusal::new(
                format!(
                    "it has more than {MOST_MOUNTS} mounts of the host, those below the mounted directories included"
                ),
                "mount one directory that holds them, or fewer of them",
            ));
        }
        Ok(())
    }

    /// A volume's name, or a path.
    fn name(&self, source: &Path) -> String {
        let volumes = self.surroundings.storage.graph_root.join("volumes");
        let mut below = source.strip_prefix(volumes).into_iter().flat_map(Path::components);
        match (below.next(), below.next(), below.next()) {
            (Some(Component::Normal(name)), Some(data), None) if data.as_os_str() == "_data" => {
                format!("volume {}", shown(Path::new(name)))
            }
            _ => shown(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::{MountFlags, mount};
    use serde_json::{Value, json};

    use super::super::super::tests::{Tree, config_of};
    use super::*;
    use crate::network::mode::Mode;
    use crate::testing::in_private_netns;

    fn shared(tree: &Tree, change: impl FnOnce(&mut Value)) -> Result<Vec<HostMount>, Refusal> {
        let mut document = tree.config().document;
        change(&mut document);
        tree.bound(&Mode::Sealed, None, &config_of(&document)).map(|bound| bound.shared)
    }

    fn with(tree: &Tree, mounts: Vec<Value>) -> Result<Vec<HostMount>, Refusal> {
        shared(tree, |document| document["mounts"].as_array_mut().unwrap().extend(mounts))
    }

    fn bind(source: &Path, options: &[&str]) -> Value {
        json!({"destination": "/x", "type": "bind", "source": source, "options": options})
    }

    fn told(all: &[HostMount]) -> Vec<(&str, bool)> {
        all.iter().map(|mount| (mount.name.as_str(), mount.writable)).collect()
    }

    #[test]
    fn what_podman_makes_for_one_container_is_not_among_them_and_all_else_is() {
        let tree = Tree::new();
        assert_eq!(with(&tree, Vec::new()).unwrap(), []);
        let (project, volume) = (tree.home().join("project"), tree.graph_root().join("volumes/cache/_data"));
        for directory in [&project, &volume] {
            fs::create_dir_all(directory).unwrap();
        }
        let link = tree.home().join("link");
        std::os::unix::fs::symlink(&project, &link).unwrap();
        let (named, linked) = (project.display().to_string(), link.display().to_string());
        let all = with(
            &tree,
            vec![bind(&project, &["rbind", "rw"]), bind(&link, &["ro"]), bind(&volume, &["rbind"])],
        );
        let all = all.unwrap();
        assert_eq!(told(&all), [(named.as_str(), true), (&linked, false), ("volume cache", true)]);
        assert!(all[0].overlaps(&all[1]) && !all[0].overlaps(&all[2]));
    }

    #[test]
    fn of_an_overlay_the_upper_directory_is_written_to() {
        let tree = Tree::new();
        for name in ["lower", "upper", "work"] {
            fs::create_dir_all(tree.home().join(name)).unwrap();
        }
        let option = |key: &str, name: &str| format!("{key}={}", tree.home().join(name).display());
        let options = [option("lowerdir", "lower"), option("upperdir", "upper"), option("workdir", "work")];
        let overlay =
            json!({"destination": "/x", "type": "overlay", "source": "overlay", "options": options});
        let all = with(&tree, vec![overlay]).unwrap();
        assert_eq!(all.iter().map(|mount| mount.writable).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_root_of_the_hosts_counts_like_a_mount() {
        let tree = Tree::new();
        let root = tree.home().join("root");
        fs::create_dir_all(&root).unwrap();
        for read_only in [false, true] {
            let all =
                shared(&tree, |document| document["root"] = json!({"path": root, "readonly": read_only}));
            assert_eq!(told(&all.unwrap()), [(root.to_str().unwrap(), !read_only)]);
        }
    }

    #[test]
    fn what_is_mounted_below_comes_with_it_and_is_written_to_unless_all_of_it_is_read_only() {
        let name = "precreate::guard::shared::tests::what_is_mounted_below_comes_with_it_and_is_written_to_unless_all_of_it_is_read_only";
        if !in_private_netns(name) {
            return;
        }
        let tree = Tree::new();
        let project = tree.home().join("project");
        for (below, flags) in [("data", MountFlags::empty()), ("fixed", MountFlags::RDONLY)] {
            fs::create_dir_all(project.join(below)).unwrap();
            mount("tmpfs", project.join(below), "tmpfs", flags, None).unwrap();
        }
        let writable = |options: &[&str]| {
            let all = with(&tree, vec![bind(&project, options)]).unwrap();
            let data = with(&tree, vec![bind(&project.join("data"), &["rbind"])]).unwrap();
            assert_eq!(all.iter().any(|mount| mount.overlaps(&data[0])), options.contains(&"rbind"));
            all.iter().map(|mount| mount.writable).collect::<Vec<_>>()
        };
        assert_eq!(writable(&["rbind", "rw"]), [true, true, false]);
        assert_eq!(writable(&["rbind", "ro"]), [false, true, false]);
        assert_eq!(writable(&["rbind", "rro"]), [false, false, false]);
        assert_eq!(writable(&["bind", "rw"]), [true]);
    }

    #[test]
    fn more_than_are_compared_are_refused() {
        let tree = Tree::new();
        let project = tree.home().join("project");
        fs::create_dir_all(&project).unwrap();
        let many = |count| vec![bind(&project, &["rbind"]); count];
        assert_eq!(with(&tree, many(MOST_MOUNTS)).unwrap().len(), MOST_MOUNTS);
        assert!(with(&tree, many(MOST_MOUNTS + 1)).unwrap_err().reason.contains("more than 128 mounts"));
    }
}
