//! The state that a runtime writes to a hook's stdin (OCI runtime specification, "State").

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use understudy_control::{ContainerId, annotation};

/// The largest state that is read, in bytes; Podman's is about 1 KiB plus the annotations.
pub(crate) const MAX_STATE: u64 = 64 * 1024;

/// What the stages use of it. Runtimes add keys of their own (crun: `root`), so others are passed over.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct State {
    pub(crate) id: ContainerId,
    /// Missing once the container has stopped.
    #[serde(default)]
    pub(crate) pid: Option<i32>,
    pub(crate) status: String,
    /// The directory of the configuration that the runtime reads.
    pub(crate) bundle: PathBuf,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl State {
    /// Reads to the end of `input`.
    pub(crate) fn read(input: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        input.take(MAX_STATE + 1).read_to_end(&mut bytes).context("the container's state on stdin")?;
        if bytes.len() as u64 > MAX_STATE {
            bail!("the container's state on stdin is larger than {MAX_STATE} bytes");
        }
        serde_json::from_slice(&bytes).context("the container's state on stdin is not an OCI state")
    }

    /// Whether it asks to be the sidecar, also by the `KEY/NAME` that `podman kube generate` makes of the key. Whether it
    /// may is for precreate, which knows its image.
    pub(crate) fn is_sidecar(&self) -> bool {
        let is_role = |key: &str| key.split('/').next() == Some(annotation::ROLE);
        self.annotations.iter().any(|(key, role)| is_role(key) && role == annotation::SIDECAR)
    }

    /// The process of a container whose status is one of `expected`.
    pub(crate) fn process(&self, expected: &[&str]) -> Result<i32> {
        if !expected.contains(&self.status.as_str()) {
            bail!("the container's status is {:?}, expected {}", self.status, expected.join(" or "));
        }
        match self.pid {
            Some(pid) if pid > 0 => Ok(pid),
            Some(pid) => bail!("the container's state names process {pid}"),
            None => bail!("the container's state names no process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rest: &str) -> Result<State> {
        let id = "a".repeat(64);
        State::read(format!(r#"{{"ociVersion":"1.0","id":"{id}",{rest}}}"#).as_bytes())
    }

    #[test]
    fn crun_runc_and_podman_states_are_read() {
        let crun = state(r#""pid":7,"root":"/r","bundle":"/b","status":"created","annotations":{}"#).unwrap();
        assert_eq!(crun.process(&["created", "creating"]).unwrap(), 7);
        let runc = state(r#""pid":7,"bundle":"/b","status":"creating""#).unwrap();
        assert_eq!(runc.process(&["created", "creating"]).unwrap(), 7);
        assert!(!runc.is_sidecar());
        assert!(
            state(r#""bundle":"/b","status":"x","annotations":{"understudy.role":"sidecar"}"#)
                .unwrap()
                .is_sidecar()
        );
        let generated = r#""bundle":"/b","status":"x","annotations":{"understudy.role/proxy":"sidecar"}"#;
        assert!(state(generated).unwrap().is_sidecar());
        let podman = state(r#""status":"stopped","bundle":"/b""#).unwrap();
        assert_eq!(podman.pid, None);
    }

    #[test]
    fn what_is_not_a_state_is_an_error() {
        for bad in ["", "{}", "null", "[]", r#"{"id":"../x","status":"created"}"#] {
            assert!(State::read(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in [
            r#""pid":"7","status":"created""#,
            r#""pid":4294967296,"status":"created""#,
            r#""pid":7"#,
            r#""pid":7,"status":"created","status":"creating""#,
            r#""pid":7,"status":"created"} {"#,
        ] {
            assert!(state(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_process_needs_a_number_and_the_right_status() {
        for bad in [
            r#""bundle":"/b","pid":0,"status":"created""#,
            r#""bundle":"/b","pid":-1,"status":"created""#,
            r#""bundle":"/b","status":"created""#,
            r#""bundle":"/b","pid":7,"status":"running""#,
        ] {
            assert!(state(bad).unwrap().process(&["created"]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_huge_state_is_refused_for_its_size() {
        let error = State::read(std::io::repeat(b' ')).unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
    }
}
