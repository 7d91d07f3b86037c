//! A container's network namespace: found, entered, and redirected to sockets that the sidecar will hold.

#[cfg(test)]
mod guarded_tests;
pub(crate) mod listeners;
pub(crate) mod mode;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod nft;
pub(crate) mod ruleset;
pub(crate) mod sockets;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Result, bail};
use understudy_control::{Attach, ContainerId, NetnsId};

use self::mode::Mode;
use self::netns::{Identity, Netns};
use self::ruleset::Ruleset;
use self::sockets::Sockets;

/// A namespace's new sockets, to which its rules point.
#[derive(Debug)]
pub(crate) struct Enclosed {
    pub(crate) sockets: Sockets,
    pub(crate) netns: NetnsId,
}

impl Enclosed {
    /// Adds sockets by which the sidecar reaches what listens in `netns`, where they are `wanted`.
    pub(crate) fn publishing(mut self, netns: &Netns, wanted: bool) -> Result<Self> {
        if wanted {
            netns.inside(|| self.sockets.add_outgoing())?;
        }
        Ok(self)
    }

    /// What the sidecar is told of the sockets.
    pub(crate) fn attach(&self, id: ContainerId) -> Attach {
        Attach { id, netns: self.netns, sockets: self.sockets.roles() }
    }
}

/// Makes sockets and rules in `netns`, which replace earlier ones. `expected` is what a namespace that was enclosed before
/// must still be; nothing in it is changed if it is another.
pub(crate) fn enclose(netns: &Netns, expected: Option<NetnsId>, mode: &Mode, nft: &Path) -> Result<Enclosed> {
    let Identity { device, inode } = netns.identity();
    if let Some(expected) = expected {
        still(netns, expected)?;
    }
    netns.inside(|| {
        let sockets = prepare(mode, expected.map(|netns| netns.cookie))?;
        redirect(mode, &sockets, nft)?;
        if expected.is_some() {
            // A kernel built without this keeps them until they time out, which costs a resolver some time.
            let _ = netlink::forget_connections();
        }
        Ok(Enclosed { netns: NetnsId { device, inode, cookie: sockets.cookie()? }, sockets })
    })
}

/// Fails if `netns` is another one than the one that was enclosed before.
pub(crate) fn still(netns: &Netns, expected: NetnsId) -> Result<()> {
    let Identity { device, inode } = netns.identity();
    if (expected.device, expected.inode) != (device, inode) {
        bail!("its process is in another network namespace than the one that was enclosed");
    }
    Ok(())
}

/// The sockets, in the calling thread's network namespace. A sealed one must have nothing but `lo`. (With a user namespace
/// Podman may still add a network later: `place` looks again.)
pub(crate) fn prepare(mode: &Mode, expected_cookie: Option<u64>) -> Result<Sockets> {
    if *mode == Mode::Sealed {
        netlink::only_loopback()?;
    }
    netlink::loopback_up()?;
    sockets::enable_ipv6()?;
    let sockets = Sockets::bind()?;
    if expected_cookie.is_some_and(|expected| sockets.cookie().ok() != Some(expected)) {
        bail!("its network namespace has another cookie than the one that was enclosed");
    }
    Ok(sockets)
}

/// The rules come before the routes: until then nothing is reached that is not reached without them.
pub(crate) fn redirect(mode: &Mode, sockets: &Sockets, nft: &Path) -> Result<()> {
    nft::apply(nft, &Ruleset::of(mode, sockets.ports()?))?;
    netlink::default_routes(mode)
}
