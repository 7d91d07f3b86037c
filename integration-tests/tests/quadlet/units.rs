//! A pair of Quadlet units, of a user or of root.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, podman, run, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, ANTHROPIC, SIDECAR_IMAGE, Stand, is_root};

use crate::stand;

const SIDECAR: &str = "understudy";
const AGENT: &str = "agent-quadlet";
const REFUSED: &str = "refused-quadlet";
/// Quadlet names a container after its unit.
const AGENT_CONTAINER: &str = "systemd-agent-quadlet";

#[test]
fn printed_units_start_survive_restarts_and_show_refusals() {
    let stand = stand();
    let units = Units::print(stand);
    stand.kill_sidecar();
    units.write();

    systemctl(&["start", AGENT]).success().unwrap();
    until("the network", || Ok(answers())).unwrap();
    let agent = pid(AGENT_CONTAINER);

    systemctl(&["restart", SIDECAR]).success().unwrap();
    until("the network after a restart", || Ok(answers())).unwrap();

    run(Command::new("kill").args(["-KILL", &pid(SIDECAR)]), b"").unwrap().success().unwrap();
    until("the network after a crash", || Ok(answers())).unwrap();
    assert_eq!(pid(AGENT_CONTAINER), agent, "the agent was started again");

    systemctl(&["start", REFUSED]);
    until("its end", || Ok(systemctl(&["is-failed", REFUSED]).code == Some(0))).unwrap();
    let said = journal(REFUSED);
    assert!(said.contains("understudy: refused: ") && said.contains("NET_ADMIN"), "{said}");
    assert!(!said.contains("it ran"), "{said}");
    let restarts = systemctl(&["show", "--property=NRestarts", "--value", REFUSED]);
    assert_eq!(restarts.stdout.trim(), "0", "a refusal was tried again");

    // without the sidecar's unit the agent's starts it
    systemctl(&["stop", AGENT, SIDECAR]).success().unwrap();
    systemctl(&["start", AGENT]).success().unwrap();
    until("the network", || Ok(answers())).unwrap();

    // An agent without a sidecar ends, says so, and is tried again until there is one.
    systemctl(&["stop", AGENT, SIDECAR]).success().unwrap();
    units.break_sidecar();
    systemctl(&["start", AGENT]);
    let shown = |property: &str| {
        let shown = systemctl(&["show", &format!("--property={property}"), "--value", AGENT]);
        shown.stdout.trim().parse::<u32>().unwrap_or_default()
    };
    until("a second try", || Ok(shown("NRestarts") > 0)).unwrap();
    until("the status of a try", || Ok(shown("ExecMainStatus") == 75)).unwrap();
    let said = journal(AGENT);
    assert!(said.contains("the sidecar cannot be reached"), "{said}");
    units.mend_sidecar();
    systemctl(&["start", SIDECAR]).success().unwrap();
    until("the network of an agent that was tried again", || Ok(answers())).unwrap();
    systemctl(&["stop", AGENT, SIDECAR]).success().unwrap();
    units.remove();
}

/// As `understudy quadlet` prints them, but that nothing may leave: the sidecar needs no network then.
struct Units {
    directory: PathBuf,
    texts: Vec<(&'static str, String)>,
}

impl Units {
    fn print(stand: &Stand) -> Self {
        let directory = match is_root() {
            true => "/etc/containers/systemd".into(),
            false => PathBuf::from(std::env::var("HOME").unwrap()).join(".config/containers/systemd"),
        };
        let print = |arguments: &[&str]| {
            stand.operator(&[&["quadlet"], arguments].concat()).unwrap().success().unwrap()
        };
        let sidecar = print(&["sidecar", "--image", SIDECAR_IMAGE, "--secret", ANTHROPIC]);
        let sidecar = sidecar.replace("[Container]\n", "[Container]\nNetwork=none\n");
        let sidecar = format!("{sidecar}\n[Quadlet]\nDefaultDependencies=false\n");
        let work = "trap 'exit 0' TERM; echo it ran; sleep infinity & wait";
        let agent =
            print(&["agent", AGENT_IMAGE, "--harness", "claude-code", "--at-boot", "--", "sh", "-c", work]);
        let refused = agent.replace("[Container]\n", "[Container]\nAddCapability=NET_ADMIN\n");
        Self { directory, texts: vec![(SIDECAR, sidecar), (AGENT, agent), (REFUSED, refused)] }
    }

    fn write(&self) {
        fs::create_dir_all(&self.directory).unwrap();
        for (name, text) in &self.texts {
            fs::write(self.directory.join(format!("{name}.container")), text).unwrap();
        }
        systemctl(&["daemon-reload"]).success().unwrap();
    }

    fn remove(&self) {
        for (name, _) in &self.texts {
            fs::remove_file(self.directory.join(format!("{name}.container"))).unwrap();
        }
        systemctl(&["daemon-reload"]).success().unwrap();
    }

    /// Its service then fails before Podman is called.
    fn break_sidecar(&self) {
        let text = self.texts[0].1.replace("[Service]\n", "[Service]\nExecStartPre=false\n");
        fs::write(self.directory.join(format!("{SIDECAR}.container")), text).unwrap();
        systemctl(&["daemon-reload"]).success().unwrap();
    }

    fn mend_sidecar(&self) {
        self.write();
        systemctl(&["reset-failed", SIDECAR]);
    }
}

fn journal(unit: &str) -> String {
    let mut journal = Command::new("journalctl");
    journal.args(manager()).args(["--no-pager", "--unit", unit]);
    run(&mut journal, b"").unwrap().text()
}

/// Whether the sidecar answers the agent: with a refusal, since nothing of this test may leave.
fn answers() -> bool {
    let url = "https://denied.example/";
    let curl = ["exec", AGENT_CONTAINER, "curl", "-sS", "--max-time", "20", "-w", "HTTP %{http_code}", url];
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
