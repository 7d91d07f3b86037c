//! Keeps guards where they are while programs of the host replace files.
//!
//! `git config`, and editors, write a new file and rename it over the old one; the kernel then takes away what is mounted on
//! the old one, in every mount namespace, and the container could write the new one. So each container with guards has a
//! process on the host, in the container's mount namespace, that is told of each such rename (inotify(7) tells by inode,
//! whoever does it), lies a guard over the new file, keeps everybody from opening that for writing (a lease, fcntl(2)), and then
//! judges what may have happened in between. A container that may have used the moment, or that may write the file later by a
//! descriptor from then, is ended, and `why` says so.

mod events;
mod inode;
mod judge;
mod start;
mod target;
mod tree;

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, fchdir, getrlimit, pidfd_send_signal, setrlimit, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use understudy_control::sys::{self, Wanted};
use understudy_control::{ContainerId, Refusal};

use self::judge::Tampered;
use self::tree::Tree;
use super::git;
use super::guard::Guarded;
use crate::installation::Installation;
use crate::process::Process;
use crate::refusals;
pub(crate) use start::start;

/// What the stage that starts it hands over, on stdin.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    id: ContainerId,
    name: Option<String>,
    pid: i32,
    start_time: u64,
    guards: Vec<Guarded>,
}

/// What it says on stdout once it watches; anything else is an error.
const READY: &str = "ready";
/// How often a file that is being written is looked at again.
const AGAIN: Duration = Duration::from_millis(20);
/// How often it is tried whether a mount can be made read-only.
const LATER: Duration = Duration::from_millis(500);
/// A task's length at the most, in bytes.
const LARGEST: u64 = 8 << 20;

/// Ends with the container.
pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    sys::close_inherited().context("what was inherited cannot be closed")?;
    match prepared(state) {
        Ok(watch) => watch.run(),
        Err(error) => {
            println!("{error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

struct Watch {
    installation: Installation,
    task: Task,
    process: Process,
    home: std::os::fd::OwnedFd,
    theirs: std::os::fd::OwnedFd,
    wanted: Wanted,
    tree: Tree,
}

fn prepared(state: &Path) -> Result<Watch> {
    let wanted = Wanted::listen().context("whether a lease is wanted cannot be listened for")?;
    // Not when it leads a group already, and then it has a session of its own.
    let _ = setsid();
    let mut text = Vec::new();
    io::stdin().lock().take(LARGEST).read_to_end(&mut text)?;
    let task: Task = serde_json::from_slice(&text).context("the guards to be kept cannot be read")?;
    let installation = Installation::load(state)?;
    let limit = getrlimit(Resource::Nofile);
    // If it must not, those that there are may do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let process = Process::open(task.pid)?;
    if process.start_time() != task.start_time {
        bail!("the container's process has ended");
    }
    let open = |path: &str, flags| {
        open(path, flags | OFlags::CLOEXEC, Mode::empty()).with_context(|| format!("{path} cannot be opened"))
    };
    let home = open("/proc/self/ns/mnt", OFlags::RDONLY)?;
    let theirs = open(&format!("/proc/{}/ns/mnt", task.pid), OFlags::RDONLY)?;
    let nothing = open("/dev/null", OFlags::RDWR)?;
    process.check_alive()?;
    let inode = |fd: &std::os::fd::OwnedFd| rustix::fs::fstat(fd).map(|status| status.st_ino);
    if inode(&home)? == inode(&theirs)? {
        bail!("the container has no mount namespace of its own");
    }
    move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Mount))
        .context("the container's mount namespace cannot be entered")?;
    let tree = Tree::new(&task.guards)?;
    println!("{READY}");
    io::stdout().flush()?;
    // Whoever reads an end of these waits for nothing of this process.
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(Watch { installation, task, process, home, theirs, wanted, tree })
}

impl Watch {
    fn run(mut self) -> Result<ExitCode> {
        match self.watch() {
            Ok(None) => {
                self.seal()?;
                Ok(ExitCode::SUCCESS)
            }
            Ok(Some(tampered)) => self.end(&tampered.told()),
            Err(error) => self.end(&Refusal::new(
                format!(
                    "the container was ended: what its mounted project guards could not be kept: {error:#}"
                ),
                "start it again; before you use git or open the project, run understudy-hook scan on it",
            )),
        }
    }

    /// `None` once the container has ended, and left nothing behind by which what was held can be written.
    fn watch(&mut self) -> Result<Option<Tampered>> {
        loop {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(AGAIN.subsec_nanos()) };
            let timeout = self.tree.is_waiting().then_some(&timeout);
            let mut fds = [
                PollFd::new(self.tree.events().queue(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.process.handle(), PollFlags::IN),
                PollFd::new(&self.wanted, PollFlags::IN),
            ];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            if !fds[1].revents().is_empty() {
                return self.tree.linked();
            }
            if !fds[2].revents().is_empty() {
                self.wanted.heard()?;
                if let Some(tampered) = self.tree.wanted()? {
                    return Ok(Some(tampered));
                }
            }
            if let Some(tampered) = self.tree.settle(Instant::now())? {
                return Ok(Some(tampered));
            }
        }
    }

    /// First it ends the container, then it says why. Once nothing of it is left, this process may end, and lets go of the files
    /// that it holds.
    fn end(&self, why: &Refusal) -> Result<ExitCode> {
        let killed = pidfd_send_signal(self.process.handle(), Signal::KILL);
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Mount))?;
        let noted = refusals::note(&self.installation, &self.task.id, self.task.name.as_deref(), why);
        match killed {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => {
                return Err(io::Error::from(errno)).context("the container's process cannot be ended");
            }
        }
        // The first of its pid namespace, which no other container shares: the kernel has ended all others in it by then.
        while !self.process.has_ended(None)? {}
        move_into_link_name_space(self.theirs.as_fd(), Some(LinkNameSpaceType::Mount))?;
        self.seal()?;
        noted?;
        Ok(ExitCode::FAILURE)
    }

    /// Keeps the container's mounts, and what is held, until nothing can be written by them.
    fn seal(&self) -> Result<()> {
        while !self.tree.seal().context("the container's mounts cannot be made read-only")? {
            std::thread::sleep(LATER);
        }
        Ok(())
    }
}

/// What the kernel is asked by a path, it is asked by one that is relative to a directory: `/proc` is the container's.
fn in_directory<T>(
    directory: impl std::os::fd::AsFd,
    ask: impl FnOnce() -> rustix::io::Result<T>,
) -> io::Result<T> {
    fchdir(directory)?;
    Ok(ask()?)
}

/// Files that git reads its configuration from by their name alone, and which it writes several times in one command: of a
/// directory that was git's when the container started.
fn is_git_configuration(directory: &std::os::fd::OwnedFd, name: &OsStr) -> bool {
    let has = |name: &str| inode::look(directory, OsStr::new(name)).is_ok();
    (name == "config" || name == git::OF_WORK_TREE) && has("HEAD") && (has("objects") || has(git::COMMON))
}
