//! Podman's own storage, read as files: a hook must not call Podman, which has the container locked.
//!
//! Layout (containers/storage): `GRAPHROOT/<driver>-containers/containers.json` (and `volatile-containers.json`, also
//! below the run root) lists containers with names, image and layer; `GRAPHROOT/<driver>-images/IMAGE/` holds an
//! image's manifests.

mod image;

pub(crate) use image::Described;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;
use serde::Deserialize;
use understudy_control::{ContainerId, ImageId, Refusal};

use super::annotations::is_ours;
use super::config::{Config, owner};
use crate::mounted::{Mounts, Place};

const LARGEST_LIST: u64 = 64 * 1024 * 1024;
const LARGEST_MANIFEST: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) graph_root: PathBuf,
    pub(crate) run_root: PathBuf,
    /// This container's two directories: below the graph root, and below the run root.
    pub(crate) userdata: [PathBuf; 2],
    driver: String,
}

/// What Podman knows about a container and its configuration does not say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) name: Option<String>,
    /// None with `--rootfs`.
    pub(crate) image: Option<ImageId>,
    /// Where its root file system is now.
    pub(crate) root: PathBuf,
    /// What is mounted where the configuration says only when this stage is over.
    pub(crate) to_come: Option<Place>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    image: String,
    #[serde(default)]
    layer: String,
    #[serde(default)]
    metadata: String,
}

impl Storage {
    pub(crate) fn locate(config: &Config) -> Result<Self, Refusal> {
        let containers = config.userdata.parent().and_then(Path::parent);
        let driver = containers
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix("-containers"));
        let (Some(driver), Some(run_root)) = (driver, containers.and_then(Path::parent)) else {
            return Err(not_found("its run root cannot be told"));
        };
        let graph_root = graph_root_of_shm(config)
            .or_else(|| graph_root_of_layer(&config.root(), driver))
            .ok_or_else(|| not_found("its graph root cannot be told (--rootfs together with --ipc=none?)"))?;
        let own =
            |root: &Path| root.join(format!("{driver}-containers")).join(config.id.as_str()).join("userdata");
        let userdata = [own(&graph_root), own(run_root)];
        Ok(Self { userdata, run_root: run_root.to_owned(), driver: driver.to_owned(), graph_root })
    }

    /// Finds the container's record, checks that it is the record of this very root file system, and that its image
    /// carries no annotation of ours.
    pub(crate) fn origin(&self, config: &Config) -> Result<Origin, Refusal> {
        let listed = self.listed(&config.id)?;
        let root = config.root();
        if listed.image.is_empty() {
            if root.starts_with(&self.graph_root) {
                return Err(Refusal::new(
                    "the container has no image, but its root lies in Podman's storage (--rootfs with :O)",
                    "use an image, or --rootfs without :O",
                ));
            }
            return Ok(Origin { name: first_name(listed.names), image: None, root, to_come: None });
        }
        let merged = self.graph_root.join(&self.driver).join(&listed.layer).join("merged");
        let vfs = self.graph_root.join("vfs/dir").join(&listed.layer);
        let later = is_intermediate(&root);
        let root = if later { merged.clone() } else { root };
        if listed.layer.is_empty() || (root != merged && root != vfs) {
            return Err(not_found("the container's root is not the one that its record names"));
        }
        // A directory named by --rootfs could look like Podman's, with lists of its own beside it; but nobody without
        // power over the host makes it a mount point, or names the container's cgroup.
        if (later || !config.has_cgroup()) && !is_mount_point(&root) {
            return Err(not_found(
                "the container's root is not mounted by Podman (vfs with --cgroups=disabled?)",
            ));
        }
        let image: ImageId = listed.image.parse().map_err(|_| not_found("its record names no image id"))?;
        self.check_image(&image)?;
        let to_come =
            if later { Some(place(&root).map_err(|error| not_found(&error.to_string()))?) } else { None };
        Ok(Origin { name: first_name(listed.names), image: Some(image), root, to_come })
    }

    /// Whether Podman says that `pid` is the first process of that container.
    pub(crate) fn is_first_process(&self, id: &ContainerId, pid: i32) -> bool {
        let directory = self.run_root.join(format!("{}-containers", self.driver));
        let file = directory.join(id.as_str()).join("userdata/pidfile");
        fs::read_to_string(file).is_ok_and(|text| text.trim() == pid.to_string())
    }

    fn listed(&self, id: &ContainerId) -> Result<Listed, Refusal> {
        let directory = format!("{}-containers", self.driver);
        for root in [&self.graph_root, &self.run_root] {
            for file in ["containers.json", "volatile-containers.json"] {
                let path = root.join(&directory).join(file);
                let Some(bytes) = read(&path, LARGEST_LIST).map_err(|error| not_found(&error))? else {
                    continue;
                };
                if bytes.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let all: Vec<Listed> = serde_json::from_slice(&bytes)
                    .map_err(|error| not_found(&format!("{}: {error}", path.display())))?;
                if let Some(found) = all.into_iter().find(|listed| listed.id == id.as_str()) {
                    return Ok(found);
                }
            }
        }
        Err(not_found("it has no record of the container"))
    }

    /// Podman 4.3 copies an image's annotations to its containers, where they look like the user's.
    fn check_image(&self, image: &ImageId) -> Result<(), Refusal> {
        let directory = self.graph_root.join(format!("{}-images", self.driver)).join(image.as_str());
        let entries = fs::read_dir(&directory).map_err(|error| {
            not_found(&format!("image {}: {}: {error}", image.short(), directory.display()))
        })?;
        let mut manifests = 0;
        for entry in entries {
            let entry = entry.map_err(|error| not_found(&error.to_string()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Other names than plain words are written as `=` and base64; these begin with `manifest-`.
            if name != "manifest" && !name.starts_with("manifest-") && !name.starts_with("=bWFuaWZlc3Qt") {
                continue;
            }
            let bytes =
                read(&entry.path(), LARGEST_MANIFEST).map_err(|error| not_found(&error))?.unwrap_or_default();
            let manifest: serde_json::Value = serde_json::from_slice(&bytes)
                .map_err(|error| not_found(&format!("manifest of image {}: {error}", image.short())))?;
            manifests += 1;
            let annotations = manifest.get("annotations").and_then(|value| value.as_object());
            if let Some(key) = annotations.into_iter().flatten().map(|(key, _)| key).find(|key| is_ours(key))
            {
                return Err(Refusal::new(
                    format!("the image itself carries the annotation {key:?}"),
                    "only the user may set it: build the image without it, and give --annotation to podman run",
                ));
            }
        }
        if manifests == 0 {
            return Err(not_found(&format!("it has no manifest of image {}", image.short())));
        }
        Ok(())
    }
}

/// Podman 5 starts a runtime that could not walk to the storage, as that of a user namespace without the user, in a mount namespace
/// where it binds the root file system to `/var/tmp/intermediate-mountpoint-UID.N` (libpod, `oci_conmon_common.go`): after this
/// stage, so that there is an empty directory now.
fn is_intermediate(root: &Path) -> bool {
    let rest = root.to_str().and_then(|root| root.strip_prefix("/var/tmp/intermediate-mountpoint-"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    rest.and_then(|rest| rest.split_once('.'))
        .is_some_and(|(uid, number)| is_number(uid) && is_number(number))
}

fn place(root: &Path) -> std::io::Result<Place> {
    Mounts::read()?.place(root)
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.dev()).ok();
    let parent = path.parent().and_then(device);
    parent.is_some() && device(path).is_some_and(|device| Some(device) != parent)
}

fn first_name(names: Option<Vec<String>>) -> Option<String> {
    names.unwrap_or_default().into_iter().next()
}

fn graph_root_of_shm(config: &Config) -> Option<PathBuf> {
    let shm = |mount: &&Mount| mount.destination() == Path::new("/dev/shm");
    let source = config.mounts().iter().find(shm)?.source().as_ref()?;
    let (id, userdata) = owner(source, "shm")?;
    (id == config.id.as_str()).then(|| userdata.ancestors().nth(3).map(Path::to_owned))?
}

/// `GRAPHROOT/overlay/LAYER/merged`, or `GRAPHROOT/vfs/dir/LAYER`.
fn graph_root_of_layer(root: &Path, driver: &str) -> Option<PathBuf> {
    let base = root.ancestors().nth(2)?;
    base.ends_with(driver).then(|| base.parent().map(Path::to_owned))?
}

/// None if there is no such file.
fn read(path: &Path, largest: u64) -> Result<Option<Vec<u8>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut bytes = Vec::new();
    file.take(largest + 1).read_to_end(&mut bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    if bytes.len() as u64 > largest {
        return Err(format!("{} has more than {largest} bytes", path.display()));
    }
    Ok(Some(bytes))
}

fn not_found(what: &str) -> Refusal {
    Refusal::new(
        format!("Podman's storage does not tell where the container comes from: {what}"),
        "run: understudy-hook doctor (does it support this storage?)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{IMAGE, LAYER, Tree};
    use super::*;

    #[test]
    fn name_and_image_are_found() {
        let tree = Tree::new();
        let config = tree.config();
        let storage = Storage::locate(&config).unwrap();
        assert_eq!(storage.graph_root, tree.graph_root());
        let origin = storage.origin(&config).unwrap();
        assert_eq!(
            origin,
            Origin {
                name: Some("agent".into()),
                image: Some(IMAGE.parse().unwrap()),
                root: config.root(),
                to_come: None
            }
        );
    }

    #[test]
    fn an_image_with_an_annotation_of_ours_is_refused_also_under_an_encoded_name() {
        let tree = Tree::new();
        let config = tree.config();
        let storage = Storage::locate(&config).unwrap();
        let bad = r#"{"annotations":{"Understudy.allow":"evil.example"}}"#;
        fs::write(tree.image().join("=bWFuaWZlc3Qtc2hhMjU2OmFh"), bad).unwrap();
        assert!(storage.origin(&config).unwrap_err().reason.contains("Understudy.allow"));
        fs::remove_file(tree.image().join("=bWFuaWZlc3Qtc2hhMjU2OmFh")).unwrap();
        assert!(storage.origin(&config).is_ok());
        fs::write(tree.image().join("manifest"), bad).unwrap();
        assert!(storage.origin(&config).is_err());
    }

    #[test]
    fn no_record_another_layer_or_no_manifest_is_refused() {
        let tree = Tree::new();
        let config = tree.config();
        let storage = Storage::locate(&config).unwrap();
        fs::remove_file(tree.image().join("manifest")).unwrap();
        assert!(storage.origin(&config).unwrap_err().reason.contains("no manifest"));

        let tree = Tree::new();
        tree.list(&[(super::super::tests::ID, IMAGE, &"9".repeat(64))]);
        assert!(storage_error(&tree).contains("not the one that its record names"));
        tree.list(&[(&"1".repeat(64), IMAGE, LAYER)]);
        assert!(storage_error(&tree).contains("no record"));
        fs::write(tree.graph_root().join("overlay-containers/containers.json"), "[{").unwrap();
        assert!(storage_error(&tree).contains("containers.json"));
    }

    fn storage_error(tree: &Tree) -> String {
        let config = tree.config();
        Storage::locate(&config).unwrap().origin(&config).unwrap_err().reason
    }

    #[test]
    fn a_root_that_is_bound_later_is_the_one_of_the_record_if_that_is_mounted() {
        for (root, is) in [
            ("/var/tmp/intermediate-mountpoint-1000.0", true),
            ("/var/tmp/intermediate-mountpoint-0.12", true),
            ("/var/tmp/intermediate-mountpoint-1000.0/x", false),
            ("/var/tmp/intermediate-mountpoint-1000.", false),
            ("/var/tmp/intermediate-mountpoint-", false),
            ("/tmp/intermediate-mountpoint-1000.0", false),
        ] {
            assert_eq!(is_intermediate(Path::new(root)), is, "{root}");
        }
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["root"]["path"] = "/var/tmp/intermediate-mountpoint-1000.0".into();
        let config = super::super::tests::config_of(&document);
        // here nothing is mounted there
        let refusal = Storage::locate(&config).unwrap().origin(&config).unwrap_err();
        assert!(refusal.reason.contains("not mounted by Podman"), "{refusal:?}");
    }

    #[test]
    fn a_directory_that_only_looks_like_podmans_is_refused() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["linux"]["cgroupsPath"] = serde_json::Value::Null;
        let config = super::super::tests::config_of(&document);
        let refusal = Storage::locate(&config).unwrap().origin(&config).unwrap_err();
        assert!(refusal.reason.contains("not mounted by Podman"), "{refusal:?}");
        assert!(is_mount_point(Path::new("/proc")) && !is_mount_point(Path::new("/proc/self")));
    }

    #[test]
    fn a_record_kept_as_volatile_is_found() {
        let tree = Tree::new();
        let list = tree.graph_root().join("overlay-containers");
        fs::rename(list.join("containers.json"), list.join("volatile-containers.json")).unwrap();
        let config = tree.config();
        assert!(Storage::locate(&config).unwrap().origin(&config).is_ok());
    }
}
