//! Programs of the host that are run with a process group of their own: waited for within bounds, and ended with all that
//! they started.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Its status is left to be collected: until then its number, and that of its group, is no other's.
pub(crate) fn is_done_by(child: &Child, deadline: Instant) -> bool {
    let Some(pid) = pid(child) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(Some(_)) => return true,
            Ok(None) | Err(rustix::io::Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            _ => return false,
        }
    }
}

/// Kills whatever is left of it and of its children. `child` was started with `process_group(0)`.
pub(crate) fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Some(group) = pid(child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
