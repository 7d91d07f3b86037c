//! Where an installation's files are.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    System,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) state: PathBuf,
    pub(crate) runtime: PathBuf,
    pub(crate) configuration: PathBuf,
    /// Everybody's hook reads `managed.toml` in the system's.
    pub(crate) configuration_mode: u32,
    pub(crate) hooks_dir: PathBuf,
    /// Tells Podman of the directory of hooks, where it does not look of itself.
    pub(crate) drop_in: PathBuf,
    pub(crate) homes: Vec<PathBuf>,
}

impl Scope {
    pub(crate) fn of_caller() -> Self {
        if rustix::process::geteuid().is_root() { Self::System } else { Self::User }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::User => "your containers (rootless)",
            Self::System => "root's containers (another user runs: understudy-hook install --user)",
        }
    }

    pub(crate) fn layout(self) -> Result<Layout> {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        match self {
            Self::System => Ok(Layout::system(&passwd)),
            Self::User => {
                let uid = rustix::process::geteuid().as_raw();
                let home = variable("HOME").context("HOME is not set to an absolute path")?;
                let runtime =
                    variable("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{uid}").into());
                let in_home = |name, path| variable(name).unwrap_or_else(|| home.join(path));
                Ok(Layout::user(
                    &home,
                    &runtime,
                    &in_home("XDG_CONFIG_HOME", ".config"),
                    &in_home("XDG_DATA_HOME", ".local/share"),
                ))
            }
        }
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

impl Layout {
    pub(crate) fn user(home: &Path, runtime: &Path, config: &Path, data: &Path) -> Self {
        Self {
            state: data.join("understudy"),
            runtime: runtime.join("understudy"),
            configuration: config.join("understudy"),
            configuration_mode: 0o700,
            hooks_dir: config.join("containers/oci/hooks.d"),
            drop_in: config.join("containers/containers.conf.d/50-understudy.conf"),
            homes: vec![home.to_owned()],
        }
    }

    /// Not in a directory of hooks that is read without being told: root's `podman build` reads those as well, knows
    /// no `precreate`, and then builds nothing.
    pub(crate) fn system(passwd: &str) -> Self {
        let mut homes: Vec<PathBuf> = passwd
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let uid: u32 = fields.nth(2)?.parse().ok()?;
                let home = fields.nth(2)?;
                (uid == 0 || (1000..65_534).contains(&uid)).then(|| PathBuf::from(home))
            })
            .filter(|home| home.is_absolute() && home != Path::new("/"))
            .collect();
        homes.sort();
        homes.dedup();
        Self {
            state: "/var/lib/understudy".into(),
            runtime: "/run/understudy".into(),
            configuration: "/etc/understudy".into(),
            configuration_mode: 0o711,
            hooks_dir: "/var/lib/understudy/hooks.d".into(),
            drop_in: "/etc/containers/containers.conf.d/50-understudy.conf".into(),
            homes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_installation_knows_every_home_of_a_person() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/x\nann:x:1000:1000:A,b:/home/ann:/bin/sh\n\
                      nobody:x:65534:65534::/nonexistent:/x\nbroken\nslash:x:1001:1001::/:/bin/sh\n";
        assert_eq!(Layout::system(passwd).homes, [PathBuf::from("/home/ann"), PathBuf::from("/root")]);
    }
}
