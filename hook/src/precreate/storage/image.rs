//! What a container's image is called and labelled, for rules that name images.
//!
//! `GRAPHROOT/<driver>-images/images.json` lists images with all their names; `IMAGE/manifest` beside it names the digest
//! of the image's configuration (OCI image-spec, `config.Labels`), which lies in a file named `=` and the digest's base64.
//! An image's id is another digest where a layer was made without one (`podman import`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use understudy_control::{ImageId, Refusal};

use super::{Config, LARGEST_LIST, LARGEST_MANIFEST, Storage, not_found, read};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    /// With tag or digest, as `localhost/agent:latest`; the one that the container was made from among them.
    pub(crate) names: Vec<String>,
    /// As `KEY=VALUE`.
    pub(crate) labels: Vec<String>,
}

#[derive(Deserialize)]
struct ListedImage {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
}

/// What containers/storage keeps of Podman's in a container's record.
#[derive(Deserialize)]
struct Metadata {
    #[serde(default, rename = "image-name")]
    image_name: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: ConfigurationOf,
}

#[derive(Deserialize)]
struct ConfigurationOf {
    digest: String,
}

#[derive(Deserialize)]
struct ImageConfiguration {
    #[serde(default)]
    config: Runs,
}

#[derive(Default, Deserialize)]
struct Runs {
    #[serde(default, rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

impl Storage {
    /// Nothing with `--rootfs`, which has no image.
    pub(crate) fn described(&self, config: &Config) -> Result<Described, Refusal> {
        let listed = self.listed(&config.id)?;
        if listed.image.is_empty() {
            return Ok(Described::default());
        }
        let image: ImageId = listed.image.parse().map_err(|_| not_found("its record names no image id"))?;
        let metadata: Option<Metadata> = serde_json::from_str(&listed.metadata).ok();
        let mut names = self.names(&image)?;
        names.extend(metadata.map(|metadata| metadata.image_name).filter(|name| !name.is_empty()));
        Ok(Described { names, labels: self.labels(&image)? })
    }

    fn names(&self, image: &ImageId) -> Result<Vec<String>, Refusal> {
        let path = self.graph_root.join(format!("{}-images/images.json", self.driver));
        let bytes = read(&path, LARGEST_LIST).map_err(|error| not_found(&error))?.unwrap_or_default();
        let all: Vec<ListedImage> = serde_json::from_slice(&bytes)
            .map_err(|error| not_found(&format!("{}: {error}", path.display())))?;
        let found = all.into_iter().find(|listed| listed.id == image.as_str());
        Ok(found.and_then(|listed| listed.names).unwrap_or_default())
    }

    fn labels(&self, image: &ImageId) -> Result<Vec<String>, Refusal> {
        let manifest: Manifest = self.document(image, "manifest")?;
        let name = format!("={}", STANDARD.encode(manifest.config.digest));
        let configuration: ImageConfiguration = self.document(image, &name)?;
        let labels = configuration.config.labels.unwrap_or_default();
        Ok(labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect())
    }

    fn document<T: DeserializeOwned>(&self, image: &ImageId, name: &str) -> Result<T, Refusal> {
        let directory = self.graph_root.join(format!("{}-images", self.driver)).join(image.as_str());
        let bytes = read(&directory.join(name), LARGEST_MANIFEST).map_err(|error| not_found(&error))?;
        let of = || format!("image {}: {name}", image.short());
        let bytes = bytes.ok_or_else(|| not_found(&format!("{}: no such file", of())))?;
        serde_json::from_slice(&bytes).map_err(|error| not_found(&format!("{}: {error}", of())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::super::tests::Tree;
    use super::*;

    #[test]
    fn all_names_and_labels_of_an_image_are_told() {
        let tree = Tree::new();
        tree.describe_image(&["localhost/a:1", "localhost/b:2"], json!({"agent": "yes", "x": ""}));
        let config = tree.config();
        let described = Storage::locate(&config).unwrap().described(&config).unwrap();
        assert_eq!(described.names, ["localhost/a:1", "localhost/b:2"]);
        assert_eq!(described.labels, ["agent=yes", "x="]);
    }

    #[test]
    fn an_image_without_labels_has_none_and_one_without_a_configuration_is_refused() {
        let tree = Tree::new();
        tree.describe_image(&[], json!(null));
        let config = tree.config();
        let storage = Storage::locate(&config).unwrap();
        assert_eq!(storage.described(&config).unwrap(), Described::default());
        fs::remove_file(tree.image().join("manifest")).unwrap();
        assert!(storage.described(&config).unwrap_err().reason.contains("manifest: no such file"));
    }
}
