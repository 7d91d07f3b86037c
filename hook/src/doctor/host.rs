//! The machine: Podman, kernel, login manager.

use std::ffi::OsString;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use understudy_control::sys;

use super::Check;
use crate::child;
use crate::installation::Installation;
use crate::place::tree::Directory;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(30);

/// The oldest whose behaviour is known.
const PODMAN: (u32, u32) = (4, 3);

pub(crate) fn podman() -> Check {
    let checked = || -> Result<String> {
        let mut command = Command::new("podman");
        command.args(["version", "--format", "{{.Client.Version}}"]);
        let output = child::run(&mut command, b"", LIMIT).context("install Podman")?;
        let text = output.stdout.trim().to_owned();
        let found = version(&text).with_context(|| format!("{text:?} is no version"))?;
        ensure!(found >= PODMAN, "version {text} is too old, {}.{} is needed", PODMAN.0, PODMAN.1);
        Ok(text)
    };
    match checked() {
        Ok(version) => Check::new(format!("podman {version}"), Ok(())),
        Err(error) => Check::new("podman", Err(error)),
    }
}

/// The first two numbers of `5.4.2-rc1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What can be tried without any privilege.
pub(crate) fn kernel() -> Check {
    let tried = || -> Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0").context("a socket")?;
        sys::netns_cookie(&socket).context("SO_NETNS_COOKIE (needs Linux 5.14)")?;
        let own = i32::try_from(std::process::id())?;
        Process::open(own).context("pidfd_open (needs Linux 5.3)")?;
        let root = Directory::root()?;
        root.find(Path::new("proc/self/status")).context("openat2 (needs Linux 5.6)")?;
        Ok(())
    };
    Check::new("kernel: netns cookies, pidfd, openat2", tried())
}

/// A user's runtime directory and containers end with the last session, unless the user lingers.
pub(crate) fn lingering() -> Check {
    const WHAT: &str = "lingering";
    if rustix::process::geteuid().is_root() {
        return Check::new(format!("{WHAT}: not needed by root"), Ok(()));
    }
    if !Path::new("/run/systemd/system").exists() {
        return Check::new(format!("{WHAT}: no systemd here"), Ok(()));
    }
    let lingers = || -> Result<()> {
        let mut command = Command::new("id");
        let user = child::run(command.arg("-un"), b"", LIMIT)?.stdout;
        let user = user.trim();
        ensure!(!user.is_empty() && !user.contains('/'), "this user has no name");
        if !Path::new("/var/lib/systemd/linger").join(user).exists() {
            bail!("the sidecar ends when {user} logs out (run: loginctl enable-linger {user})");
        }
        Ok(())
    };
    Check::new(WHAT, lingers())
}

/// Runs `doctor --inside` in a network namespace made as Podman would make one for this user.
pub(crate) fn netns(state: &Path, installation: &Installation) -> Check {
    let what = format!("redirect by {} in a network namespace", installation.nft.display());
    let tried = || -> Result<()> {
        let own = std::env::current_exe()?;
        let mut words: Vec<OsString> = Vec::new();
        if !rustix::process::geteuid().is_root() {
            words.extend(["podman", "unshare"].map(OsString::from));
        }
        words.extend(["unshare", "--net", "--"].map(OsString::from));
        words.extend([own.into(), "doctor".into(), "--inside".into(), "--state".into(), state.into()]);
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().context("nothing to run")?);
        let output = child::run(command.args(words), b"", LIMIT)?;
        if !output.status.success() {
            let said = output.stderr.trim();
            bail!("{}", if said.is_empty() { "it failed without a word" } else { said });
        }
        Ok(())
    };
    Check::new(what, tried())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("4.3.1"), Some((4, 3)));
        assert_eq!(version("5.10.0-rc1"), Some((5, 10)));
        assert_eq!(version("5.4-dev"), Some((5, 4)));
        assert_eq!(version(""), None);
        assert_eq!(version("podman"), None);
        assert!(version("4.10.0").unwrap() > PODMAN);
    }

    #[test]
    fn this_kernel_is_good_enough() {
        kernel().result.unwrap();
    }
}
