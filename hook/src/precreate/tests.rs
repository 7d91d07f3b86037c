//! What the tests of this stage share: samples of Podman's, and a made-up host in a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use understudy_control::{EnvironmentVariable, ManagedFile, Origin, Placement, Prepare, Prepared, Refusal};

use super::config::Config;
use super::guard::{self, Surroundings};
use super::joined::Joined;
use super::storage::{Described, Storage};
use super::{decide, described, host, prepare, sidecar};
use crate::installation::{Installation, write_whole};
use crate::network::mode::Mode;

pub(crate) const ID: &str = "5f0c6b1d7e2a4938c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8";
pub(crate) const IMAGE: &str = "9240b2db72268bf94813d82456d1907dfe9438e48e38d84d3a3b6b1fe88f3512";
pub(crate) const LAYER: &str = "2e6a9228f733eefdb1710916965a4bb7063184ed8192ad3dfdee60c134ddf11e";

/// `none-4.3.1` or `none-5.4.2`: what these versions write for `podman run --network=none`, without root.
pub(crate) fn sample(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/precreate/samples/{name}.json"));
    Config::parse(&fs::read(path).unwrap()).unwrap()
}

pub(crate) fn config_of(document: &Value) -> Config {
    Config::parse(document.to_string().as_bytes()).unwrap()
}

/// An installation whose directories would lie in `root`; none of them is made.
pub(crate) fn installation(root: &Path) -> Installation {
    Installation {
        version: env!("CARGO_PKG_VERSION").into(),
        state: root.join("state"),
        runtime: root.join("runtime"),
        configuration: root.join("configuration"),
        homes: vec![root.join("homes/user")],
        nft: "/usr/sbin/nft".into(),
        sidecar_images: Default::default(),
    }
}

pub(crate) fn request(config: &Config) -> Prepare {
    let storage = Storage::locate(config).unwrap();
    prepare::request(config, storage.origin(config).unwrap(), Default::default())
}

pub(crate) fn prepared() -> Prepared {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["ours".into()]).unwrap().self_signed(&key).unwrap();
    Prepared {
        env: vec![EnvironmentVariable { name: "KEY".into(), value: "stand-in".into() }],
        placement: Placement::default(),
        authority: certificate.pem(),
        origin: Origin { authority: "a".into(), key: "k".into() },
        nameserver: "28.0.0.1".parse().unwrap(),
        notes: Vec::new(),
    }
}

/// With what the sidecar answers in tests, and nothing that is mounted.
pub(crate) fn apply_simply(config: &Config, installation: &Installation) -> anyhow::Result<Value> {
    let guards = crate::workspace::guard::Guards::default();
    let work = super::change::Work {
        prepared: &prepared(),
        root: &config.root(),
        directory: config.directory(),
        bound: &[],
        guards: &guards,
        shared: false,
        image: None,
    };
    super::change::apply(config, installation, request(config), &work)
}

/// Directories of an installation, of Podman and of a user.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    pub(crate) fn new_in(directory: &Path) -> Self {
        let tree = Self(tempfile::tempdir_in(directory).unwrap());
        let installation = tree.installation();
        let rootfs = tree.rootfs();
        let directories = [
            &installation.state.join("guest"),
            &installation.runtime,
            &installation.configuration,
            &tree.home(),
            &tree.image(),
            &tree.userdata(),
            &tree.run_userdata(),
            &rootfs,
        ];
        for directory in directories {
            fs::create_dir_all(directory).unwrap();
        }
        tree.list(&[(ID, IMAGE, LAYER)]);
        fs::write(tree.image().join("manifest"), r#"{"schemaVersion":2,"layers":[]}"#).unwrap();
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn installation(&self) -> Installation {
        installation(self.path())
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("homes/user")
    }

    pub(crate) fn graph_root(&self) -> PathBuf {
        self.path().join("storage")
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.graph_root().join("overlay").join(LAYER).join("merged")
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.graph_root().join("overlay-images").join(IMAGE)
    }

    pub(crate) fn userdata(&self) -> PathBuf {
        self.graph_root().join("overlay-containers").join(ID).join("userdata")
    }

    pub(crate) fn run_userdata(&self) -> PathBuf {
        self.path().join("containers/overlay-containers").join(ID).join("userdata")
    }

    /// Writes Podman's list of containers: id, image, layer.
    pub(crate) fn list(&self, containers: &[(&str, &str, &str)]) {
        let list: Vec<Value> = containers
            .iter()
            .map(|(id, image, layer)| json!({"id": id, "names": ["agent"], "image": image, "layer": layer}))
            .collect();
        fs::write(self.graph_root().join("overlay-containers/containers.json"), json!(list).to_string())
            .unwrap();
    }

    /// Names and labels of the image.
    pub(crate) fn describe_image(&self, names: &[&str], labels: Value) {
        use base64::Engine as _;
        let list = json!([{"id": IMAGE, "names": names}]).to_string();
        fs::write(self.graph_root().join("overlay-images/images.json"), list).unwrap();
        let digest = format!("sha256:{}", "c".repeat(64));
        let manifest = json!({"schemaVersion": 2, "config": {"digest": digest}, "layers": []});
        fs::write(self.image().join("manifest"), manifest.to_string()).unwrap();
        let name = base64::engine::general_purpose::STANDARD.encode(digest);
        let configuration = json!({"config": {"Labels": labels}}).to_string();
        fs::write(self.image().join(format!("={name}")), configuration).unwrap();
    }

    /// A bundle of one certificate in the container's root.
    pub(crate) fn write_bundle(&self, path: &str) {
        let path = self.rootfs().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, prepared().authority).unwrap();
    }

    pub(crate) fn make_private(&self, path: &Path) {
        write_whole(
            &self.installation().state.join("sidecar-mounts.json"),
            json!([path]).to_string().as_bytes(),
            0o600,
        )
        .unwrap();
    }

    /// The sample of Podman 4.3.1, moved into this tree.
    pub(crate) fn config(&self) -> Config {
        let text = sample("none-4.3.1").document.to_string();
        let text = text
            .replace("/home/user/.local/share/containers/storage", self.graph_root().to_str().unwrap())
            .replace("/run/user/1000/containers", self.path().join("containers").to_str().unwrap());
        Config::parse(text.as_bytes()).unwrap()
    }

    pub(crate) fn check(&self, config: &Config) -> Result<(), Refusal> {
        self.check_in(&Mode::Sealed, config)
    }

    pub(crate) fn check_in(&self, mode: &Mode, config: &Config) -> Result<(), Refusal> {
        self.check_joined(mode, None, config)
    }

    pub(crate) fn check_joined(
        &self,
        mode: &Mode,
        joined: Option<&Joined>,
        config: &Config,
    ) -> Result<(), Refusal> {
        self.bound(mode, joined, config).map(|_| ())
    }

    pub(crate) fn bound(
        &self,
        mode: &Mode,
        joined: Option<&Joined>,
        config: &Config,
    ) -> Result<guard::Bound, Refusal> {
        let installation = self.installation();
        let storage = Storage::locate(config)?;
        let private = sidecar::remembered_mounts(&installation).unwrap();
        let surroundings = Surroundings {
            installation: &installation,
            storage: &storage,
            root: &config.root(),
            private: &private,
            mode,
            joined,
            host: &host::Kernel::default(),
        };
        guard::check(&config.spec, &surroundings)
    }
}

#[test]
fn without_a_sidecar_the_process_is_replaced_and_the_reason_is_kept() {
    let tree = Tree::new();
    let mut document = tree.config().document;
    document["annotations"]["understudy.harness"] = json!("generic");
    let after = decide(&tree.installation(), config_of(&document));
    assert_eq!(after["process"]["args"][1], "refuse");
    let note = fs::read_to_string(tree.installation().refusals().join(format!("{ID}.json"))).unwrap();
    assert!(note.contains("the sidecar cannot be reached"), "{note}");
    assert!(note.contains("\"agent\""), "{note}");
}

#[test]
fn a_registered_sidecar_passes_unchanged_and_any_other_image_does_not() {
    let tree = Tree::new();
    let mut document = tree.config().document;
    document["annotations"]["understudy.role"] = json!("sidecar");
    let mut installation = tree.installation();
    assert_eq!(decide(&installation, config_of(&document))["process"]["args"][1], "refuse");
    installation.sidecar_images.insert(IMAGE.parse().unwrap());
    assert_eq!(decide(&installation, config_of(&document)), document);
}

#[test]
fn a_refusal_takes_an_older_record_away() {
    let tree = Tree::new();
    let old = tree.installation().containers().join(ID);
    fs::create_dir_all(&old).unwrap();
    decide(&tree.installation(), tree.config());
    assert!(!old.exists());
}

fn image_under(tree: &Tree, rules: &[&str]) -> Result<Option<Described>, String> {
    let files: Vec<_> = rules.iter().map(|text| ManagedFile::new("/m.toml", *text)).collect();
    let config = tree.config();
    let storage = Storage::locate(&config).unwrap();
    described(&files, &storage, &config).map_err(|refusal| refusal.reason)
}

#[test]
fn what_an_image_is_called_is_kept_also_on_a_machine_without_rules() {
    let tree = Tree::new();
    tree.describe_image(&["localhost/a:1"], json!({"agent": "yes"}));
    let called = Described { names: vec!["localhost/a:1".into()], labels: vec!["agent=yes".into()] };
    assert_eq!(image_under(&tree, &[]), Ok(Some(called)));
}

#[test]
fn an_image_that_cannot_be_described_matters_to_rules_about_images_alone() {
    // Its manifest names no configuration, and there is no `images.json`.
    let tree = Tree::new();
    let all = "deny = \"a.example\"\n[[require]]\npolicy = \"house\"\n";
    let some = "[[require]]\npolicy = \"house\"\nlabels = \"agent=*\"\n";
    assert_eq!(image_under(&tree, &[]), Ok(None));
    assert_eq!(image_under(&tree, &[all]), Ok(None));
    let refusal = image_under(&tree, &[all, some]).unwrap_err();
    assert!(refusal.contains("images.json"), "{refusal}");
    assert!(image_under(&tree, &["hots = 1"]).is_err());
}
