//! What processes used, from proc(5).

use std::fs;

use anyhow::{Context, Result};

/// User and system time of a process so far, all its threads together, in seconds. A clock tick is 10 ms on Linux.
pub(super) fn seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    ticks(&stat).map(|ticks| ticks as f64 / 100.0).context("/proc/PID/stat has another form")
}

/// The same of several.
pub(super) fn seconds_of_all(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| seconds(*pid)).sum()
}

/// Fields 14 and 15 (proc_pid_stat(5)), counted behind the name, which may hold spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// A process and its children.
pub(super) fn family(first: u32) -> Result<Vec<u32>> {
    let mut family = vec![first];
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // it may be gone by now
        if parent(pid).is_some_and(|parent| parent == first) {
            family.push(pid);
        }
    }
    Ok(family)
}

pub(super) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Resident memory in KiB.
pub(super) fn resident(pid: u32) -> Result<f64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.split_whitespace().next().and_then(|number| number.parse().ok()).context("VmRSS is no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_brackets() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 900 0 0 0 12 30 0 0 20 0 1 0 100 200 300";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (short) S 1"), None);
    }

    #[test]
    fn this_process_is_its_parents_child_and_is_resident() {
        let pid = std::process::id();
        assert!(family(parent(pid).unwrap()).unwrap().contains(&pid));
        assert!(resident(pid).unwrap() > 100.0);
        assert!(seconds_of_all(&[pid]).unwrap() >= 0.0);
    }
}
