//! Runs another program for a limited time, with limited output and no environment but what is given.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// The most that is kept of each of stdout and stderr, in bytes; the rest is read and dropped.
const MAX_OUTPUT: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// `input` must fit a pipe (64 KiB), so that writing it never waits for the program. A program that is not done
/// within `limit` is killed with its process group, which is an error; what it left running in other groups is not
/// waited for.
pub(crate) fn run(command: &mut Command, input: &[u8], limit: Duration) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("{name} cannot be run"))?;
    let result = attend(&mut child, input, deadline);
    if !matches!(result, Ok(Some(_))) {
        end(&mut child);
    }
    match result.with_context(|| format!("{name} failed"))? {
        Some(output) => Ok(output),
        None => bail!("{name} did not finish within {} s", limit.as_secs()),
    }
}

/// `None` at the deadline.
fn attend(child: &mut Child, input: &[u8], deadline: Instant) -> Result<Option<Output>> {
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input) {
            // It did not want its input; its exit status tells whether that is bad.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    let mut stdout = Pipe::new(child.stdout.take())?;
    let mut stderr = Pipe::new(child.stderr.take())?;
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        if wait(&process, &stdout, &stderr, left)? {
            // All that it wrote itself is in the pipes by now.
            stdout.drain()?;
            stderr.drain()?;
            return Ok(Some(Output { status: child.wait()?, stdout: stdout.text(), stderr: stderr.text() }));
        }
        stdout.drain()?;
        stderr.drain()?;
    }
}

/// Whether the process has ended.
fn wait(process: &OwnedFd, stdout: &Pipe, stderr: &Pipe, left: Duration) -> io::Result<bool> {
    let mut fds = vec![PollFd::new(process, PollFlags::IN)];
    fds.extend(stdout.pollable());
    fds.extend(stderr.pollable());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => Ok(fds.first().is_some_and(|fd| !fd.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The child leads the group, and is not reaped yet, so the number is still its own.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// One of the program's outputs.
struct Pipe {
    reader: Option<Box<dyn ReadFd>>,
    kept: Vec<u8>,
}

trait ReadFd: Read + AsFd {}
impl<T: Read + AsFd> ReadFd for T {}

impl Pipe {
    fn new(reader: Option<impl ReadFd + 'static>) -> io::Result<Self> {
        if let Some(reader) = &reader {
            let flags = rustix::fs::fcntl_getfl(reader)?;
            rustix::fs::fcntl_setfl(reader, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Self { reader: reader.map(|reader| Box::new(reader) as Box<dyn ReadFd>), kept: Vec::new() })
    }

    fn pollable(&self) -> Option<PollFd<'_>> {
        self.reader.as_ref().map(|reader| PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN))
    }

    fn drain(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let mut buffer = [0; 8192];
        // As much as a pipe can hold, so that a program that writes without end cannot keep this busy past the deadline.
        for _ in 0..8 {
            match reader.read(&mut buffer) {
                Ok(0) => {
                    self.reader = None;
                    return Ok(());
                }
                Ok(length) => {
                    let room = MAX_OUTPUT.saturating_sub(self.kept.len());
                    self.kept.extend(buffer.iter().take(length.min(room)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_outputs_and_status_pass() {
        let output = run(&mut shell("cat; echo oops >&2; exit 3"), b"text", AMPLE).unwrap();
        assert_eq!(output.stdout, "text");
        assert_eq!(output.stderr, "oops\n");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn more_output_than_a_pipe_holds_is_read() {
        let output = run(&mut shell("head -c 300000 /dev/zero"), b"", AMPLE).unwrap();
        assert_eq!(output.stdout.len(), 300_000);
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let error = run(&mut shell("sleep 1000 & wait"), b"", Duration::from_millis(200)).unwrap_err();
        assert!(error.to_string().contains("did not finish"), "{error}");
    }

    #[test]
    fn a_child_that_keeps_the_pipe_does_not_hold_up_the_answer() {
        let output = run(&mut shell("sleep 1000 & echo $!"), b"", AMPLE).unwrap();
        let left: i32 = output.stdout.trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("/no/such/nft"), b"", AMPLE).unwrap_err();
        assert!(error.to_string().contains("/no/such/nft"), "{error}");
    }
}
