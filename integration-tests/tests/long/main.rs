//! What takes minutes: `make test-all` runs it. One after another, since memory and descriptors are counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod aws;
mod clients;
mod cycles;
mod postgres;
mod ssh;
mod stack;
mod transfers;

use std::fs;
use std::time::Duration;

use understudy_control::{Client, ControlDirectory, Prepare, Reply, Request, User};
use understudy_integration_tests::podman::until;
use understudy_integration_tests::stand::{Agent, Stand};

fn stand() -> &'static Stand {
    Stand::shared().unwrap()
}

/// A figure of `/proc/PID/status` of the sidecar, in KiB.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", stand().sidecar_pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs a script in a container and waits for its end, longer than a command may take; answers with what it said.
fn patiently(agent: &Agent, script: &str) -> String {
    let script = format!("{{ {script}; }} 2>&1; echo; echo done");
    let container = agent.start(&["bash", "-c", &script]).unwrap();
    for _ in 0..1200 {
        std::thread::sleep(Duration::from_secs(2));
        let text = container.logs().unwrap();
        if text.ends_with("done\n") {
            return text;
        }
    }
    panic!("it did not end within 40 minutes: {}", container.logs().unwrap());
}

#[test]
fn what_was_prepared_and_never_attached_expires_though_somebody_asks_all_the_time() {
    let client = Client::new(ControlDirectory::new(&stand().paths.control), Duration::from_secs(10));
    let id = "e".repeat(64).parse().unwrap();
    let prepare = Prepare {
        id,
        name: Some("never-attached".to_owned()),
        image: None,
        annotations: [("understudy.harness".to_owned(), "generic".to_owned())].into(),
        user: User { uid: 0, gid: 0 },
        env: [].into(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    };
    client.call(Request::Prepare(Box::new(prepare)), &[]).unwrap();
    let known = || {
        let Reply::Status(status) = client.call(Request::Status, &[])? else { panic!("no status") };
        Ok(status.containers.iter().any(|known| known.name.as_deref() == Some("never-attached")))
    };
    assert!(known().unwrap());
    // a minute, in pieces of the half that `until` waits
    let gone = (0..4).any(|_| until("its end", || known().map(|known| !known)).is_ok());
    assert!(gone);
}
