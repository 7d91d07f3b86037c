//! A stand: a world (the mock provider), a sidecar whose network is the world's, the hook installed, and agents.
//!
//! It runs inside `machine/enter` or `machine/test-bed` only: it takes over the home that it is in, and as root the system.

mod agent;
mod hunt;
mod paths;
mod settings;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};

pub use agent::Agent;
pub use paths::{Paths, as_owner, is_root, scope};
pub use settings::{ACCOUNT, ALL, ALLOWED, ANTHROPIC, GENERIC, GIT, PROVIDERS, Provider};

use crate::mock::{Entry, Log, Request};
use crate::podman::{self, Container, podman, until};
use settings::Secrets;

/// Of the access tokens that the mock's accounts get: they are renewed while a test runs.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(15);
pub const AGENT_IMAGE: &str = "localhost/understudy-agent";
/// A newer Debian for command-line tools (`images/clis`).
pub const CLI_IMAGE: &str = "localhost/understudy-clis";
pub const SIDECAR_IMAGE: &str = "localhost/understudy";
const PATH: &str = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything that runs for the tests of one binary.
#[derive(Debug)]
pub struct Stand {
    pub paths: Paths,
    pub secrets: Secrets,
    given: Vec<&'static str>,
    world: Container,
    sidecar: std::sync::Mutex<Option<Container>>,
    /// Held while `secrets.toml` is changed.
    declaring: std::sync::Mutex<()>,
}

/// See [`Stand::declare_meanwhile`].
pub struct Declared {
    stand: &'static Stand,
    name: &'static str,
    table: String,
}

impl Drop for Declared {
    fn drop(&mut self) {
        let Self { stand, name, table } = self;
        drop(stand.take_back(table));
        drop(until("its end", || Ok(!stand.operator(&["secrets"])?.success()?.contains(*name))));
    }
}

impl Stand {
    /// The one stand of this process, started at the first call. Its containers end with the session (`machine/enter`),
    /// or when the next binary's stand starts.
    ///
    /// # Errors
    /// The error of the one start.
    pub fn shared() -> Result<&'static Self> {
        static STAND: OnceLock<Result<Stand>> = OnceLock::new();
        STAND
            .get_or_init(|| Self::start(&ALL, |_| ()))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("the stand did not start: {error:#}"))
    }

    /// Starts everything in a session that holds nothing else, with these secrets; `progress` is told each step.
    ///
    /// # Errors
    /// If a part does not come up; its log is in the message.
    pub fn start(given: &[&'static str], progress: impl Fn(&str)) -> Result<Self> {
        let paths = Paths::of_this_session()?;
        podman(["rm", "--all", "--force", "--time", "0"])?.success()?;
        progress("importing the agent's root filesystem and building the sidecar's image");
        images(&paths)?;
        progress("starting the world: a mock of every host, without a network of its own");
        let world = world(&paths)?;
        let secrets = Secrets::random()?;
        settings::write(&paths, &secrets, given)?;
        progress("installing the hook");
        install(&paths)?;
        let stand = Self {
            paths,
            secrets,
            given: given.to_vec(),
            world,
            sidecar: std::sync::Mutex::default(),
            declaring: std::sync::Mutex::default(),
        };
        progress("starting the sidecar");
        stand.start_sidecar()?;
        Ok(stand)
    }

    /// Starts the sidecar and waits until it says that it is healthy.
    ///
    /// # Errors
    /// If it is not within 30 seconds; its log is in the message.
    pub fn start_sidecar(&self) -> Result<()> {
        self.start_sidecar_with(&[&format!("--network=container:{}", self.world.name)])
    }

    /// The same in another network than the world's, with these options.
    ///
    /// # Errors
    /// As [`Stand::start_sidecar`].
    pub fn start_sidecar_with(&self, network: &[&str]) -> Result<()> {
        let sidecar = sidecar(&self.paths, network, &self.given)?;
        let healthy = until("the sidecar", || Ok(sidecar.exec(&["/understudy", "health"])?.code == Some(0)));
        healthy.with_context(|| sidecar.logs().unwrap_or_default())?;
        *self.lock() = Some(sidecar);
        Ok(())
    }

    /// Ends the sidecar at once, as a crash would.
    pub fn kill_sidecar(&self) {
        drop(self.lock().take());
    }

    /// A command of the sidecar's own program, run in its container.
    ///
    /// # Errors
    /// If the sidecar does not run.
    pub fn operator(&self, command: &[&str]) -> Result<podman::Outcome> {
        let sidecar = self.lock();
        let sidecar = sidecar.as_ref().context("the sidecar does not run")?;
        sidecar.exec(&[&["/understudy"], command].concat())
    }

    /// The same, with something to read.
    ///
    /// # Errors
    /// If the sidecar does not run.
    pub fn operator_reads(&self, command: &[&str], input: &[u8]) -> Result<podman::Outcome> {
        let name = self.sidecar_name()?;
        let exec = ["exec", "--interactive", &name, "/understudy"];
        podman::run(Command::new("podman").args(exec).args(command), input)
    }

    /// Adds to the sidecar's `secrets.toml`, which takes it over while it runs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn declare(&self, table: &str) -> Result<()> {
        self.change_secrets(|text| match text.contains(table) {
            true => text.to_owned(),
            false => format!("{text}\n{table}"),
        })
    }

    /// Declares the secret `name`, in force when this returns and for as long as what it gives is kept: other tests would have to
    /// choose between it and theirs.
    ///
    /// # Errors
    /// If the file cannot be written, or the sidecar does not read it.
    pub fn declare_meanwhile(&'static self, name: &'static str, table: &str) -> Result<Declared> {
        let table = format!("[{name}]\n{table}");
        self.declare(&table)?;
        let declared = Declared { stand: self, name, table };
        // A file that was changed is read some seconds later.
        until("the declaration", || Ok(self.operator(&["secrets"])?.success()?.contains(name)))?;
        Ok(declared)
    }

    /// Takes back what [`Self::declare`] added.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn take_back(&self, table: &str) -> Result<()> {
        self.change_secrets(|text| text.replacen(&format!("\n{table}"), "", 1))
    }

    /// One test at a time, so that none loses what another one declares. By a rename: the sidecar must not need the file that it
    /// once opened.
    fn change_secrets(&self, change: impl FnOnce(&str) -> String) -> Result<()> {
        let _alone = self.declaring.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = self.paths.configuration.join("secrets.toml");
        let new = file.with_extension("new");
        std::fs::write(&new, change(&std::fs::read_to_string(&file)?))?;
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(std::fs::rename(new, file)?)
    }

    /// The sidecar's log.
    ///
    /// # Errors
    /// If the sidecar does not run.
    pub fn sidecar_log(&self) -> Result<String> {
        self.lock().as_ref().context("the sidecar does not run")?.logs()
    }

    /// The sidecar's container.
    ///
    /// # Errors
    /// If the sidecar does not run.
    pub fn sidecar_name(&self) -> Result<String> {
        Ok(self.lock().as_ref().context("the sidecar does not run")?.name.clone())
    }

    /// The sidecar's process, as this session numbers it.
    ///
    /// # Errors
    /// If the sidecar does not run.
    pub fn sidecar_pid(&self) -> Result<u32> {
        self.lock().as_ref().context("the sidecar does not run")?.pid()
    }

    /// The option that puts a container into the world's network.
    pub fn world_network(&self) -> String {
        format!("--network=container:{}", self.world.name)
    }

    /// All that arrived in the world so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn arrived(&self) -> Result<Vec<Entry>> {
        Log::read(&self.paths.world.join("log.jsonl"))
    }

    /// The tokens that the world made so far.
    ///
    /// # Errors
    /// As [`Stand::arrived`].
    pub fn minted(&self) -> Result<Vec<String>> {
        let values = self.arrived()?.into_iter().filter_map(|entry| match entry {
            Entry::Minted { value } => Some(value),
            _ => None,
        });
        Ok(values.collect())
    }

    /// The requests that arrived for a path; tests that run side by side tell their requests apart by it.
    ///
    /// # Errors
    /// As [`Stand::arrived`].
    pub fn requests(&self, path: &str) -> Result<Vec<Request>> {
        let requests = self.arrived()?.into_iter().filter_map(|entry| match entry {
            Entry::Request(request) if request.path == path => Some(*request),
            _ => None,
        });
        Ok(requests.collect())
    }

    /// Names that the resolver was asked for.
    ///
    /// # Errors
    /// As [`Stand::arrived`].
    pub fn queries(&self) -> Result<Vec<String>> {
        let names = self.arrived()?.into_iter().filter_map(|entry| match entry {
            Entry::Query { name, .. } => Some(name),
            _ => None,
        });
        Ok(names.collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Container>> {
        self.sidecar.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn images(paths: &Paths) -> Result<()> {
    import(&paths.cache.join("agent.tar"), AGENT_IMAGE)?;
    if podman(["image", "exists", SIDECAR_IMAGE])?.code != Some(0) {
        let context = paths.stage.join("image");
        let context = context.to_str().context("a path is not UTF-8")?;
        podman(["build", "--quiet", "--format", "docker", "--tag", SIDECAR_IMAGE, context])?.success()?;
    }
    Ok(())
}

/// Makes an image of a root filesystem, if there is none.
///
/// # Errors
/// If there is no such file, or Podman fails.
pub fn import(tar: &Path, image: &str) -> Result<()> {
    if podman(["image", "exists", image])?.code != Some(0) {
        let tar = tar.to_str().context("a path is not UTF-8")?;
        podman(["import", "--quiet", "--change", PATH, tar, image])?.success()?;
    }
    Ok(())
}

/// Where a test may have a server of its own in the world, behind TLS with a certificate of the world's.
const RELAY: &str = "store.example=127.0.0.1:9000";

fn world(paths: &Paths) -> Result<Container> {
    match std::fs::remove_dir_all(&paths.world) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("the old world");
        }
        _ => std::fs::create_dir_all(paths.world.join("git"))?,
    }
    repository(&paths.world.join("git/hello.git"))?;
    let volume = format!("{}:/world", paths.world.display());
    let program = format!("{}:/mock-provider:ro", paths.program("mock-provider").display());
    let name = podman::unique("world");
    let world = Container::start(
        &name,
        [
            "--network=none",
            "--volume",
            &volume,
            "--volume",
            &program,
            AGENT_IMAGE,
            "/mock-provider",
            "--dns",
            "53",
            "--tls",
            "443,8443",
            "--plain",
            "80,8080",
            "--log",
            "/world/log.jsonl",
            "--ca-out",
            "/world/ca.crt",
            "--token-lifetime",
            &TOKEN_LIFETIME.as_secs().to_string(),
            "--git-root",
            "/world/git",
            "--relay",
            RELAY,
        ],
    )?;
    let certificate = paths.world.join("ca.crt");
    until("the world", || Ok(certificate.exists())).with_context(|| world.logs().unwrap_or_default())?;
    Ok(world)
}

/// A bare repository with one commit of one file, `README`.
fn repository(path: &Path) -> Result<()> {
    let script = r#"
        set -eu
        git init --quiet --bare --initial-branch=main "$1"
        work=$(mktemp -d)
        git -C "$work" init --quiet --initial-branch=main
        echo 'hello from the world' >"$work/README"
        git -C "$work" add README
        git -C "$work" -c user.name=test -c user.email=test@example.invalid commit --quiet --message=one
        git -C "$work" push --quiet "$1" main
        rm -rf "$work"
    "#;
    podman::run(Command::new("sh").args(["-c", script, "sh"]).arg(path), b"")?.success()?;
    Ok(())
}

fn install(paths: &Paths) -> Result<()> {
    let hook = paths.program("understudy-hook");
    let outcome =
        podman::run(Command::new(&hook).args(["install", scope(), "--sidecar-image", SIDECAR_IMAGE]), b"")?;
    outcome.success().context("understudy-hook install")?;
    std::fs::create_dir_all(&paths.control)?;
    std::fs::set_permissions(&paths.control, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

/// As docs and README say, but for the network, which is the world's instead of the internet.
fn sidecar(paths: &Paths, network: &[&str], given: &[&str]) -> Result<Container> {
    let configuration = format!("{}:/etc/understudy:ro", paths.configuration.display());
    let control = format!("{}:/run/understudy/control", paths.control.display());
    let mut arguments = vec![
        "--annotation",
        "understudy.role=sidecar",
        "--read-only",
        // runc before 1.2 cannot mount a secret below a read-only root without it
        "--tmpfs=/run/secrets",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--no-healthcheck",
        "--volume",
        &configuration,
        "--volume",
        &control,
        "--volume",
        "understudy-state:/var/lib/understudy",
    ];
    arguments.extend(network);
    for secret in given {
        arguments.extend(["--secret", secret]);
    }
    arguments.push(SIDECAR_IMAGE);
    Container::start(&podman::unique("understudy"), arguments)
}
