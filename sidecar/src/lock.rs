//! One sidecar for each state directory and each control directory: two would renew the same accounts, decide apart, write
//! over each other, and take each other's containers.

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

/// What the directory is for.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    State,
    Control,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::State => "state directory",
            Self::Control => "control directory",
        }
    }

    fn mount(self) -> &'static str {
        match self {
            Self::State => "mount a volume for it: -v understudy-state:/var/lib/understudy",
            Self::Control => "mount it: -v $XDG_RUNTIME_DIR/understudy/control:/run/understudy/control",
        }
    }
}

/// # Errors
/// If another sidecar holds it, or the directory cannot be written to.
pub fn take(directory: &Path, place: Place) -> Result<Lock> {
    let path = directory.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(io::Error::from)
        .with_context(|| format!("{}: the {} ({})", path.display(), place.name(), place.mount()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { _file: file }),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "another sidecar is running with the {} {}: stop it first (podman ps --filter \
             annotation=understudy.role=sidecar, or systemctl --user stop understudy), or give this one a state volume and a control \
             directory of its own",
            place.name(),
            directory.display()
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
        for (place, name) in [(Place::State, "state directory"), (Place::Control, "control directory")] {
            let first = take(state.path(), place).unwrap();
            let refused = take(state.path(), place).unwrap_err().to_string();
            let said = format!("another sidecar is running with the {name} ");
            assert!(refused.starts_with(&said), "{refused}");
            drop(first);
            take(state.path(), place).unwrap();
        }
        let none = take(&state.path().join("none"), Place::State).unwrap_err().to_string();
        assert!(none.contains("mount a volume"), "{none}");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let state = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", state.path().join("lock")).unwrap();
        assert!(take(state.path(), Place::State).is_err());
    }
}
