//! Where things are: of a user's installation, or of root's.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

#[derive(Clone, Debug)]
pub struct Paths {
    /// The root filesystems and downloads.
    pub cache: PathBuf,
    /// The staged programs.
    pub stage: PathBuf,
    /// The world's directory: log, certificate, repositories.
    pub world: PathBuf,
    /// The sidecar's configuration.
    pub configuration: PathBuf,
    /// The control directory, which is mounted into the sidecar.
    pub control: PathBuf,
    /// The installation's state.
    pub state: PathBuf,
    /// Podman's own storage.
    pub storage: PathBuf,
    /// Where Podman's configuration is, which `install` may add to.
    pub engine: PathBuf,
}

impl Paths {
    pub(super) fn of_this_session() -> Result<Self> {
        let variable =
            |name| std::env::var_os(name).map(PathBuf::from).with_context(|| format!("{name} is not set"));
        let scratch = variable("SCRATCH").context("run this by integration-tests/machine/enter")?;
        let home = variable("HOME")?;
        ensure!(
            home.starts_with(&scratch),
            "HOME is not scratch: run this by integration-tests/machine/enter"
        );
        let (cache, stage) = (variable("UNDERSTUDY_TEST_CACHE")?, variable("UNDERSTUDY_TEST_STAGE")?);
        let world = home.join("world");
        if is_root() {
            return Ok(Self {
                cache,
                stage,
                world,
                configuration: "/etc/understudy".into(),
                control: "/run/understudy/control".into(),
                state: "/var/lib/understudy".into(),
                storage: "/var/lib/containers".into(),
                engine: "/etc/containers".into(),
            });
        }
        Ok(Self {
            cache,
            stage,
            world,
            configuration: home.join(".config/understudy"),
            control: variable("XDG_RUNTIME_DIR")?.join("understudy/control"),
            state: home.join(".local/share/understudy"),
            storage: home.join(".local/share/containers"),
            engine: home.join(".config/containers"),
        })
    }

    /// The hook's records, one directory for each container.
    pub fn records(&self) -> PathBuf {
        self.control.with_file_name("containers")
    }

    /// A staged program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.stage.join("bin").join(name)
    }
}

/// The option of `understudy-hook install` for whoever runs the tests.
pub fn scope() -> &'static str {
    if is_root() { "--system" } else { "--user" }
}

/// A command run by the owner of the containers' user namespaces, who may look at all of their processes.
pub fn as_owner(program: impl AsRef<OsStr>) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("podman");
    command.arg("unshare").arg(program);
    command
}

/// Whether the tests run on root's Podman.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
