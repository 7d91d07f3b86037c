//! `podman-secret = "NAME"`: what `podman run --secret NAME` mounts.

use std::io;

use zeroize::Zeroizing;

use super::{Surroundings, file};

pub(super) fn read(name: &str, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
    let path = around.podman_secrets.join(name);
    match file::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "there is no {}; start the sidecar with `--secret {name}` (in a Quadlet unit: `Secret={name}`)",
            path.display()
        )),
        _ => file::read(&path, around).map_err(|error| format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_where_podman_mounts_it_or_the_option_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let around = Surroundings {
            podman_secrets: directory.path().to_owned(),
            credentials: None,
            host_run: false,
            ..Surroundings::default()
        };
        let error = read("acme", &around).unwrap_err();
        assert!(error.contains("`--secret acme`") && error.contains("`Secret=acme`"), "{error}");
        std::fs::write(directory.path().join("acme"), "a value").unwrap();
        assert_eq!(read("acme", &around).unwrap().as_slice(), b"a value");
    }
}
