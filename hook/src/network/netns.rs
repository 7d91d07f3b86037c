//! Network namespaces: opened, told apart, entered on a thread that ends afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::Process;

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// An open network namespace, which lives at least as long as this.
#[derive(Debug)]
pub(crate) struct Netns {
    file: File,
    identity: Identity,
}

/// What tells two namespaces apart while both exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `st_dev` of the nsfs file.
    pub(crate) device: u64,
    /// `st_ino` of the nsfs file.
    pub(crate) inode: u64,
}

impl Netns {
    /// The namespace that `process` is in, which must not be one of `forbidden`.
    pub(crate) fn of_container(process: &Process, forbidden: &Forbidden) -> Result<Self> {
        let netns = Self::open(Path::new(&format!("/proc/{}/ns/net", process.pid())))?;
        process.check_alive()?;
        forbidden.check(netns.identity)?;
        Ok(netns)
    }

    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
        let kind = rustix::fs::fstatfs(&file).map_err(io::Error::from)?.f_type;
        if kind as u64 != NSFS_MAGIC {
            bail!("{} is not a namespace", path.display());
        }
        let metadata = file.metadata()?;
        Ok(Self { file, identity: Identity { device: metadata.dev(), inode: metadata.ino() } })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Runs `work` inside. A closure on a thread of its own: nothing that returns early in it can leave this thread in
    /// the wrong namespace, and programs that it starts are inside too.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let entered = || {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(io::Error::from)
                    .context("the container's network namespace cannot be entered")?;
                if Self::open(Path::new("/proc/thread-self/ns/net"))?.identity != self.identity {
                    bail!("another network namespace than the container's was entered");
                }
                work()
            };
            let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, entered)?;
            thread.join().unwrap_or_else(|_| Err(anyhow!("the work in the container's netns was cut short")))
        })
    }
}

/// Namespaces that are never a container's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forbidden(Vec<(&'static str, Identity)>);

impl Forbidden {
    /// The hook's own and, where it may be looked at, pid 1's. (A rootless hook shares the host's namespace, and may
    /// not look at pid 1.)
    pub(crate) fn host() -> Result<Self> {
        let own = Netns::open(Path::new("/proc/self/ns/net"))?;
        let mut forbidden = Self(vec![("the hook", own.identity)]);
        forbidden.add_process("pid 1", 1);
        Ok(forbidden)
    }

    /// Adds the namespace of `pid`, if that may be looked at.
    pub(crate) fn add_process(&mut self, whose: &'static str, pid: i32) {
        if let Ok(netns) = Netns::open(Path::new(&format!("/proc/{pid}/ns/net"))) {
            self.0.push((whose, netns.identity));
        }
    }

    pub(crate) fn check(&self, identity: Identity) -> Result<()> {
        match self.0.iter().find(|(_, other)| *other == identity) {
            Some((whose, _)) => {
                bail!("the container shares the network namespace of {whose} (run it with --network=none)")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn this_process() -> Process {
        Process::open(std::process::id() as i32).unwrap()
    }

    #[test]
    fn a_container_in_the_hooks_own_namespace_is_refused() {
        let error = Netns::of_container(&this_process(), &Forbidden::host().unwrap()).unwrap_err();
        assert!(error.to_string().contains("--network=none"), "{error}");
    }

    #[test]
    fn a_container_in_the_sidecars_namespace_is_refused() {
        if !testing::in_private_netns(
            "network::netns::tests::a_container_in_the_sidecars_namespace_is_refused",
        ) {
            return;
        }
        let sidecar = testing::Neighbour::start();
        let mut forbidden = Forbidden::host().unwrap();
        Netns::of_container(&Process::open(sidecar.pid()).unwrap(), &forbidden).unwrap();
        forbidden.add_process("the sidecar", sidecar.pid());
        let error = Netns::of_container(&Process::open(sidecar.pid()).unwrap(), &forbidden).unwrap_err();
        assert!(error.to_string().contains("the sidecar"), "{error}");
    }

    #[test]
    fn what_is_not_a_namespace_is_refused() {
        assert!(Netns::open(Path::new("/dev/null")).is_err());
        assert!(Netns::open(Path::new("/proc/self/status")).is_err());
    }

    #[test]
    fn only_the_closure_is_inside() {
        if !testing::in_private_netns("network::netns::tests::only_the_closure_is_inside") {
            return;
        }
        let container = testing::Neighbour::start();
        let process = Process::open(container.pid()).unwrap();
        let netns = Netns::of_container(&process, &Forbidden::host().unwrap()).unwrap();
        let here = || Netns::open(Path::new("/proc/thread-self/ns/net")).unwrap().identity;
        let before = here();
        let inside = netns.inside(|| Ok(here())).unwrap();
        assert_eq!(inside, netns.identity());
        assert_ne!(inside, before);
        netns.inside(|| -> Result<()> { bail!("early") }).unwrap_err();
        assert_eq!(here(), before);
    }
}
