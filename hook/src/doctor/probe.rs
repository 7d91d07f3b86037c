//! Starts a container that a protected machine refuses: nothing else shows that this Podman runs the hooks.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Check;
use crate::child::{self, Output};
use crate::installation::Installation;

const LIMIT: Duration = Duration::from_secs(90);

/// No harness has this name, so the sidecar refuses; without a sidecar the hook itself does.
const ANNOTATION: &str = "understudy.harness=probe-does-not-exist";

/// What every refusal starts with.
const REFUSED: &str = "understudy: refused:";

/// The exit status of a refused container.
const REFUSED_STATUS: i32 = 126;

pub(crate) struct Seen {
    pub(crate) check: Check,
    /// Where this Podman reads hook files, in order.
    pub(crate) directories: Vec<PathBuf>,
}

/// From `image`, or else from a root file system that holds nothing but the hook's own binary.
pub(crate) fn run(installation: &Installation, image: Option<&str>) -> Seen {
    const WHAT: &str = "a probe container is refused";
    match start(installation, image) {
        Ok(output) => {
            let verdict = verdict(output.status.code(), &output.stderr);
            Seen { check: Check::new(WHAT, verdict), directories: directories(&output.stderr) }
        }
        Err(error) => Seen { check: Check::new(WHAT, Err(error)), directories: Vec::new() },
    }
}

fn start(installation: &Installation, image: Option<&str>) -> Result<Output> {
    let name = format!("understudy-probe-{}", std::process::id());
    let mut command = Command::new("podman");
    // Podman says only in its debug log where it looks for hooks.
    command.args(["--log-level=debug", "run", "--rm", "--pull=never", "--network=none", "--name", &name]);
    command.args(["--annotation", ANNOTATION]);
    let root = installation.state.join(&name);
    match image {
        Some(image) => command.args([image, "true"]),
        None => {
            make_root(installation, &root)?;
            command.arg("--rootfs").arg(&root).args(["/understudy-hook", "--version"])
        }
    };
    let output = child::run(&mut command, b"", LIMIT);
    if output.is_err() {
        let mut remove = Command::new("podman");
        let _ = child::run(remove.args(["rm", "--force", "--time=0", &name]), b"", LIMIT);
    }
    let _ = fs::remove_dir_all(&root);
    output
}

fn make_root(installation: &Installation, root: &Path) -> Result<()> {
    let make = || -> std::io::Result<()> {
        fs::DirBuilder::new().mode(0o755).create(root)?;
        let binary = installation.guest_binary_directory().join("understudy-hook");
        fs::copy(binary, root.join("understudy-hook"))?;
        Ok(())
    };
    make().with_context(|| format!("{} cannot be made (run: understudy-hook install)", root.display()))
}

fn verdict(status: Option<i32>, stderr: &str) -> Result<()> {
    let refused = stderr.lines().any(|line| line.trim_start().starts_with(REFUSED));
    match status {
        Some(REFUSED_STATUS) if refused => Ok(()),
        Some(0) => bail!(
            "hooks are not run: an annotated container was started unprotected (run: understudy-hook install)"
        ),
        _ => {
            let said: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("time=")).collect();
            bail!("Podman could not start it: {}", said.join(" "))
        }
    }
}

/// From lines such as `time="…" level=debug msg="reading hooks from /usr/share/containers/oci/hooks.d"`.
fn directories(log: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in log.lines() {
        let directory = line
            .split_once("msg=\"reading hooks from ")
            .and_then(|(_, rest)| rest.strip_suffix('"'))
            .map(PathBuf::from);
        directories.extend(directory.filter(|directory| !directories.contains(directory)));
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "time=\"x\" level=debug msg=\"reading hooks from /usr/share/containers/oci/hooks.d\"\n\
        time=\"x\" level=debug msg=\"added hook /usr/share/containers/oci/hooks.d/a.json\"\n\
        time=\"x\" level=debug msg=\"reading hooks from /home/u/hooks.d\"\n\
        time=\"x\" level=debug msg=\"reading hooks from /home/u/hooks.d\"\n";

    #[test]
    fn only_our_own_refusal_counts() {
        let refused = format!("{LOG}understudy: refused: no such harness\nunderstudy: choose another\n");
        verdict(Some(126), &refused).unwrap();
        assert!(verdict(Some(126), LOG).is_err());
        assert!(verdict(Some(125), &refused).is_err());
        assert!(verdict(None, &refused).is_err());
        let started = verdict(Some(0), LOG).unwrap_err();
        assert!(started.to_string().contains("hooks are not run"), "{started}");
        let error = verdict(Some(126), &format!("{LOG}Error: executing hook")).unwrap_err().to_string();
        assert!(error.contains("Error: executing hook") && !error.contains("level=debug"), "{error}");
    }

    #[test]
    fn the_directories_come_from_the_log() {
        let expected: Vec<PathBuf> =
            vec!["/usr/share/containers/oci/hooks.d".into(), "/home/u/hooks.d".into()];
        assert_eq!(directories(LOG), expected);
        assert!(directories("").is_empty());
    }
}
