//! Stacks of podman-compose: agents beside other services, with annotations alone (docs/compose.md).

use understudy_integration_tests::compose::Stack;
use understudy_integration_tests::podman::{Outcome, podman, unique, until};
use understudy_integration_tests::stand::AGENT_IMAGE;

use crate::{assert_refused, stand};

fn stack(services: &str) -> Stack {
    Stack::new(&unique("stack"), &format!("version: '3'\nservices:\n{services}")).unwrap()
}

/// In each form that a compose file may have them in: a map, a list.
const SERVER: &str = r#"["python3", "-m", "http.server", "3000", "--directory", "/etc"]"#;

fn guarded() -> Stack {
    stack(&format!(
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
        let curl = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5", url];
        stack.exec(service, &curl).unwrap()
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
    let stack = stack(&format!(
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
