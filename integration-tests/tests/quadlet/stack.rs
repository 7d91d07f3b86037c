//! A stack of Compose whose agent waits until the sidecar is healthy, as docs/compose.md has it.

use std::fs;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, podman, run};
use understudy_integration_tests::stand::{AGENT_IMAGE, ANTHROPIC, SIDECAR_IMAGE};

use crate::stand;

struct Stack {
    directory: tempfile::TempDir,
}

impl Stack {
    fn compose(&self, arguments: &[&str]) -> Outcome {
        let mut compose = Command::new("podman-compose");
        compose.args(["-p", "healthy"]).args(arguments).current_dir(self.directory.path());
        run(&mut compose, b"").unwrap()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.compose(&["down", "-t", "0"]);
        stand().start_sidecar().unwrap();
    }
}

/// It asks once, with its first program. The state volume is the one that this host had before: another one would be refused.
#[test]
fn an_agent_starts_once_the_sidecar_of_its_stack_is_healthy() {
    let paths = &stand().paths;
    stand().kill_sidecar();
    let stack = Stack { directory: tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap() };
    let text = format!(
        "services:
  understudy:
    image: {SIDECAR_IMAGE}
    network_mode: none
    read_only: true
    tmpfs: [/run/secrets]
    cap_drop: [all]
    security_opt: [no-new-privileges]
    annotations: {{understudy.role: sidecar}}
    secrets: [{ANTHROPIC}]
    volumes:
      - {configuration}:/etc/understudy:ro
      - {control}:/run/understudy/control
      - understudy-state:/var/lib/understudy
  agent:
    image: {AGENT_IMAGE}
    network_mode: none
    command: [curl, -sS, -w, 'HTTP %{{http_code}}', 'https://denied.example/']
    depends_on:
      understudy: {{condition: service_healthy}}
    annotations:
      understudy.harness: claude-code
secrets:
  {ANTHROPIC}: {{external: true}}
volumes:
  understudy-state: {{external: true}}
",
        configuration = paths.configuration.display(),
        control = paths.control.display(),
    );
    fs::write(stack.directory.path().join("compose.yaml"), text).unwrap();
    let up = stack.compose(&["up", "-d"]);
    assert_eq!(up.code, Some(0), "{}", up.text());
    let ended = podman(["wait", "healthy_agent_1"]).unwrap();
    let said = podman(["logs", "healthy_agent_1"]).unwrap().text();
    assert_eq!(ended.stdout.trim(), "0", "{said} {}", up.text());
    assert!(said.contains("HTTP 403") && said.contains("understudy"), "{said} {}", up.text());
}
