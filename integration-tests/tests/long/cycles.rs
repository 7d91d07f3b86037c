//! Many containers: a thousand that come and go, and fifty that start at once.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use understudy_integration_tests::podman::{run, until};
use understudy_integration_tests::stand::{Agent, as_owner};

use crate::{memory, stand};

const CYCLES: usize = 1000;
const AT_ONCE: usize = 50;

fn count(script: &str) -> usize {
    let said = run(as_owner("sh").args(["-c", script]), b"").unwrap();
    said.success().unwrap().trim().parse().unwrap()
}

/// What is there, of each kind: with whom it is, nothing may stay of a container that has gone.
fn left() -> BTreeMap<&'static str, usize> {
    let paths = &stand().paths;
    let sidecar = stand().sidecar_pid().unwrap();
    let runtime = paths.control.parent().unwrap().display();
    let (records, state) = (paths.records(), paths.state.display());
    BTreeMap::from([
        ("processes", count("ls -d /proc/[0-9]* | wc -l")),
        (
            "processes of the hook",
            count("ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c understudy-hook || true"),
        ),
        ("mounts", count("wc -l </proc/self/mountinfo")),
        (
            "network namespaces",
            count("ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*-> //' | sort -u | wc -l"),
        ),
        (
            "mount namespaces",
            count("ls -l /proc/[0-9]*/ns/mnt 2>/dev/null | sed 's/.*-> //' | sort -u | wc -l"),
        ),
        ("records", fs::read_dir(&records).unwrap().count()),
        ("files at run time", count(&format!("find {runtime} | wc -l"))),
        ("files of the installation", count(&format!("find {state} | wc -l"))),
        ("the sidecar's descriptors", count(&format!("ls /proc/{sidecar}/fd | wc -l"))),
        ("the sidecar's threads", count(&format!("ls /proc/{sidecar}/task | wc -l"))),
    ])
}

fn round() {
    let text = Agent::generic().run(&["curl", "-sS", "https://other.example/status/200"]).unwrap();
    assert!(text.clone().success().is_ok(), "{}", text.text());
}

/// Connections to the world are kept for a minute in case that they are used again, so figures are waited for.
fn assert_nothing_is_left(before: &BTreeMap<&'static str, usize>) {
    let more = || {
        let now = left();
        now.into_iter().filter(|(what, count)| *count > before[what]).collect::<Vec<_>>()
    };
    let settled = (0..4).any(|_| until("what is left", || Ok(more().is_empty())).is_ok());
    let runtime = stand().paths.control.parent().unwrap().display().to_string();
    let files = || run(as_owner("find").arg(&runtime), b"").unwrap().text();
    assert!(settled, "{before:?} became more: {:?}\n{}", more(), files());
}

#[test]
fn a_thousand_containers_come_and_go_and_leave_nothing() {
    stand();
    round();
    let before = left();
    println!("{before:?}");
    // until as many idle connections come as go, which takes a minute
    (0..CYCLES / 2).for_each(|_| round());
    let resident = memory("VmRSS");
    (CYCLES / 2..CYCLES).for_each(|_| round());
    let resident_after = memory("VmRSS");
    assert_nothing_is_left(&before);
    // a leak of 10 KiB for each would show
    assert!(resident_after <= resident + 4096, "{resident} KiB became {resident_after}");
}

#[test]
fn fifty_containers_start_at_once_and_are_all_protected() {
    stand();
    round();
    let before = left();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(move || {
                    let agent = Agent::generic().start(&["sleep", "infinity"]).unwrap();
                    let ready = begin.elapsed();
                    let url = "https://other.example/status/200";
                    let said =
                        agent.exec(&["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url]).unwrap();
                    assert_eq!(said.stdout, "200", "{}", said.text());
                    let denied = agent.exec(&["curl", "-sS", "https://denied.example/"]).unwrap();
                    assert!(denied.stdout.contains("host-not-allowed"), "{}", denied.text());
                    (ready, agent)
                })
            })
            .collect();
        let all: Vec<_> = started.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut times: Vec<_> = all.iter().map(|(ready, _)| ready.as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{AT_ONCE} at once: the first after {:.1} s, half after {:.1} s, all after {:.1} s",
            times[0],
            times[AT_ONCE / 2],
            times[AT_ONCE - 1]
        );
    });
    assert_nothing_is_left(&before);
}
