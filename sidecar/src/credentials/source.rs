//! Where the value of a secret comes from. One file for each kind of source; what is read is judged elsewhere
//! (`secret`).

mod command;
mod credential;
mod file;
mod podman_secret;
mod ssh_agent;
mod variable;
pub(crate) mod written;

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::accounts::Store;

pub use command::CommandSource;
pub use ssh_agent::AgentKey;

/// Exactly one for each secret. What it shows is a kind and a name, never a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An absolute path.
    File(PathBuf),
    /// A Podman secret, whatever its driver, as Podman mounts it.
    PodmanSecret(String),
    /// A systemd credential.
    Credential(String),
    /// A variable of the sidecar's environment; host-run sidecar only.
    Variable(String),
    /// What a program prints; host-run sidecar only.
    Command(CommandSource),
    /// An account of the sidecar's own store.
    Account(String),
    /// An ssh-agent keeps it.
    Agent(AgentKey),
}

/// What sources find around them: the process and its container, in tests something else. None by default.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Where Podman mounts secrets.
    pub podman_secrets: PathBuf,
    /// `$CREDENTIALS_DIRECTORY` of systemd.exec(5).
    pub credentials: Option<PathBuf>,
    /// Whether variables and commands may be sources.
    pub host_run: bool,
    /// The store of accounts; its default has none.
    pub accounts: Store,
}

impl Surroundings {
    /// Podman and systemd-nspawn set the variable `container` in all that they run (the "container interface" of
    /// systemd), so a process without it that is not the first of its namespace runs on the host.
    pub fn of_this_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            podman_secrets: PathBuf::from("/run/secrets"),
            credentials: set("CREDENTIALS_DIRECTORY").map(PathBuf::from),
            host_run: set("container").is_none() && std::process::id() != 1,
            accounts: Store::default(),
        }
    }

    /// Below these, files belong to whoever mounted them: modes are not for the operator to choose.
    pub(crate) fn is_mounted_for_us(&self, path: &Path) -> bool {
        let credentials = self.credentials.as_ref();
        path.starts_with(&self.podman_secrets)
            || credentials.is_some_and(|directory| path.starts_with(directory))
    }
}

impl Source {
    /// The bytes, or why there are none: one line that names what to do and holds nothing of a value.
    pub fn read(&self, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
        match self {
            Self::File(path) => file::read(path, around),
            Self::PodmanSecret(name) => podman_secret::read(name, around),
            Self::Credential(name) => credential::read(name, around),
            Self::Variable(name) => variable::read(name, around),
            Self::Command(command) => command.read(around),
            // It has several values.
            Self::Account(_) => Err("an account is read as a whole".to_owned()),
            Self::Agent(_) => Err("an ssh-agent gives no key away".to_owned()),
        }
    }

    /// The file that holds the value, if one does: a change of it is a change of the value.
    pub fn file(&self, around: &Surroundings) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()),
            Self::PodmanSecret(name) => Some(around.podman_secrets.join(name)),
            Self::Credential(name) => Some(around.credentials.as_ref()?.join(name)),
            // Whether it is there.
            Self::Agent(held) => Some(held.socket.clone()),
            // The keeper of accounts looks at them itself.
            Self::Variable(_) | Self::Command(_) | Self::Account(_) => None,
        }
    }

    /// Why it cannot be used now, of one that is not read before it is used.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self::Agent(held) = self else { return None };
        held.problem()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::PodmanSecret(name) => write!(f, "podman-secret {name}"),
            Self::Credential(name) => write!(f, "credential {name}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Command(command) => write!(f, "command {command}"),
            Self::Account(name) => write!(f, "account {name}"),
            Self::Agent(held) => write!(f, "ssh-agent {} {}", held.socket.display(), held.key),
        }
    }
}

/// Why a source that needs the host is refused in the image.
fn only_on_the_host(kind: &str) -> String {
    format!(
        "`{kind}` is for a sidecar that runs on the host, and this one runs in a container; use `podman-secret` or `file`"
    )
}
