//! Where the directories of an installation are, if nobody says: the sidecar's container has them in the system's places,
//! and so has root; a user's own are in that user's home. So commands need no path on either side.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The place of the control socket: `$XDG_RUNTIME_DIR/understudy/control` of a user that has it.
pub fn control() -> PathBuf {
    chosen(users("XDG_RUNTIME_DIR", None, "understudy/control"), me(), "/run/understudy/control")
}

/// The place of the configuration: `~/.config/understudy` (XDG base directory specification) of a user that has it.
pub fn configuration() -> PathBuf {
    chosen(users("XDG_CONFIG_HOME", Some(".config"), "understudy"), me(), "/etc/understudy")
}

/// None for root, whose installation is the system's.
fn users(variable: &str, in_home: Option<&str>, below: &str) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home?)))?;
    Some(base.join(below))
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What another user made in a home that others may write to is nobody's configuration.
fn chosen(users: Option<PathBuf>, me: u32, systems: &str) -> PathBuf {
    let own = |path: &PathBuf| {
        let found = path.metadata();
        found.is_ok_and(|found| found.is_dir() && found.uid() == me)
    };
    users.filter(own).unwrap_or_else(|| Path::new(systems).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_own_directory_is_taken_if_it_is_there() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join("understudy");
        let (systems, chosen) = (Path::new("/s"), |users, me| chosen(users, me, "/s"));
        assert_eq!(chosen(Some(own.clone()), me()), systems);
        std::fs::create_dir(&own).unwrap();
        assert_eq!(chosen(Some(own.clone()), me()), own);
        assert_eq!(chosen(Some(own), me() + 1), systems);
        assert_eq!(chosen(None, me()), systems);
    }
}
