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
    let name = format!("understudy-probe-{}", std::process::id());
    let root = installation.state.join(&name);
    let probe = Probe { name: &name, image, root: &root };
    let result = match image {
        Some(_) => Ok(()),
        None => make_root(installation, &root),
    };
    let verdict = result.and_then(|()| probe.start()).and_then(|output| verdict(&output));
    let directories = probe.directories();
    probe.remove();
    let _ = fs::remove_dir_all(&root);
    Seen { check: Check::new("a probe container is refused", verdict), directories }
}

struct Probe<'a> {
    name: &'a str,
    image: Option<&'a str>,
    root: &'a Path,
}

impl Probe<'_> {
    fn start(&self) -> Result<Output> {
        let output = child::run(&mut self.command("run"), b"", LIMIT);
        self.remove();
        output
    }

    /// Podman says where it looks for hooks only in its debug log, and only when it sets a container up. (It would tell
    /// with `run` too, but at that level it waits for 20 s when the container ends.)
    fn directories(&self) -> Vec<PathBuf> {
        let mut init = Command::new("podman");
        init.args(["--log-level=debug", "init", self.name]);
        child::run(&mut self.command("create"), b"", LIMIT)
            .and_then(|_| child::run(&mut init, b"", LIMIT))
            .map(|output| directories(&output.stderr))
            .unwrap_or_default()
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("podman");
        command.args([verb, "--pull=never", "--network=none", "--log-driver=none", "--name", self.name]);
        command.args(["--annotation", ANNOTATION]);
        match self.image {
            Some(image) => command.args([image, "true"]),
            None => command.arg("--rootfs").arg(self.root).args(["/understudy-hook", "--version"]),
        };
        command
    }

    /// Whatever state it is in, or none.
    fn remove(&self) {
        let mut command = Command::new("podman");
        let _ = child::run(command.args(["rm", "--force", "--time=0", self.name]), b"", LIMIT);
    }
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

fn verdict(output: &Output) -> Result<()> {
    judge(output.status.code(), &output.stderr)
}

fn judge(status: Option<i32>, stderr: &str) -> Result<()> {
    let refused = stderr.lines().any(|line| line.trim_start().starts_with(REFUSED));
    match status {
        Some(REFUSED_STATUS) if refused => Ok(()),
        Some(0) => bail!(
            "hooks are not run: an annotated container was started unprotected (run: understudy-hook install)"
        ),
        _ => bail!("Podman could not start it: {}", stderr.trim()),
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
        let refused = "a note\nunderstudy: refused: no such harness\nunderstudy: choose another\n";
        judge(Some(126), refused).unwrap();
        assert!(judge(Some(126), "").is_err());
        assert!(judge(Some(125), refused).is_err());
        assert!(judge(None, refused).is_err());
        let started = judge(Some(0), "").unwrap_err();
        assert!(started.to_string().contains("hooks are not run"), "{started}");
        let error = judge(Some(126), "Error: executing hook").unwrap_err().to_string();
        assert!(error.contains("Error: executing hook"), "{error}");
    }

    #[test]
    fn the_directories_come_from_the_log() {
        let expected: Vec<PathBuf> =
            vec!["/usr/share/containers/oci/hooks.d".into(), "/home/u/hooks.d".into()];
        assert_eq!(directories(LOG), expected);
        assert!(directories("").is_empty());
    }
}
