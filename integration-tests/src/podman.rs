//! Podman as a person uses it: its command line, with a limit on every call so that what hangs fails.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Longest that one command may take; nothing is measured by it.
pub const LIMIT: Duration = Duration::from_secs(180);

/// What a command did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Standard output of a command that must have succeeded.
    ///
    /// # Errors
    /// If it did not; both outputs are in the message.
    pub fn success(self) -> Result<String> {
        ensure!(
            self.code == Some(0),
            "exit {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }

    /// Both outputs, as a person at the terminal would have seen them.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs a command to its end; its input ends after `input`.
///
/// # Errors
/// If it cannot be started or takes longer than [`LIMIT`] (it is killed then).
pub fn run(command: &mut Command, input: &[u8]) -> Result<Outcome> {
    run_with(command, |mut stdin| {
        // a program that does not read its input closes it
        let _ = stdin.write_all(input);
        None
    })
}

/// Runs a command to its end; its input stays open and empty, as that of a person who types nothing.
///
/// # Errors
/// As [`run`].
pub fn run_waiting(command: &mut Command) -> Result<Outcome> {
    run_with(command, Some)
}

/// `feed` gets the command's input and gives back what is to stay open until its end.
fn run_with(command: &mut Command, feed: impl FnOnce(ChildStdin) -> Option<ChildStdin>) -> Result<Outcome> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let open = child.stdin.take().and_then(feed);
    let code = wait(&mut child, &shown)?;
    drop(open);
    let text = |reader: Reader| reader.join().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let (Ok(stdout), Ok(stderr)) = (text(stdout), text(stderr)) else { bail!("output of {shown} was lost") };
    Ok(Outcome { code, stdout, stderr })
}

type Reader = std::thread::JoinHandle<Vec<u8>>;

fn drain(stream: Option<impl Read + Send + 'static>) -> Reader {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // what was read before an error is still shown
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child, shown: &str) -> Result<Option<i32>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            bail!("took longer than {} s: {shown}", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `podman ARGUMENTS`.
///
/// # Errors
/// As [`run`].
pub fn podman(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Outcome> {
    run(Command::new("podman").args(arguments), b"")
}

/// Waits until `ready` holds.
///
/// # Errors
/// If it does not within 30 seconds, or fails.
pub fn until(what: &str, ready: impl FnMut() -> Result<bool>) -> Result<()> {
    until_within(Duration::from_secs(30), what, ready)
}

/// Waits until `ready` holds.
///
/// # Errors
/// If it does not within `limit`, or fails.
pub fn until_within(limit: Duration, what: &str, mut ready: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !ready()? {
        ensure!(start.elapsed() < limit, "waited {} s for {what}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A name that no other container of this run has.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A container that is removed with this value.
#[derive(Debug)]
pub struct Container {
    pub name: String,
}

impl Container {
    /// `podman run --detach --name NAME ARGUMENTS`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(name: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        let mut command = Command::new("podman");
        command.args(["run", "--detach", "--name", name]).args(arguments);
        let container = Self { name: name.to_owned() };
        run(&mut command, b"")?.success().with_context(|| format!("container {name}"))?;
        Ok(container)
    }

    /// `podman exec NAME COMMAND`.
    ///
    /// # Errors
    /// If Podman cannot be run; the command's own failure is in the outcome.
    pub fn exec(&self, command: &[&str]) -> Result<Outcome> {
        podman(["exec", &self.name].into_iter().chain(command.iter().copied()))
    }

    /// A field of `podman inspect`, as a Go template.
    ///
    /// # Errors
    /// If the container is gone.
    pub fn inspect(&self, template: &str) -> Result<String> {
        let text = podman(["inspect", "--type", "container", "--format", template, &self.name])?.success()?;
        Ok(text.trim().to_owned())
    }

    /// Process id of the container's first process, as this session sees it.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pid(&self) -> Result<u32> {
        let pid: u32 = self.inspect("{{.State.Pid}}")?.parse()?;
        ensure!(pid != 0, "container {} does not run", self.name);
        Ok(pid)
    }

    /// Both streams of its log.
    ///
    /// # Errors
    /// If the container is gone.
    pub fn logs(&self) -> Result<String> {
        Ok(podman(["logs", &self.name])?.text())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // a container that is gone already needs no removing
        let _ = podman(["rm", "--force", "--time", "0", "--volumes", &self.name]);
    }
}
