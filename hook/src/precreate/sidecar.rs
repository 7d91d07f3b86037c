//! The sidecar's own container: the only one that passes unchanged, and whose mounts nobody else may have.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use understudy_control::{ImageId, Refusal};

use super::config::Config;
use super::storage::Storage;
use crate::installation::{Installation, write_whole};

/// What a sidecar and an agent may both see: certificates and time zones.
const SHARED: [&str; 5] = ["/usr", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/localtime"];

pub(crate) fn check_role(
    role: &str,
    image: Option<&ImageId>,
    installation: &Installation,
) -> Result<(), Refusal> {
    if role != "sidecar" {
        return Err(Refusal::new(
            format!("annotation understudy.role={role:?} is not known"),
            "the only role is sidecar; an agent's container has none",
        ));
    }
    if image.is_some_and(|image| installation.sidecar_images.contains(image)) {
        return Ok(());
    }
    let shown = image.map_or("none", |image| image.short());
    Err(Refusal::new(
        format!(
            "annotation understudy.role=sidecar on an image that is not registered as the sidecar's: {shown}"
        ),
        format!("if it is the sidecar's image, run: understudy-hook install --sidecar-image {shown}"),
    ))
}

/// Notes what is mounted into the sidecar: the volume with the authority's key, a directory of secrets.
pub(crate) fn remember_mounts(installation: &Installation, config: &Config, storage: &Storage) -> Result<()> {
    let own = |source: &Path| storage.userdata.iter().any(|own| source.starts_with(own));
    let mut all = remembered_mounts(installation)?;
    let before = all.len();
    for mount in config.mounts() {
        let bound = mount.options().iter().flatten().any(|option| option == "bind" || option == "rbind");
        let Some(source) = mount.source().as_ref().filter(|source| bound && !own(source)) else { continue };
        if !SHARED.iter().any(|shared| source.starts_with(shared)) && !all.contains(source) {
            all.push(source.clone());
        }
    }
    if all.len() == before {
        return Ok(());
    }
    write_whole(&remembered(&installation.state), &serde_json::to_vec(&all)?, 0o600)
}

pub(crate) fn remembered_mounts(installation: &Installation) -> Result<Vec<PathBuf>> {
    let path = remembered(&installation.state);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Where they are.
pub(crate) fn remembered(state: &Path) -> PathBuf {
    state.join("sidecar-mounts.json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{IMAGE, Tree, config_of};
    use super::*;

    #[test]
    fn the_role_is_for_registered_images_only() {
        let tree = Tree::new();
        let mut installation = tree.installation();
        let image: ImageId = IMAGE.parse().unwrap();
        let refusal = check_role("sidecar", Some(&image), &installation).unwrap_err();
        assert!(refusal.remedy.contains("--sidecar-image"), "{refusal:?}");
        assert!(check_role("sidecar", None, &installation).is_err());
        installation.sidecar_images.insert(image.clone());
        assert!(check_role("sidecar", Some(&image), &installation).is_ok());
        assert!(check_role("proxy", Some(&image), &installation).is_err());
        assert!(check_role("Sidecar", Some(&image), &installation).is_err());
    }

    #[test]
    fn what_is_mounted_into_the_sidecar_is_remembered_once() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        let mounts = document["mounts"].as_array_mut().unwrap();
        let mount = |source: &str, how: &str| json!({"destination": source, "type": "bind", "source": source, "options": ["rbind", how]});
        mounts.extend([mount("/state", "rw"), mount("/etc/ssl", "ro"), mount("/secrets", "ro")]);
        let config = config_of(&document);
        let storage = Storage::locate(&config).unwrap();
        for _ in 0..2 {
            remember_mounts(&tree.installation(), &config, &storage).unwrap();
        }
        assert_eq!(
            remembered_mounts(&tree.installation()).unwrap(),
            [PathBuf::from("/state"), "/secrets".into()]
        );
    }
}
