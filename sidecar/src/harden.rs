//! What the sidecar gives up before it listens to anybody.

use anyhow::{Context as _, Result};
use caps::{CapSet, CapsHashSet};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Drops all capabilities for good, takes away the right to gain any by `execve`, and closes the process's memory to
/// others of its user. Must run before any thread is started: capabilities belong to threads.
pub fn harden() -> Result<()> {
    rustix::thread::set_no_new_privs(true).context("no_new_privs")?;
    // The bounding set needs CAP_SETPCAP to be emptied; without it there is nothing in it that could be gained.
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).unwrap_or(false) {
        caps::clear(None, CapSet::Bounding).context("emptying the bounding set")?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).with_context(|| format!("emptying the {set:?} set"))?;
    }
    let left = caps::read(None, CapSet::Permitted).context("reading back the permitted set")?;
    anyhow::ensure!(left == CapsHashSet::new(), "capabilities are left after dropping them: {left:?}");
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).context("RLIMIT_CORE")?;
    raise_descriptor_limit();
    Ok(())
}

/// As many descriptors as the hard limit allows: each connection of an agent takes two.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays at {:?}", limit.current);
    }
}
