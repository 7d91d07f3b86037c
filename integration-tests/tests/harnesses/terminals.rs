//! Terminal interfaces start without a question (about the theme, the login, or the directory), what is typed there is answered,
//! and nothing real is in them while they live.

use understudy_integration_tests::podman::until_within;
use understudy_integration_tests::stand::TOKEN_LIFETIME;

use crate::accounts::{Login, chatgpt, claude, codex};
use crate::github::copilot;
use crate::google::GEMINI;
use crate::keys::CLAUDE;
use crate::mistral::VIBE;
use crate::providers::{PI, aider, opencode, qwen};
use crate::tool::{Tool, node_arch};

const WORD: &str = "codeword-in-terminal";

/// With a key, and what the operator says reaches the provider from there, too.
fn answers(tool: &Tool, command: &str, ready: &str) {
    let command = &command.replace("x64", node_arch());
    let agent = tool.agent().annotation("understudy.secrets", tool.secret);
    let agent = agent.annotation("understudy.instructions", &format!("Remember the word {WORD}."));
    // Only the mock says it: some redraw between the words of an answer.
    let told = Tool { answer: WORD, ..*tool };
    let container = told.assert_terminal_answers(&agent, command, ready);
    crate::hunt_living(&container, WORD, &[]);
}

#[test]
fn claude_code_starts_and_answers_with_a_key() {
    answers(&CLAUDE, "claude", "(shift+tab to cycle)");
}

#[test]
fn gemini_cli_starts_and_answers() {
    let command = "node /opt/gemini/node_modules/@google/gemini-cli/bundle/gemini.js";
    answers(&GEMINI, command, "Type your message");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn mistral_vibe_starts_and_answers() {
    answers(&VIBE, "/opt/vibe/bin/vibe", "tokens (0%)");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_starts_and_answers() {
    let command = "/opt/opencode/node_modules/opencode-linux-x64/bin/opencode -m anthropic/claude-sonnet-4-5";
    answers(&opencode(), command, "Ask anything");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn copilot_starts_and_answers() {
    answers(&copilot(), "/opt/copilot/node_modules/@github/copilot-linux-x64/copilot", "Manual Approval");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn qwen_code_starts_and_answers() {
    answers(&qwen(), "node /opt/qwen/node_modules/@qwen-code/qwen-code/cli.js", "Type your message");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn pi_starts_and_answers() {
    let command = "node /opt/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js";
    answers(&PI, command, "~/.pi/agent/AGENTS.md, AGENTS.md");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn aider_starts_and_answers() {
    answers(&aider(), "/opt/aider/bin/aider --model anthropic/claude-sonnet-4-5", "Repo-map");
}

/// With an account whose token is over before the second question: the program lives through its renewals.
fn answers_all_along(login: &Login, command: &str, ready: &str, answer: &str) {
    login.import();
    let container = login.tool.assert_terminal_answers(&login.agent(), command, ready);
    let so_far = login.renewals().len();
    until_within(TOKEN_LIFETIME * 4, "two renewals", || Ok(login.renewals().len() > so_far + 1)).unwrap();
    login.tool.ask(&container, "say codeword-after-expiry");
    login.tool.shows(&container, &format!("{answer} codeword-after-expiry"));
    let real = login.all();
    let real: Vec<&str> = real.iter().map(String::as_str).collect();
    crate::hunt_living(&container, "codeword-after-expiry", &real);
}

#[test]
fn claude_code_starts_and_answers() {
    answers_all_along(&claude("ttyclaude"), "claude", "(shift+tab to cycle)", "MOCK-OK from bearer");
}

#[test]
fn codex_starts_and_answers() {
    let answer = "MOCK-OK over a WebSocket";
    answers_all_along(&chatgpt("ttycodex"), codex(), "default · ~/project", answer);
}
