//! The sidecar's state volume is lost, or put back from a backup.

use understudy_integration_tests::podman::{Container, podman, until};
use understudy_integration_tests::stand::Agent;

use crate::{assert_closed, stand};

const VOLUME: &str = "understudy-state";
const BACKUP: &str = "understudy-state-backup";

fn works(container: &Container) -> bool {
    let reach =
        ["curl", "-sS", "--max-time", "20", "-w", "HTTP %{http_code}", "https://other.example/status/200"];
    container.exec(&reach).unwrap().stdout.contains("HTTP 200")
}

fn replace(volume: &str, by: Option<&str>) {
    drop(podman(["volume", "rm", "--force", volume]).unwrap());
    podman(["volume", "create", volume]).unwrap().success().unwrap();
    if let Some(by) = by {
        let script = "podman volume export \"$1\" | podman volume import \"$2\" -";
        let mut copy = std::process::Command::new("sh");
        copy.args(["-c", script, "sh", by, volume]);
        understudy_integration_tests::podman::run(&mut copy, b"").unwrap().success().unwrap();
    }
}

/// Whatever the stand's sidecar was: its own volume comes back, and what there is then holds.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        let stand = stand();
        drop(stand.operator(&["accept-state"]));
        drop(podman(["volume", "rm", "--force", BACKUP]));
    }
}

#[test]
fn a_state_volume_from_a_backup_gives_nothing_until_it_is_accepted_and_revocations_stay() {
    let stand = stand();
    let revoked = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let agent = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    assert!(works(&revoked) && works(&agent));
    let _restored = Restored;
    replace(BACKUP, Some(VOLUME));
    stand.operator(&["revoke", &revoked.name]).unwrap().success().unwrap();
    // The control directory is emptied, as by a reboot; what the hook kept is what tells.
    Agent::generic().run(&["true"]).unwrap().success().unwrap();
    stand.kill_sidecar();
    replace(VOLUME, Some(BACKUP));
    std::fs::remove_dir_all(&stand.paths.control).unwrap();
    std::fs::create_dir(&stand.paths.control).unwrap();
    std::fs::set_permissions(&stand.paths.control, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    stand.start_sidecar().unwrap();
    let status = stand.operator(&["status"]).unwrap().success().unwrap();
    assert!(status.contains("problem: the state volume is older"), "{status}");
    assert!(!works(&agent) && !works(&revoked));
    assert_closed(&Agent::generic().run(&["echo", "it ran"]).unwrap(), "accept-state");
    stand.operator(&["accept-state"]).unwrap().success().unwrap();
    stand.kill_sidecar();
    stand.start_sidecar().unwrap();
    until("the re-attached network", || Ok(works(&agent))).unwrap();
    assert!(!works(&revoked));
    podman(["stop", "--time", "0", &revoked.name]).unwrap().success().unwrap();
    let again = podman(["start", "--attach", &revoked.name]).unwrap();
    assert!(again.text().contains("revoked"), "{}", again.text());
}

#[test]
fn containers_of_a_lost_state_volume_are_not_given_back_but_start_again() {
    let stand = stand();
    let agent = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let revoked = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    stand.operator(&["revoke", &revoked.name]).unwrap().success().unwrap();
    let _restored = Restored;
    stand.kill_sidecar();
    replace(VOLUME, None);
    stand.start_sidecar().unwrap();
    assert!(!works(&agent));
    assert_closed(&Agent::generic().run(&["echo", "it ran"]).unwrap(), "accept-state");
    stand.operator(&["accept-state"]).unwrap().success().unwrap();
    // Its authority and its stand-ins are of another installation.
    stand.kill_sidecar();
    stand.start_sidecar().unwrap();
    let other = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    assert!(works(&other));
    assert!(!works(&agent));
    podman(["restart", "--time", "0", &agent.name]).unwrap().success().unwrap();
    assert!(works(&agent));
    podman(["stop", "--time", "0", &revoked.name]).unwrap().success().unwrap();
    let again = podman(["start", "--attach", &revoked.name]).unwrap();
    assert!(again.text().contains("revoked"), "{}", again.text());
}
