//! Stacks of podman-compose: agents beside other services, with annotations alone (docs/compose.md).

use std::fs;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, podman, run, unique, until};
use understudy_integration_tests::stand::AGENT_IMAGE;

use crate::{assert_refused, stand};

struct Stack {
    directory: tempfile::TempDir,
    name: String,
}

impl Stack {
    fn new(services: &str) -> Self {
        let directory = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
        fs::write(directory.path().join("compose.yaml"), format!("version: '3'\nservices:\n{services}"))
            .unwrap();
        Self { directory, name: unique("stack") }
    }

    fn compose(&self, arguments: &[&str]) -> anyhow::Result<Outcome> {
        let mut compose = Command::new("podman-compose");
        compose.args(["-p", &self.name]).args(arguments).current_dir(self.directory.path());
        run(&mut compose, b"")
    }

    fn container(&self, service: &str) -> String {
        format!("{}_{service}_1", self.name)
    }

    fn exec(&self, service: &str, command: &[&str]) -> Outcome {
        podman(["exec", &self.container(service)].into_iter().chain(command.iter().copied())).unwrap()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // what is left goes with the session
        let _ = self.compose(&["down", "-t", "0"]);
    }
}

/// In each form that a compose file may have them in: a map, a list.
const SERVER: &str = r#"["python3", "-m", "http.server", "3000", "--directory", "/etc"]"#;

fn guarded() -> Stack {
    Stack::new(&format!(
        "  agent:
    image: {AGENT_IMAGE}
    command: {SERVER}
    annotations:
      understudy.harness: generic
      understudy.policy: world
      understudy.network: guarded
      understudy.inbound: '3000'
  other:
    image: {AGENT_IMAGE}
    command: [\"python3\", \"-m\", \"http.server\", \"3001\", \"--directory\", \"/etc\"]
    annotations:
      - understudy.harness=generic
      - understudy.policy=world
      - understudy.network=guarded
  service:
    image: {AGENT_IMAGE}
    command: {SERVER}
"
    ))
}

#[test]
fn guarded_agents_of_a_stack_reach_the_sidecar_and_nothing_else() {
    stand();
    let stack = guarded();
    let up = stack.compose(&["up", "-d"]).unwrap();
    let fetch = |service: &str, url: &str| {
        stack.exec(service, &["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5", url])
    };
    until("the stack", || Ok(fetch("service", "http://127.0.0.1:3000/hostname").stdout == "200"))
        .unwrap_or_else(|error| panic!("{error:#}: {}", up.text()));
    for agent in ["agent", "other"] {
        let outcome = fetch(agent, "https://other.example/status/200");
        assert_eq!(outcome.stdout, "200", "{agent}: {} {}", outcome.text(), up.text());
        // the service answers who is not guarded, and by the sidecar it is not allowed
        let outcome = fetch(agent, "http://service:3000/hostname");
        assert_eq!(outcome.stdout, "403", "{agent}: {}", outcome.text());
    }
    until("the agent's server", || Ok(fetch("service", "http://agent:3000/hostname").stdout == "200"))
        .unwrap();
    assert_ne!(fetch("service", "http://other:3001/hostname").stdout, "200");
    assert_ne!(fetch("agent", "http://other:3001/hostname").stdout, "200");
}

#[test]
fn an_agent_of_a_stack_without_the_annotation_does_not_run() {
    stand();
    let stack = Stack::new(&format!(
        "  agent:
    image: {AGENT_IMAGE}
    command: [\"echo\", \"it ran\"]
    annotations:
      understudy.harness: generic
"
    ));
    stack.compose(&["up", "-d"]).unwrap();
    let name = stack.container("agent");
    until("its end", || {
        Ok(podman(["inspect", "--format", "{{.State.Status}}", &name])?.stdout.trim() == "exited")
    })
    .unwrap();
    let logs = podman(["logs", &name]).unwrap();
    assert_refused(&Outcome { code: Some(126), ..logs }, "understudy.network=guarded");
}
