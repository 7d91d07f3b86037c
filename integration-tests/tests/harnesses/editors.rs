//! Editors: an agent that is started by `podman run -i` and spoken to in the Agent Client Protocol, with its own library.

use std::process::Command;

use understudy_integration_tests::podman;

use crate::google::GEMINI;
use crate::stand;
use crate::tool::{Tool, node_arch};

const CLIENT: &str = include_str!("../acp-client.mjs");

/// What an editor hears of an agent that is asked one thing, in a container that is gone after it.
fn assert_answers(tool: &Tool, command: &[&str]) {
    assert_starts_and_answers(
        tool,
        tool.agent().annotation("understudy.secrets", tool.secret).attached(command),
    );
}

/// The same, where that is how the editor starts it.
fn assert_starts_and_answers(tool: &Tool, started: Vec<String>) {
    let stand = stand();
    let cache = stand.paths.cache.join("clis");
    let directory = tempfile::tempdir().unwrap();
    let client = directory.path().join("acp-client.mjs");
    std::fs::write(&client, CLIENT).unwrap();
    let node = cache.join(format!("node/node_modules/node-linux-{}/bin/node", node_arch()));
    let sdk = cache.join("acp/node_modules/@agentclientprotocol/sdk");
    assert!(sdk.exists(), "fetch it first: integration-tests/images/clis acp");
    let heard = podman::run(
        Command::new(node).args([client.as_path(), sdk.as_path()]).arg("/home/agent").args(started),
        b"",
    );
    let heard = heard.unwrap();
    let told = heard.text();
    assert!(heard.stdout.contains(tool.answer), "{told}\n{}", stand.sidecar_log().unwrap());
    assert!(heard.stdout.contains("ended: end_turn"), "{told}");
    tool.assert_arrived(stand.secrets.value(tool.secret));
    assert!(stand.secrets.all().iter().all(|real| !told.contains(real)), "{told}");
}

#[test]
fn gemini_cli_answers_an_editor() {
    let program = "/opt/gemini/node_modules/@google/gemini-cli/bundle/gemini.js";
    assert_answers(&GEMINI, &["node", program, "--acp"]);
}

fn codex() -> (Tool, &'static str) {
    let program = match node_arch() {
        "arm64" => "/opt/codex-acp/node_modules/@zed-industries/codex-acp-linux-arm64/bin/codex-acp",
        _ => "/opt/codex-acp/node_modules/@zed-industries/codex-acp-linux-x64/bin/codex-acp",
    };
    let codex = Tool {
        harness: "codex",
        needs: &["codex-acp"],
        secret: "openai-key",
        arrived: ("/responses", "authorization", "Bearer "),
        ..Tool::PLAIN
    };
    (codex, program)
}

#[test]
fn codex_answers_an_editor() {
    let (codex, program) = codex();
    assert_answers(&codex, &[program]);
}

/// In a container that runs already and goes on after it.
#[test]
fn codex_answers_an_editor_in_podman_exec() {
    let (codex, program) = codex();
    let agent = codex.agent().annotation("understudy.secrets", codex.secret);
    let container = agent.start(&["sleep", "infinity"]).unwrap();
    let exec = ["podman", "exec", "-i", &container.name, program];
    assert_starts_and_answers(&codex, exec.map(str::to_owned).to_vec());
    crate::hunt(&container);
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn mistral_vibe_answers_an_editor() {
    assert_answers(&crate::mistral::VIBE, &["/opt/vibe/bin/vibe-acp"]);
}
