//! The search of a whole container for values that must not be in it.

use anyhow::{Context, Result, bail};

use super::{Stand, as_owner};
use crate::podman::{self, Container, podman};
use crate::search::Needles;

impl Stand {
    /// Every place in a running container where one of `values` is, in any encoding: environment, command line and
    /// memory of its processes, the files that it sees, what Podman says and keeps of it, its log, and the sidecar's.
    ///
    /// # Errors
    /// If something could not be looked at: nothing found would then mean nothing.
    pub fn hunt(&self, container: &Container, values: &[&str]) -> Result<Vec<String>> {
        let mut found = self.hunt_inside(container, values)?;
        let needles = Needles::new(values.iter().copied())?;
        let config = container.inspect("{{.OCIConfigPath}}")?;
        let texts = [
            ("podman inspect", podman(["inspect", &container.name])?.success()?),
            ("its log", container.logs()?),
            ("its bundle", std::fs::read_to_string(&config).with_context(|| config.clone())?),
            ("the sidecar's log", self.sidecar_log()?),
        ];
        let hits = texts.iter().filter(|(_, text)| needles.find(text.as_bytes()));
        found.extend(hits.map(|(place, _)| (*place).to_owned()));
        Ok(found)
    }

    /// By the owner of the container's user namespace, who may read all of it.
    fn hunt_inside(&self, container: &Container, values: &[&str]) -> Result<Vec<String>> {
        let mut command = as_owner(self.paths.program("probe"));
        command.args(["search", "--container", &container.pid()?.to_string()]);
        let outcome = podman::run(&mut command, values.join("\n").as_bytes())?;
        match outcome.code {
            Some(0 | 1) => Ok(outcome.stdout.lines().map(str::to_owned).collect()),
            _ => bail!("the search failed: {}", outcome.text()),
        }
    }
}
