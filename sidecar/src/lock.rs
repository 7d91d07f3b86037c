//! One sidecar for each state directory: two would renew the same accounts, decide apart, and write over each other.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

/// # Errors
/// If another sidecar holds it, or the directory cannot be written to.
pub fn take(state: &Path) -> Result<Lock> {
    let path = state.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).with_context(|| {
        format!(
            "{}: the state directory (mount a volume for it: -v understudy-state:/var/lib/understudy)",
            path.display()
        )
    })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { _file: file }),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "another sidecar is running with the state directory {}: stop it first (podman ps --filter \
             annotation=understudy.role=sidecar, or systemctl --user stop understudy), or give this one a state volume and a control \
             directory of its own",
            state.display()
        ),
        Err(errno) => Err(io::Error::from(errno)).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_by_one_until_that_one_ends() {
        let state = tempfile::tempdir().unwrap();
        let first = take(state.path()).unwrap();
        let refused = take(state.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another sidecar is running with the state directory "), "{refused}");
        drop(first);
        take(state.path()).unwrap();
        let none = take(&state.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("mount a volume"), "{none}");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let state = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", state.path().join("lock")).unwrap();
        assert!(take(state.path()).is_err());
    }
}
