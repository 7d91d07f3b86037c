//! A stack of Compose whose agent waits until the sidecar is healthy, as docs/compose.md has it.

use understudy_integration_tests::compose::Stack;
use understudy_integration_tests::podman::podman;
use understudy_integration_tests::stand::{AGENT_IMAGE, ANTHROPIC, SIDECAR_IMAGE};

use crate::stand;

/// The stand's own runs again when this is dropped.
struct OtherSidecar;

impl Drop for OtherSidecar {
    fn drop(&mut self) {
        stand().start_sidecar().unwrap();
    }
}

/// It asks once, with its first program. The state volume is the one that this host had before: another one would be refused.
#[test]
fn an_agent_starts_once_the_sidecar_of_its_stack_is_healthy() {
    let paths = &stand().paths;
    stand().kill_sidecar();
    let _other = OtherSidecar;
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
      - state:/var/lib/understudy
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
  state: {{external: true, name: understudy-state}}
",
        configuration = paths.configuration.display(),
        control = paths.control.display(),
    );
    let stack = Stack::new("healthy", &text).unwrap();
    let up = stack.compose(&["up", "-d"]).unwrap();
    assert_eq!(up.code, Some(0), "{}", up.text());
    let agent = stack.container("agent");
    let ended = podman(["wait", &agent]).unwrap();
    let said = podman(["logs", &agent]).unwrap().text();
    assert_eq!(ended.stdout.trim(), "0", "{said} {}", up.text());
    assert!(said.contains("HTTP 403") && said.contains("understudy"), "{said} {}", up.text());
}
