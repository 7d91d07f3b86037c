//! Stacks of podman-compose.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::podman::{Outcome, podman, run};

/// Gone, with its containers, when this is dropped.
pub struct Stack {
    directory: tempfile::TempDir,
    name: String,
}

impl Stack {
    /// `text` is its compose file. Nothing of it runs yet.
    pub fn new(name: &str, text: &str) -> Result<Self> {
        let directory = tempfile::tempdir_in(std::env::var("HOME")?)?;
        fs::write(directory.path().join("compose.yaml"), text)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    pub fn compose(&self, arguments: &[&str]) -> Result<Outcome> {
        let mut compose = Command::new("podman-compose");
        compose.args(["-p", &self.name]).args(arguments).current_dir(self.directory.path());
        run(&mut compose, b"")
    }

    /// The name of a service's container.
    pub fn container(&self, service: &str) -> String {
        format!("{}_{service}_1", self.name)
    }

    pub fn exec(&self, service: &str, command: &[&str]) -> Result<Outcome> {
        podman(["exec", &self.container(service)].into_iter().chain(command.iter().copied()))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // what is left goes with the session
        let _ = self.compose(&["down", "-t", "0"]);
    }
}
