//! `doctor`: would a container that is started now be protected?

mod binaries;
mod containers;
mod files;
mod host;
mod inside;
mod managed;
mod probe;
mod selinux;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::install::layout::Scope;
use crate::installation::Installation;
use crate::sidecar;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The installation's state directory [default: where `install` puts it for this user]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Do not start a container that must be refused; then nothing shows that Podman runs the hooks
    #[arg(long)]
    no_probe: bool,
    /// Start the probe from this local image [default: a root file system made for it]
    #[arg(long, value_name = "IMAGE", conflicts_with = "no_probe")]
    probe_image: Option<String>,
    /// What `doctor` runs in a network namespace made for it
    #[arg(long, hide = true)]
    inside: bool,
}

/// One thing that was looked at: what it is, and what to do if it is not well.
#[derive(Debug)]
pub(crate) struct Check {
    what: String,
    result: Result<()>,
}

impl Check {
    fn new(what: impl Into<String>, result: Result<()>) -> Self {
        Self { what: what.into(), result }
    }

    /// One line, whatever the error's text holds.
    fn line(&self) -> String {
        match &self.result {
            Ok(()) => format!("ok    {}", self.what),
            Err(error) => {
                let why = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
                format!("FAIL  {}: {why}", self.what)
            }
        }
    }
}

/// Exit status 0 only if all is well.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => Scope::of_caller().layout()?.state,
    };
    if arguments.inside {
        inside::run(&Installation::load(&state)?.nft)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut well = true;
    let mut show = |check: Check| {
        println!("{}", check.line());
        well &= check.result.is_ok();
    };
    show(host::podman());
    show(host::kernel());
    show(host::lingering());
    match Installation::load(&state) {
        Err(error) => show(Check::new("installation", Err(error))),
        Ok(installation) => {
            show(Check::new(format!("installation in {}", state.display()), Ok(())));
            binaries::checks(&installation).into_iter().for_each(&mut show);
            show(host::netns(&state, &installation));
            selinux::check(&installation).into_iter().for_each(&mut show);
            show(sidecar_check(&installation));
            hooks(&installation, arguments, &mut show);
            containers::checks(&installation).into_iter().for_each(&mut show);
        }
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The probe tells which directories this Podman reads; without it, its configuration does.
fn hooks(installation: &Installation, arguments: &Arguments, show: &mut impl FnMut(Check)) {
    let directories = if arguments.no_probe {
        match crate::install::configured_hooks_dirs() {
            Ok(directories) => directories,
            Err(error) => return show(Check::new("directories of hooks", Err(error))),
        }
    } else {
        let seen = probe::run(installation, arguments.probe_image.as_deref());
        show(seen.check);
        seen.directories
    };
    files::checks(&directories, &binaries::stage_binary(installation)).into_iter().for_each(&mut *show);
    managed::checks(&directories).into_iter().for_each(show);
}

fn sidecar_check(installation: &Installation) -> Check {
    let answered = || -> Result<()> {
        let status = sidecar::status(installation).context("start the sidecar")?;
        let own = env!("CARGO_PKG_VERSION");
        anyhow::ensure!(
            status.version == own,
            "it has version {}, this is {own} (use the sidecar image of this version)",
            status.version
        );
        anyhow::ensure!(status.problems.is_empty(), "it reports: {}", status.problems.join("; "));
        Ok(())
    };
    Check::new("sidecar", answered())
}

/// For messages.
fn unreadable(path: &Path) -> String {
    format!("{} cannot be read (run: understudy-hook install)", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_one_line() {
        assert_eq!(Check::new("podman", Ok(())).line(), "ok    podman");
        let failed = Check::new("podman", Err(anyhow::anyhow!("first\nsecond").context("outer")));
        assert_eq!(failed.line(), "FAIL  podman: outer: first second");
    }
}
