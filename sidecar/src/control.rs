//! How the operator's commands reach the sidecar that runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use understudy_control::{Client, ControlDirectory, Reply, Request};

use crate::config::Directories;

#[derive(Debug, Clone, clap::Args)]
pub struct Control {
    /// The directory of the control socket
    #[arg(long, value_name = "DIR", default_value = "/run/understudy/control")]
    control: PathBuf,
}

impl Control {
    /// Of a command that names all directories.
    pub fn of(directories: &Directories) -> Self {
        Self { control: directories.control.clone() }
    }

    pub fn call(&self, request: Request) -> Result<Reply> {
        let client = Client::new(ControlDirectory::new(&self.control), Duration::from_secs(5));
        Ok(client.call(request, &[])?)
    }
}
