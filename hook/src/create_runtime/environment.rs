//! Whether the environment that the runtime is going to use is the one that precreate looked at.
//!
//! Podman adds to it afterwards: a secret that is given as a variable (`--secret NAME,type=env`), and what systemd tells
//! of sockets that it passes on; and so may a precreate hook of somebody else.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::record::fingerprint;

/// As for precreate; the placed variables are few.
const LARGEST: u64 = 2 * 1024 * 1024;

/// What systemd says of passed sockets, sd_listen_fds(3). They live in the host's network namespace.
const SOCKETS: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

#[derive(Deserialize)]
struct Configuration {
    process: Process,
}

#[derive(Deserialize)]
struct Process {
    #[serde(default)]
    env: Vec<String>,
}

/// An error if `config.json` in `bundle` has a variable whose fingerprint is not in `written`. Values are never told.
pub(super) fn unchanged(written: &[u64], bundle: &Path) -> Result<()> {
    let path = bundle.join("config.json");
    let mut text = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text))
        .with_context(|| format!("{} cannot be read", path.display()))?;
    if text.len() as u64 > LARGEST {
        bail!("{} is larger than {LARGEST} bytes", path.display());
    }
    // The error quotes nothing of the file.
    let Ok(Configuration { process }) = serde_json::from_slice(&text) else {
        bail!("{} is not an OCI runtime configuration", path.display());
    };
    let Some(added) = process.env.iter().find(|entry| !written.contains(&fingerprint(entry))) else {
        return Ok(());
    };
    let name = added.split_once('=').map_or("", |(name, _)| name);
    if SOCKETS.contains(&name) {
        bail!(
            "a socket of the host is passed into the container ({name}, systemd socket activation), and leads around \
             the sidecar: start it without a .socket unit"
        );
    }
    bail!(
        "environment variable {name:?} was added after the hook had looked (--secret with type=env, or another precreate \
         hook): give the secret to the sidecar, and this container gets a stand-in for it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(written: &[&str], config: &str) -> Result<()> {
        let bundle = tempfile::tempdir().unwrap();
        std::fs::write(bundle.path().join("config.json"), config).unwrap();
        unchanged(&written.iter().map(|entry| fingerprint(entry)).collect::<Vec<_>>(), bundle.path())
    }

    #[test]
    fn what_precreate_wrote_passes() {
        let config = r#"{"process":{"env":["A=1","B=2"]},"root":{}}"#;
        checked(&["B=2", "A=1", "C=3"], config).unwrap();
        checked(&[], r#"{"process":{}}"#).unwrap();
    }

    #[test]
    fn an_added_or_changed_variable_is_told_without_its_value() {
        for env in [r#"["A=1","KEY=real"]"#, r#"["KEY=real"]"#, r#"["KEY=stand-in","KEY=real"]"#] {
            let error = checked(&["A=1", "KEY=stand-in"], &format!(r#"{{"process":{{"env":{env}}}}}"#));
            let error = error.unwrap_err().to_string();
            assert!(error.contains("\"KEY\"") && error.contains("type=env"), "{error}");
            assert!(!error.contains("real"), "{error}");
        }
        let odd = checked(&[], r#"{"process":{"env":["real"]}}"#).unwrap_err().to_string();
        assert!(!odd.contains("real"), "{odd}");
    }

    #[test]
    fn a_socket_of_the_hosts_is_told() {
        let error = checked(&[], r#"{"process":{"env":["LISTEN_FDS=1"]}}"#).unwrap_err().to_string();
        assert!(error.contains("socket unit"), "{error}");
    }

    #[test]
    fn no_configuration_or_a_damaged_one_is_an_error_that_quotes_nothing() {
        assert!(unchanged(&[], Path::new("/nonexistent")).is_err());
        let error = format!("{:#}", checked(&[], r#"{"process":{"env":"KEY=real"}}"#).unwrap_err());
        assert!(!error.contains("real"), "{error}");
    }
}
