use std::collections::BTreeMap;

use super::*;

struct Place {
    dir: tempfile::TempDir,
    layout: Layout,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (home, run) = (dir.path().join("home"), dir.path().join("run"));
    let layout = Layout::user(&home, &run, &home.join(".config"), &home.join(".local/share"));
    Place { dir, layout }
}

impl Place {
    fn install(&self) -> Vec<PathBuf> {
        self.install_with(false)
    }

    fn install_with(&self, required: bool) -> Vec<PathBuf> {
        let conf = self.layout.drop_in.parent().unwrap().to_owned();
        let plan = Plan {
            layout: &self.layout,
            hooks_dir: None,
            images: registered(&self.layout.state),
            nft: "/usr/sbin/nft".into(),
            binary: b"binary".to_vec(),
            required,
        };
        write(&plan, &Podman::new(Path::new("/bin/false"), vec![conf])).unwrap()
    }

    /// Every file and its content.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut left = vec![self.dir.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    files.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

#[test]
fn an_installation_is_complete_and_loads() {
    let place = place();
    let written = place.install();
    let hooks = written.iter().filter(|path| path.starts_with(&place.layout.hooks_dir)).count();
    assert_eq!(hooks, 4);
    let installation = Installation::load(&place.layout.state).unwrap();
    assert!(installation.guest_binary_directory().join("understudy-hook").is_file());
    assert_eq!(fs::read_dir(installation.guest_binary_directory()).unwrap().count(), 1);
    let drop_in = fs::read_to_string(&place.layout.drop_in).unwrap();
    assert!(drop_in.contains("/usr/share/containers/oci/hooks.d\", \""), "{drop_in}");
}

#[test]
fn twice_is_as_once_and_uninstall_leaves_nothing() {
    let place = place();
    place.install();
    let once = place.files();
    place.install();
    assert_eq!(place.files(), once);
    for written_by_a_stage in [remembered(&place.layout.state), generation::file(&place.layout.state)] {
        fs::write(written_by_a_stage, "[]").unwrap();
    }
    remove(&place.layout).unwrap();
    assert_eq!(place.files(), BTreeMap::new());
    assert!(!place.layout.state.exists() && !place.layout.configuration.exists());
    assert!(remove(&place.layout).unwrap().is_empty());
}

#[test]
fn what_was_there_is_restored_even_after_two_installations() {
    let place = place();
    let drop_in = place.layout.drop_in.clone();
    let hook = place.layout.hooks_dir.join("50-understudy-precreate.json");
    for path in [&drop_in, &hook] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "# the user's own\n").unwrap();
    }
    let before = place.files();
    place.install();
    place.install();
    assert_ne!(fs::read(&hook).unwrap(), before[&hook]);
    remove(&place.layout).unwrap();
    assert_eq!(place.files(), before);
}

#[test]
fn registered_images_stay() {
    let place = place();
    place.install();
    let mut installation = Installation::load(&place.layout.state).unwrap();
    installation.sidecar_images.insert("ab".repeat(32).parse().unwrap());
    installation.save().unwrap();
    place.install();
    assert_eq!(Installation::load(&place.layout.state).unwrap().sidecar_images.len(), 1);
}

#[test]
fn what_is_required_stays_until_it_is_uninstalled() {
    let place = place();
    place.install_with(true);
    let required = place.layout.hooks_dir.join("40-understudy-required.json");
    assert!(required.exists());
    place.install();
    assert!(required.exists());
    remove(&place.layout).unwrap();
    assert_eq!(place.files(), BTreeMap::new());
}

#[test]
fn an_installation_that_moves_leaves_no_hook_where_it_was() {
    let mut place = place();
    let before = place.layout.hooks_dir.clone();
    place.install_with(true);
    place.layout.hooks_dir = place.dir.path().join("elsewhere");
    place.install_with(true);
    assert_eq!(fs::read_dir(&before).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&place.layout.hooks_dir).unwrap().count(), 5);
    remove(&place.layout).unwrap();
    assert_eq!(place.files(), BTreeMap::new());
}

/// What root's `podman build` reads; it ends at the first file that names `precreate`.
#[test]
fn the_systems_hooks_are_not_where_builds_look() {
    let layout = Layout::system("");
    for read in ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"] {
        assert_ne!(layout.hooks_dir, Path::new(read));
    }
}
