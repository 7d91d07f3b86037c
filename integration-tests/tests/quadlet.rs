//! Understudy as a pair of Quadlet units, of a user or of root. Run by `machine/run-tests` on a machine with systemd.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

use std::fs;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, podman, run, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, ANTHROPIC, SIDECAR_IMAGE, Stand, is_root};

const SIDECAR: &str = "understudy-quadlet";
const AGENT: &str = "agent-quadlet";
const REFUSED: &str = "refused-quadlet";

#[test]
fn a_pair_of_units_starts_survives_restarts_and_shows_refusals() {
    let stand = Stand::start(&[ANTHROPIC], |_| ()).unwrap();
    stand.kill_sidecar();
    write_units(&stand);

    systemctl(&["start", AGENT]).success().unwrap();
    assert!(answers(), "the agent has no network");
    let agent = pid(AGENT);

    systemctl(&["restart", SIDECAR]).success().unwrap();
    until("the network after a restart", || Ok(answers())).unwrap();

    run(Command::new("kill").args(["-KILL", &pid(SIDECAR)]), b"").unwrap().success().unwrap();
    until("the network after a crash", || Ok(answers())).unwrap();
    assert_eq!(pid(AGENT), agent, "the agent was started again");

    systemctl(&["start", REFUSED]);
    until("its end", || Ok(systemctl(&["is-failed", REFUSED]).code == Some(0))).unwrap();
    let mut journal = Command::new("journalctl");
    journal.args(manager()).args(["--no-pager", "--output=cat", "--unit", REFUSED]);
    let said = run(&mut journal, b"").unwrap().text();
    assert!(said.contains("understudy: refused: ") && said.contains("NET_ADMIN"), "{said}");
    assert!(!said.contains("it ran"), "{said}");

    // without the sidecar's unit the agent's starts it
    systemctl(&["stop", AGENT, SIDECAR]).success().unwrap();
    systemctl(&["start", AGENT]).success().unwrap();
    assert!(answers(), "the agent has no network");
    systemctl(&["stop", AGENT, SIDECAR]).success().unwrap();
}

/// As docs/quadlet.md has them. Nothing is sent out, so the sidecar needs no network either.
fn write_units(stand: &Stand) {
    let directory = if is_root() {
        "/etc/containers/systemd".into()
    } else {
        format!("{}/.config/containers/systemd", std::env::var("HOME").unwrap())
    };
    fs::create_dir_all(&directory).unwrap();
    let (control, configuration) = (stand.paths.control.display(), stand.paths.configuration.display());
    let sidecar = format!(
        "[Container]\nContainerName={SIDECAR}\nImage={SIDECAR_IMAGE}\nPull=never\nNotify=true\nNetwork=none\n\
         Annotation=understudy.role=sidecar\nReadOnly=true\nTmpfs=/run/secrets\nDropCapability=all\nNoNewPrivileges=true\n\
         Secret={ANTHROPIC}\nVolume={configuration}:/etc/understudy:ro\nVolume=understudy-quadlet:/var/lib/understudy\n\
         Volume={control}:/run/understudy/control\n\
         [Service]\nExecStartPre=mkdir -p -m 700 {control}\nRestart=on-failure\n\
         [Quadlet]\nDefaultDependencies=false\n"
    );
    let agent = |name, option| {
        format!(
            "[Unit]\nWants={SIDECAR}.service\nAfter={SIDECAR}.service\n\
             [Container]\nContainerName={name}\nImage={AGENT_IMAGE}\nPull=never\nNetwork=none\n\
             Annotation=understudy.harness=claude-code\nStopSignal=KILL\n{option}\n\
             Exec=sh -c 'echo it ran; exec sleep infinity'\n[Quadlet]\nDefaultDependencies=false\n"
        )
    };
    for (name, text) in
        [(SIDECAR, sidecar), (AGENT, agent(AGENT, "")), (REFUSED, agent(REFUSED, "AddCapability=NET_ADMIN"))]
    {
        fs::write(format!("{directory}/{name}.container"), text).unwrap();
    }
    systemctl(&["daemon-reload"]).success().unwrap();
}

/// Whether the sidecar answers the agent: with a refusal, since nothing of this test may leave.
fn answers() -> bool {
    let url = "https://denied.example/";
    let curl = ["exec", AGENT, "curl", "-sS", "--max-time", "20", "-w", "HTTP %{http_code}", url];
    podman(curl).unwrap().stdout.contains("HTTP 403")
}

fn pid(container: &str) -> String {
    let pid = podman(["inspect", "--format", "{{.State.Pid}}", container]).unwrap().success().unwrap();
    pid.trim().to_owned()
}

fn systemctl(arguments: &[&str]) -> Outcome {
    run(Command::new("systemctl").args(manager()).args(arguments), b"").unwrap()
}

fn manager() -> Option<&'static str> {
    (!is_root()).then_some("--user")
}
