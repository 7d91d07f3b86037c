//! Forgets containers that ended without a poststop hook: after a failed stage, a killed conmon, a crash.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use understudy_control::ContainerId;

use crate::installation::Installation;
use crate::process;
use crate::record::{Record, Running};
use crate::sidecar;

/// How long a prepared container may take to be attached.
const PREPARED: Duration = Duration::from_secs(120);

/// Never fails: what cannot be done now is done by the next hook. Problems are printed.
pub(crate) fn run(installation: &Installation) {
    for id in known(installation) {
        if let Err(error) = look_after(installation, &id) {
            eprintln!("understudy-hook: container {}: {error:#}", id.short());
        }
    }
}

/// The containers that have a record, in no order.
pub(crate) fn known(installation: &Installation) -> Vec<ContainerId> {
    let Ok(entries) = fs::read_dir(installation.containers()) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn look_after(installation: &Installation, id: &ContainerId) -> Result<()> {
    // One that is removed meanwhile by its own poststop hook is not ours to care for.
    let directory = Record::directory(installation, id);
    let Ok(age) = age(&directory) else { return Ok(()) };
    let running = Record::load(installation, id)?.map(|record| record.running);
    if !gone(running, age, process::runs)? {
        return Ok(());
    }
    sidecar::detach(installation, id).context("it has ended, but the sidecar was not told")?;
    Record::remove(installation, id)
}

/// Of the directory: each write of the record renames a file into it.
fn age(directory: &Path) -> Result<Duration> {
    let changed = fs::metadata(directory)?.modified()?;
    Ok(SystemTime::now().duration_since(changed).unwrap_or_default())
}

/// `record` is `None` while precreate has made the directory only, then says whether the container was attached.
fn gone(
    record: Option<Option<Running>>,
    age: Duration,
    runs: impl Fn(i32, u64) -> std::io::Result<bool>,
) -> Result<bool> {
    match record.flatten() {
        Some(running) => runs(running.pid, running.start_time)
            .map(|runs| !runs)
            .with_context(|| format!("process {} cannot be looked at", running.pid)),
        None => Ok(age > PREPARED),
    }
}

#[cfg(test)]
mod tests {
    use understudy_control::NetnsId;

    use super::*;

    const RUNNING: Running =
        Running { pid: 7, start_time: 70, netns: NetnsId { device: 1, inode: 2, cookie: 3 } };

    #[test]
    fn an_attached_container_is_gone_with_its_process_whatever_its_age() {
        let year = Duration::from_secs(365 * 24 * 3600);
        let same = |pid, start| Ok(pid == 7 && start == 70);
        assert!(!gone(Some(Some(RUNNING)), year, same).unwrap());
        assert!(gone(Some(Some(RUNNING)), Duration::ZERO, |_, _| Ok(false)).unwrap());
        assert!(gone(Some(Some(Running { start_time: 71, ..RUNNING })), Duration::ZERO, same).unwrap());
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_taken_for_gone() {
        let denied = |_, _| Err(std::io::ErrorKind::PermissionDenied.into());
        assert!(gone(Some(Some(RUNNING)), Duration::ZERO, denied).is_err());
    }

    #[test]
    fn a_prepared_container_has_two_minutes() {
        for record in [None, Some(None)] {
            assert!(!gone(record, PREPARED, |_, _| Ok(true)).unwrap());
            assert!(gone(record, PREPARED + Duration::from_secs(1), |_, _| Ok(true)).unwrap());
        }
    }
}
