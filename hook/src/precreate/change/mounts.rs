//! Mounts that are added, all read-only and last, so that nothing lies over them.

use std::path::Path;

use anyhow::Result;
use oci_spec::runtime::Mount;
use serde_json::{Map, Value, json};

use super::super::{GUEST, GUEST_BINARY_DIRECTORY};
use super::list;
use crate::installation::Installation;
use crate::trust::File;
use crate::workspace::guard::Guard;

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// `guest` is the directory of the guest files; `places` is where a file of it is to be seen as well.
pub(super) fn change(
    document: &mut Map<String, Value>,
    installation: &Installation,
    guest: &Path,
    places: &[(String, File)],
) -> Result<()> {
    let mounts = list(document, "mounts")?;
    mounts.retain(|mount| mount.get("destination").and_then(Value::as_str) != Some(RESOLV_CONF));
    mounts.push(bind(guest, GUEST));
    mounts.push(bind(&installation.guest_binary_directory(), GUEST_BINARY_DIRECTORY));
    mounts.push(bind(&guest.join("resolv.conf"), RESOLV_CONF));
    mounts.extend(places.iter().map(|(path, file)| bind(&guest.join(file.name()), path)));
    Ok(())
}

pub(super) fn add(document: &mut Map<String, Value>, source: &Path, destination: &str) -> Result<()> {
    list(document, "mounts")?.push(bind(source, destination));
    Ok(())
}

/// Each after the mount that it lies in.
pub(super) fn guard(document: &mut Map<String, Value>, guards: &[Guard]) -> Result<()> {
    let mounts = list(document, "mounts")?;
    for guard in guards.iter().rev() {
        mounts.insert(guard.within + 1, guard.mount.clone());
    }
    Ok(())
}

fn bind(source: &Path, destination: &str) -> Value {
    json!({
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["bind", "ro", "nosuid", "nodev", "rprivate"],
    })
}

/// A note for each place where a mount of the user's lies: what that holds is not in ours.
pub(super) fn covered<'a>(
    mounts: &'a [Mount],
    places: &'a [(String, File)],
) -> impl Iterator<Item = String> + 'a {
    let is_mounted = |path: &str| {
        mounts.iter().any(|mount| {
            mount.destination() != Path::new("/") && Path::new(path).starts_with(mount.destination())
        })
    };
    places.iter().filter(move |(path, _)| is_mounted(path)).map(|(path, _)| {
        format!("{path}: certificates that are mounted there are not in what the sidecar needs there")
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Tree, apply_simply, config_of};
    use super::*;

    #[test]
    fn ours_come_last_and_read_only_and_podmans_resolv_conf_goes() {
        let tree = Tree::new();
        tree.write_bundle("/etc/ssl/certs/ca-certificates.crt");
        let mut document = tree.config().document;
        let own = json!({"destination": RESOLV_CONF, "type": "bind", "source": "/x", "options": ["bind"]});
        document["mounts"].as_array_mut().unwrap().insert(0, own);
        let config = config_of(&document);
        let after = apply_simply(&config, &tree.installation()).unwrap();
        let mounts = after["mounts"].as_array().unwrap();
        let first = mounts.iter().position(|mount| mount["destination"] == GUEST).unwrap();
        let ours = &mounts[first..];
        let destinations: Vec<_> = ours.iter().map(|mount| mount["destination"].as_str().unwrap()).collect();
        let fixed = [GUEST, GUEST_BINARY_DIRECTORY, RESOLV_CONF, "/etc/ssl/certs/ca-certificates.crt"];
        assert!(destinations.starts_with(&fixed), "{destinations:?}");
        let hashed =
            destinations.iter().filter(|path| path.starts_with("/etc/ssl/certs/") && path.ends_with(".0"));
        assert_eq!(hashed.count(), 1, "{destinations:?}");
        for mount in ours {
            for option in ["ro", "nosuid", "nodev", "rprivate", "bind"] {
                assert!(mount["options"].as_array().unwrap().contains(&json!(option)));
            }
        }
        assert_eq!(mounts.iter().filter(|mount| mount["destination"] == RESOLV_CONF).count(), 1);
    }

    #[test]
    fn guards_come_right_after_what_they_lie_in() {
        let mount = |at: &str| json!({"destination": at});
        let guard = |within, at: &str| {
            Guard {
            within,
            mount: mount(at),
            expected: serde_json::from_value(json!({
                "mount": {"device": "1:1", "path": "/"}, "below": "x", "place": {"device": "1:1", "path": "/x"},
                "read_only": true
            }))
            .unwrap(),
        }
        };
        let mut document =
            Map::from_iter([("mounts".to_owned(), json!([mount("/a"), mount("/b"), mount("/b/c")]))]);
        super::guard(&mut document, &[guard(0, "/a/1"), guard(1, "/b/1"), guard(1, "/b/2")]).unwrap();
        let order: Vec<_> =
            document["mounts"].as_array().unwrap().iter().map(|m| m["destination"].clone()).collect();
        assert_eq!(order, ["/a", "/a/1", "/b", "/b/1", "/b/2", "/b/c"]);
    }

    #[test]
    fn a_mount_of_the_users_on_a_bundle_is_told() {
        let mount: Mount =
            serde_json::from_value(json!({"destination": "/etc/ssl", "type": "bind", "source": "/x"}))
                .unwrap();
        let places =
            ["/etc/ssl/cert.pem", "/etc/pki/tls/cert.pem"].map(|path| (path.to_owned(), File::Bundle));
        assert_eq!(covered(&[mount], &places).count(), 1);
    }
}
