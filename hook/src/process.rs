//! A process that is known beyond its number, which the kernel uses again.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A live process, held by a pidfd.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    handle: OwnedFd,
    /// Field 22 of proc_pid_stat(5), in clock ticks since boot.
    start_time: u64,
}

impl Process {
    pub(crate) fn open(pid: i32) -> Result<Self> {
        // `Pid` holds no negative number: rustix asserts it.
        let Some(pid) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            bail!("{pid} is not the number of a process");
        };
        let number = pid.as_raw_nonzero();
        let handle = pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .with_context(|| format!("process {number} cannot be opened"))?;
        let stat = fs::read_to_string(format!("/proc/{number}/stat"))
            .with_context(|| format!("/proc/{number}/stat cannot be read"))?;
        let start_time =
            start_time(&stat).with_context(|| format!("/proc/{number}/stat has an unknown form"))?;
        let process = Self { pid, handle, start_time };
        // Alive after the reading: then what was read was its own.
        process.check_alive()?;
        Ok(process)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its pidfd.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(crate) fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whatever was read from its `/proc` directory before this succeeded belongs to this process.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.has_ended(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
            bail!("process {} has ended", self.pid());
        }
        Ok(())
    }

    /// Waits that long at the most; without a limit it can be that it was interrupted.
    pub(crate) fn has_ended(&self, limit: Option<&Timespec>) -> Result<bool> {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        match poll(&mut fds, limit) {
            Err(Errno::INTR) if limit.is_none() => Ok(false),
            ended => Ok(ended.map_err(io::Error::from)? != 0),
        }
    }
}

/// Whether the process that had `pid` and `start_time` still runs. An error when that cannot be told.
pub(crate) fn runs(pid: i32, wanted: u64) -> io::Result<bool> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(start_time(&stat) == Some(wanted)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // The process ended between open and read (ESRCH).
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The command's name is in parentheses and may hold any byte, parentheses and blanks included; fields are
/// counted from the last one. Field 3 is the first after it.
fn start_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const STAT: &str =
        "7 (sh) S 1 7 7 0 -1 4194560 900 0 0 0 0 0 0 0 20 0 1 0 123456 2500000 200 18446744073709551615";

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        assert_eq!(start_time(STAT), Some(123_456));
        assert_eq!(start_time(&STAT.replace("sh", ") S 1 2 3 (")), Some(123_456));
        assert_eq!(start_time("7 (sh) S 1"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn this_process_runs_and_one_of_its_number_before_does_not() {
        let me = Process::open(std::process::id() as i32).unwrap();
        assert!(runs(me.pid(), me.start_time()).unwrap());
        assert!(!runs(me.pid(), me.start_time() + 1).unwrap());
    }

    #[test]
    fn an_ended_process_is_noticed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id() as i32).unwrap();
        process.check_alive().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.check_alive().is_err());
        assert!(!runs(process.pid(), process.start_time()).unwrap());
        assert!(Process::open(process.pid()).is_err());
    }

    #[test]
    fn numbers_that_are_no_process_are_refused() {
        for pid in [0, -1, i32::MIN] {
            assert!(Process::open(pid).is_err(), "{pid}");
        }
    }
}
