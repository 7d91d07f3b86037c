//! `credential = "NAME"`: a credential of the sidecar's systemd unit (systemd.exec(5), "Credentials").

use std::io;

use zeroize::Zeroizing;

use super::{Surroundings, file};

pub(super) fn read(name: &str, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
    let remedy = format!("add `LoadCredential={name}:/path/of/the/value` to the sidecar's unit");
    let Some(directory) = &around.credentials else {
        return Err(format!("$CREDENTIALS_DIRECTORY is not set; {remedy}"));
    };
    let path = directory.join(name);
    match file::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no {}; {remedy}", path.display()))
        }
        _ => file::read(&path, around).map_err(|error| format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_where_systemd_puts_it_or_the_setting_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let around = |credentials| Surroundings {
            podman_secrets: "/x".into(),
            credentials,
            host_run: true,
            ..Surroundings::default()
        };
        let here = around(Some(directory.path().to_owned()));
        for around in [&here, &around(None)] {
            let error = read("acme", around).unwrap_err();
            assert!(error.contains("`LoadCredential=acme:"), "{error}");
        }
        std::fs::write(directory.path().join("acme"), "a value").unwrap();
        assert_eq!(read("acme", &here).unwrap().as_slice(), b"a value");
    }
}
