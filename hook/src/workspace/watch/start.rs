//! The side of the stage that starts it: the container does not start without.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{READY, Task};
use crate::installation::Installation;
use crate::process::Process;
use crate::record::Record;
use crate::workspace::guard::Guarded;

/// Less than the stage has.
const PATIENCE: Duration = Duration::from_secs(6);
/// What it says when it cannot, in bytes at the most.
const LONGEST: u64 = 4096;

/// Answers once the guards are kept, if there are any. The process outlives this one, and ends with the container.
pub(crate) fn start(installation: &Installation, record: &Record, process: &Process) -> Result<()> {
    let path = Record::directory(installation, &record.prepare.id).join("guest/guards.json");
    let guards: Vec<Guarded> = match fs::read(&path) {
        Ok(text) => {
            serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    if guards.is_empty() {
        return Ok(());
    }
    let task = Task {
        id: record.prepare.id.clone(),
        name: record.prepare.name.clone(),
        pid: process.pid(),
        start_time: process.start_time(),
        guards,
    };
    let mut child = Command::new("/proc/self/exe")
        .args(["watch", "--state"])
        .arg(&installation.state)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the process that keeps the mounted project's guards cannot be started")?;
    let said = handed_over(&mut child, &serde_json::to_vec(&task)?);
    if let Ok(said) = &said
        && said == READY
    {
        return Ok(());
    }
    let _ = child.kill();
    let _ = child.wait();
    bail!(
        "the mounted project's guards cannot be kept: {} (start it again; if that does not help: understudy-hook doctor)",
        said?
    )
}

/// Its first line.
fn handed_over(child: &mut Child, task: &[u8]) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    child.stdin.take().context("no stdin")?.write_all(task).context("the guards cannot be handed over")?;
    let mut stdout = child.stdout.take().context("no stdout")?;
    let mut said = Vec::new();
    while !said.contains(&b'\n') && (said.len() as u64) < LONGEST {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout)).map_err(std::io::Error::from)? == 0 {
            bail!("it was not ready within {} s", PATIENCE.as_secs());
        }
        let mut buffer = [0; 1024];
        match stdout.read(&mut buffer)? {
            0 => break,
            length => said.extend(buffer.iter().take(length)),
        }
    }
    Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or("it ended").to_owned())
}
