//! The configuration on stdin: parsed whole, with the container's id, or an error.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use oci_spec::runtime::{Mount, Spec};
use serde_json::Value;
use understudy_control::ContainerId;

/// A configuration of Podman's is some 30 KiB.
const LARGEST: u64 = 1024 * 1024;

pub(crate) struct Config {
    /// All that Podman wrote; what is changed and printed.
    pub(crate) document: Value,
    /// The same, typed, for reading.
    pub(crate) spec: Spec,
    pub(crate) id: ContainerId,
    /// Podman's directory for this container below its run root.
    pub(crate) userdata: PathBuf,
}

impl Config {
    pub(crate) fn read(input: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        input
            .take(LARGEST + 1)
            .read_to_end(&mut bytes)
            .context("the configuration on stdin cannot be read")?;
        if bytes.len() as u64 > LARGEST {
            bail!("the configuration on stdin has more than {LARGEST} bytes");
        }
        Self::parse(&bytes)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let document: Value =
            serde_json::from_slice(bytes).context("the configuration on stdin is not one JSON document")?;
        if !document.is_object() {
            bail!("the configuration on stdin is not an OCI runtime configuration: not an object");
        }
        // From the document and not from the bytes: a key that is there twice means the same to both.
        let spec: Spec = serde_json::from_value(document.clone())
            .context("the configuration on stdin is not an OCI runtime configuration")?;
        if spec.process().is_none() || spec.root().is_none() || spec.linux().is_none() {
            bail!("the configuration on stdin has no `process`, `root` or `linux`");
        }
        let (id, userdata) = identify(&spec)?;
        Ok(Self { document, spec, id, userdata })
    }

    /// Never empty: `parse` saw one.
    pub(crate) fn root(&self) -> PathBuf {
        self.spec.root().as_ref().map(|root| root.path().clone()).unwrap_or_default()
    }

    /// Where its first process starts, as a path inside.
    pub(crate) fn directory(&self) -> &Path {
        self.spec.process().as_ref().map_or(Path::new("/"), |process| process.cwd())
    }

    /// Whether the container's cgroup, which Podman alone names, has its id.
    pub(crate) fn has_cgroup(&self) -> bool {
        cgroup(&self.spec).is_some()
    }

    pub(crate) fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let found: Option<&HashMap<String, String>> = self.spec.annotations().as_ref();
        found.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub(crate) fn mounts(&self) -> &[Mount] {
        self.spec.mounts().as_deref().unwrap_or_default()
    }
}

/// The id is not a field: it is in the source of mounts that Podman makes for every container,
/// `RUNROOT/<driver>-containers/ID/userdata/FILE`.
///
/// The first of these that is there counts: in a pod only the first is the container's own; with --read-only Podman
/// 4.3 leaves that one out.
const MADE_BY_PODMAN: [(&str, &str); 3] =
    [("/run/.containerenv", ".containerenv"), ("/etc/hostname", "hostname"), ("/etc/hosts", "hosts")];

fn identify(spec: &Spec) -> Result<(ContainerId, PathBuf)> {
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let at = |destination: &str| {
        mounts.iter().filter(move |mount| mount.destination() == Path::new(destination)).collect::<Vec<_>>()
    };
    let first =
        MADE_BY_PODMAN.iter().map(|(place, file)| (place, file, at(place))).find(|found| !found.2.is_empty());
    let Some((place, file, found)) = first else {
        bail!("the configuration has no mount at {}: is it one of Podman's?", MADE_BY_PODMAN[0].0);
    };
    let [mount] = found.as_slice() else {
        bail!("the configuration has more than one mount at {place}");
    };
    let source = mount.source().clone().unwrap_or_default();
    let Some((id, userdata)) = owner(&source, file) else {
        bail!(
            "the mount at {place} does not come from a container's directory of Podman's: {}",
            source.display()
        );
    };
    let id: ContainerId = id.parse().context("the container's id cannot be told")?;
    let consistent = match cgroup(spec) {
        Some(cgroup) => cgroup.ends_with(id.as_str()),
        // Without a cgroup to compare with (--cgroups=disabled): a bind mount that a user asks for says `rw`, or is
        // recursive.
        None => !mount.options().iter().flatten().any(|option| option == "rw" || option == "rbind"),
    };
    if !consistent {
        bail!("the mount at {place} is not the one that Podman makes (do not mount anything there)");
    }
    Ok((id, userdata))
}

fn cgroup(spec: &Spec) -> Option<String> {
    let path = spec.linux().as_ref()?.cgroups_path().as_ref()?;
    Some(path.to_string_lossy().into_owned())
}

/// Splits `…/<driver>-containers/ID/userdata/FILE`.
pub(crate) fn owner(source: &Path, file: &str) -> Option<(String, PathBuf)> {
    let userdata = source.parent().filter(|_| source.file_name().is_some_and(|name| name == file))?;
    let container = userdata.parent().filter(|_| userdata.ends_with("userdata"))?;
    container
        .parent()?
        .file_name()?
        .to_str()?
        .strip_suffix("-containers")
        .filter(|driver| !driver.is_empty())?;
    let plain = source.is_absolute()
        && source
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::RootDir));
    plain.then(|| Some((container.file_name()?.to_str()?.to_owned(), userdata.to_owned())))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{ID, sample};
    use super::*;

    const CONTAINERENV: &str = MADE_BY_PODMAN[0].0;

    fn error(bytes: &[u8]) -> String {
        format!("{:#}", Config::parse(bytes).err().expect("an error"))
    }

    #[test]
    fn samples_of_podman_give_their_id() {
        let config = sample("none-4.3.1");
        assert_eq!(config.id.as_str(), ID);
        assert!(config.userdata.ends_with(format!("{ID}/userdata")));
        assert_eq!(sample("none-5.4.2").id.as_str(), ID);
    }

    #[test]
    fn nothing_empty_garbage_or_cut_off_is_a_configuration() {
        assert!(error(b"").contains("not one JSON document"));
        assert!(error(b"nonsense").contains("not one JSON document"));
        assert!(error(b"[]").contains("not an OCI runtime configuration"));
        assert!(error(b"{}").contains("no `process`"));
        let whole = serde_json::to_vec(&sample("none-4.3.1").document).unwrap();
        assert!(error(&whole[..whole.len() / 2]).contains("not one JSON document"));
        let twice = [whole.as_slice(), whole.as_slice()].concat();
        assert!(error(&twice).contains("not one JSON document"));
    }

    #[test]
    fn a_configuration_larger_than_the_limit_is_not_read() {
        let huge = vec![b' '; LARGEST as usize + 10];
        assert!(Config::read(huge.as_slice()).err().unwrap().to_string().contains("more than"));
    }

    #[test]
    fn an_id_with_path_characters_or_of_another_container_is_an_error() {
        let with_source = |source: &str| {
            let mut document = sample("none-4.3.1").document;
            for mount in document["mounts"].as_array_mut().unwrap() {
                if mount["destination"] == CONTAINERENV {
                    mount["source"] = source.into();
                }
            }
            error(document.to_string().as_bytes())
        };
        assert!(
            with_source("/run/overlay-containers/../userdata/.containerenv").contains("does not come from")
        );
        assert!(with_source("/run/overlay-containers/a;b/userdata/.containerenv").contains("cannot be told"));
        let other = "f".repeat(64);
        let forged = with_source(&format!("/tmp/overlay-containers/{other}/userdata/.containerenv"));
        assert!(forged.contains("do not mount anything there"), "{forged}");
        assert!(with_source("/etc/passwd").contains("does not come from"));
    }

    #[test]
    fn without_a_containerenv_the_host_name_tells() {
        let mut document = sample("none-4.3.1").document;
        document["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != CONTAINERENV);
        assert_eq!(Config::parse(document.to_string().as_bytes()).unwrap().id.as_str(), ID);
        document["mounts"] = serde_json::json!([]);
        assert!(error(document.to_string().as_bytes()).contains("no mount at /run/.containerenv"));
    }

    #[test]
    fn two_containerenv_mounts_are_an_error() {
        let mut document = sample("none-4.3.1").document;
        let mounts = document["mounts"].as_array_mut().unwrap();
        let again = mounts.iter().find(|mount| mount["destination"] == CONTAINERENV).unwrap().clone();
        mounts.push(again);
        assert!(error(document.to_string().as_bytes()).contains("more than one"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Config::parse(&bytes).is_err());
        }

        #[test]
        fn a_damaged_configuration_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = serde_json::to_vec(&sample("none-4.3.1").document).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Config::parse(&bytes);
        }
    }
}
