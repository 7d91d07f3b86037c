//! An agent's container: `podman run --network=none --annotation understudy.harness=…`, as the README says.

use anyhow::Result;

use super::AGENT_IMAGE;
use crate::podman::{Container, Outcome, podman, unique};

/// A container that has not been started; options add up.
#[derive(Clone, Debug)]
pub struct Agent {
    options: Vec<String>,
    image: String,
}

impl Agent {
    /// A sealed container of this harness.
    pub fn new(harness: &str) -> Self {
        Self::plain().option("--network=none").annotation("understudy.harness", harness)
    }

    /// A sealed generic container with policy `world`.
    pub fn generic() -> Self {
        Self::new("generic").annotation("understudy.policy", "world")
    }

    /// A container that asks for nothing.
    pub fn plain() -> Self {
        Self { options: Vec::new(), image: AGENT_IMAGE.to_owned() }
    }

    /// Any option of `podman run`.
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.option(&format!("--annotation={key}={value}"))
    }

    pub fn image(mut self, image: &str) -> Self {
        image.clone_into(&mut self.image);
        self
    }

    /// Runs a command to its end, attached.
    ///
    /// # Errors
    /// If Podman cannot be run; its own failure is in the outcome.
    pub fn run(&self, command: &[&str]) -> Result<Outcome> {
        let name = unique("agent");
        let fixed = ["run", "--rm", "--name", &name];
        podman(fixed.into_iter().chain(self.tail()).chain(command.iter().copied()))
    }

    /// The command line of Podman that an editor would be given for it.
    pub fn attached(&self, command: &[&str]) -> Vec<String> {
        let fixed = ["podman", "run", "--rm", "-i"];
        fixed.into_iter().chain(self.tail()).chain(command.iter().copied()).map(str::to_owned).collect()
    }

    /// Runs a shell script to its end.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub fn shell(&self, script: &str) -> Result<Outcome> {
        self.run(&["sh", "-c", script])
    }

    /// Starts a command in the background.
    ///
    /// # Errors
    /// If the container does not start.
    pub fn start(&self, command: &[&str]) -> Result<Container> {
        Container::start(&unique("agent"), self.tail().chain(command.iter().copied()))
    }

    fn tail(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(String::as_str).chain([self.image.as_str()])
    }
}
