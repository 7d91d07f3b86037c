//! How the operator's commands reach the sidecar that runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use understudy_control::{CallError, Client, ControlDirectory, Pending, Reply, Request};

use crate::config::Directories;
use crate::places;

/// For an answer that is there at once.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, clap::Args)]
pub struct Control {
    /// The directory of the control socket [default: $XDG_RUNTIME_DIR/understudy/control if it is there, else /run/understudy/control]
    #[arg(long, value_name = "DIR", default_value_os_t = places::control(), hide_default_value = true)]
    control: PathBuf,
}

impl Control {
    /// Of a command that names all directories.
    pub fn of(directories: &Directories) -> Self {
        Self { control: directories.control.clone() }
    }

    pub fn call(&self, request: Request) -> Result<Reply> {
        Ok(self.client(PATIENCE).call(request, &[])?)
    }

    /// Asks what takes up to `wait` to be answered.
    pub fn begin(&self, request: Request, wait: Duration) -> Result<Pending, CallError> {
        self.client(PATIENCE + wait).connect()?.send(request, &[])
    }

    fn client(&self, patience: Duration) -> Client {
        Client::new(ControlDirectory::new(&self.control), patience)
    }
}
