//! Containers that share a network namespace: the members of a pod, and those of `--network container:…`. The first of
//! them that is protected seals it; the others join that one, with the same rights.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketType, socket};
use understudy_control::{ContainerId, NetnsId, sys};

use crate::installation::Installation;
use crate::network::netns::{Identity, Netns};
use crate::record::Record;
use crate::{process, reap};

/// A container in the same network namespace that lives and was attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) id: ContainerId,
    pub(crate) netns: NetnsId,
}

/// Any one of them: they all stand for the same.
pub(crate) fn neighbour(installation: &Installation, netns: &Netns) -> Result<Option<Neighbour>> {
    let Identity { device, inode } = netns.identity();
    for id in reap::known(installation) {
        // One that is removed meanwhile is no neighbour.
        let Some(Record { running: Some(running), .. }) = Record::load(installation, &id)? else { continue };
        let same = (running.netns.device, running.netns.inode) == (device, inode);
        if same && process::runs(running.pid, running.start_time)? {
            // The number of a namespace that is gone is used again; its cookie is not.
            let cookie = netns.inside(cookie)?;
            if cookie == running.netns.cookie {
                return Ok(Some(Neighbour { id, netns: running.netns }));
            }
        }
    }
    Ok(None)
}

/// Of the calling thread's network namespace.
fn cookie() -> Result<u64> {
    let socket: OwnedFd =
        socket(AddressFamily::UNIX, SocketType::DGRAM, None).map_err(std::io::Error::from)?;
    sys::netns_cookie(&socket).context("SO_NETNS_COOKIE (needs Linux 5.14)")
}

/// Held while one container of a shared namespace is attached, so that two of them that start together are not both the
/// first.
#[derive(Debug)]
pub(crate) struct Turn {
    _file: File,
}

impl Turn {
    pub(crate) fn wait(installation: &Installation) -> Result<Self> {
        let path = installation.runtime.join("shared.lock");
        let file = Self::open(&path).with_context(|| format!("{} cannot be locked", path.display()))?;
        Ok(Self { _file: file })
    }

    fn open(path: &Path) -> std::io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}
