//! What this Podman says about images, and what containers.conf(5) says about directories of hooks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use understudy_control::ImageId;

use super::layout::Scope;

/// Read without being told, by every version (but only if nothing else is configured).
const DEFAULT_HOOKS_DIR: &str = "/usr/share/containers/oci/hooks.d";

pub(super) struct Podman {
    binary: PathBuf,
    /// Files and directories of configuration, in the order in which a later one wins.
    configuration: Vec<PathBuf>,
}

impl Podman {
    pub(super) fn find(scope: Scope) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let binary = std::env::split_paths(&path)
            .map(|directory| directory.join("podman"))
            .find(|podman| podman.is_file())
            .context("`podman` is not in PATH (install Podman first)")?;
        let mut base = vec![PathBuf::from("/usr/share/containers"), "/etc/containers".into()];
        if scope == Scope::User {
            let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
            let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
            base.extend(config.map(|config| config.join("containers")));
        }
        let configuration = base
            .iter()
            .flat_map(|directory| [directory.join("containers.conf"), directory.join("containers.conf.d")])
            .collect();
        Ok(Self { binary, configuration })
    }

    #[cfg(test)]
    pub(super) fn new(binary: &Path, configuration: Vec<PathBuf>) -> Self {
        Self { binary: binary.to_owned(), configuration }
    }

    /// `image` is an id or a name.
    pub(super) fn image_id(&self, image: &str) -> Result<ImageId> {
        if let Ok(id) = image.trim_start_matches("sha256:").parse() {
            return Ok(id);
        }
        let output = Command::new(&self.binary)
            .args(["image", "inspect", "--format", "{{.Id}}", "--", image])
            .output()
            .with_context(|| format!("{} cannot be run", self.binary.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("--sidecar-image {image}: {} (build or pull the image first)", said.trim());
        }
        let id = String::from_utf8_lossy(&output.stdout);
        id.trim().trim_start_matches("sha256:").parse().with_context(|| format!("--sidecar-image {image}"))
    }

    /// The directories that are read now, `ours` left aside. Setting `hooks_dir` replaces the default, so what is
    /// configured, or the default, has to be said again.
    pub(super) fn hooks_dirs(&self, ours: &Path) -> Result<Vec<PathBuf>> {
        let default = vec![PathBuf::from(DEFAULT_HOOKS_DIR)];
        let mut found = default.clone();
        for file in self.configuration.iter().flat_map(|place| expand(place)).filter(|file| file != ours) {
            if let Some((directories, append)) = hooks_dir_of(&file)? {
                if !append {
                    found.clear();
                }
                found.extend(directories);
            }
        }
        Ok(if found.is_empty() { default } else { found })
    }
}

/// The content of the drop-in that announces `directories`.
pub(super) fn drop_in(directories: &[PathBuf]) -> Result<String> {
    let mut list = Vec::new();
    for directory in directories {
        let text = directory.to_str().context("a directory of hooks is not UTF-8")?;
        if text.chars().any(|c| c.is_control()) {
            bail!("a directory of hooks has a control character in its name");
        }
        list.push(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    let note = "# Written by understudy-hook install; understudy-hook uninstall takes it away.\n";
    Ok(format!("{note}[engine]\nhooks_dir = [{}]\n", list.join(", ")))
}

/// A file itself, or the `.conf` files of a directory in order.
fn expand(place: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf"))
        .collect();
    files.sort();
    files
}

/// The list, and whether it adds to what earlier files say (`{append = true}` in it). None if the file is not there or
/// does not set it.
fn hooks_dir_of(file: &Path) -> Result<Option<(Vec<PathBuf>, bool)>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
    };
    let table: toml::Table = text.parse().with_context(|| format!("{} is not valid", file.display()))?;
    let list = table.get("engine").and_then(|engine| engine.get("hooks_dir")).and_then(toml::Value::as_array);
    Ok(list.map(|list| {
        let append = list.iter().any(|item| item.get("append").and_then(toml::Value::as_bool) == Some(true));
        (list.iter().filter_map(toml::Value::as_str).map(PathBuf::from).collect(), append)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_is_said_again_the_last_file_winning() {
        let dir = tempfile::tempdir().unwrap();
        let (main, more) = (dir.path().join("containers.conf"), dir.path().join("containers.conf.d"));
        fs::create_dir(&more).unwrap();
        let ours = more.join("50-understudy.conf");
        let podman = Podman::new(Path::new("/bin/false"), vec![main.clone(), more.clone()]);
        assert_eq!(podman.hooks_dirs(&ours).unwrap(), [PathBuf::from(DEFAULT_HOOKS_DIR)]);
        fs::write(&main, "[engine]\nhooks_dir = [\"/one\"]\n").unwrap();
        assert_eq!(podman.hooks_dirs(&ours).unwrap(), [PathBuf::from("/one")]);
        fs::write(more.join("10-x.conf"), "[engine]\nhooks_dir = [\"/two\", \"/three\"]\n").unwrap();
        fs::write(more.join("20-y.conf"), "[engine]\nhooks_dir = [\"/four\", {append = true}]\n").unwrap();
        fs::write(&ours, "[engine]\nhooks_dir = [\"/ours\"]\n").unwrap();
        fs::write(more.join("README"), "not toml").unwrap();
        assert_eq!(podman.hooks_dirs(&ours).unwrap(), ["/two", "/three", "/four"].map(PathBuf::from));
    }

    #[test]
    fn a_drop_in_is_valid_whatever_the_directory_is_called() {
        let text = drop_in(&["/a \"b\"\\c".into(), "/d".into()]).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["engine"]["hooks_dir"][0].as_str(), Some("/a \"b\"\\c"));
        assert!(drop_in(&["/a\nb".into()]).is_err());
    }
}
