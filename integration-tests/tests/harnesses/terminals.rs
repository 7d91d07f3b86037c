//! Terminal interfaces start without a question: about the theme, the login, or the directory.

use understudy_integration_tests::podman::until_within;
use understudy_integration_tests::stand::TOKEN_LIFETIME;

use crate::accounts::{Login, chatgpt, claude};
use crate::google::GEMINI;
use crate::keys::CLAUDE;
use crate::tool::{Tool, node_arch};

fn program(of: &str) -> String {
    of.replace("x64", node_arch())
}

#[test]
fn gemini_cli_starts() {
    GEMINI.assert_terminal_starts(
        "node /opt/gemini/node_modules/@google/gemini-cli/bundle/gemini.js",
        "Type your message",
    );
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn mistral_vibe_starts() {
    let vibe = Tool {
        harness: "mistral-vibe",
        needs: &["vibe"],
        env: &[("PYTHONPATH", "/opt/vibe")],
        ..Tool::PLAIN
    };
    vibe.assert_terminal_starts("/opt/vibe/bin/vibe", "tokens (0%)");
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_starts() {
    let opencode = Tool { harness: "opencode", needs: &["opencode"], ..Tool::PLAIN };
    opencode.assert_terminal_starts(
        &program("/opt/opencode/node_modules/opencode-linux-x64/bin/opencode"),
        "Ask anything",
    );
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn copilot_starts() {
    let copilot = Tool { harness: "copilot", needs: &["copilot"], ..Tool::PLAIN };
    copilot.assert_terminal_starts(
        &program("/opt/copilot/node_modules/@github/copilot-linux-x64/copilot"),
        "Manual Approval",
    );
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn qwen_code_starts() {
    let qwen = Tool {
        harness: "qwen-code",
        needs: &["node", "qwen"],
        env: &[("OPENAI_MODEL", "qwen3-coder-plus")],
        ..Tool::PLAIN
    };
    qwen.assert_terminal_starts(
        "node /opt/qwen/node_modules/@qwen-code/qwen-code/cli.js",
        "Type your message",
    );
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn pi_starts() {
    let pi = Tool { harness: "pi", needs: &["node", "pi"], ..Tool::PLAIN };
    pi.assert_terminal_starts(
        "node /opt/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
        "~/.pi/agent/AGENTS.md, AGENTS.md",
    );
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
    crate::hunt_for(&container, &real.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn claude_code_starts_and_answers() {
    answers_all_along(&claude("ttyclaude"), "claude", "(shift+tab to cycle)", "MOCK-OK from bearer");
}

/// It asks at the first question whether its directory is trusted.
#[test]
fn codex_starts() {
    let codex = chatgpt("ttycodex");
    codex.import();
    let agent = codex.agent();
    codex.tool.assert_terminal_starts_in(&agent, crate::accounts::codex(), "Ask Codex to do anything");
}

/// What the operator says reaches the provider from there, too.
fn is_told(tool: &Tool, command: &str, ready: &str, answer: &'static str) {
    let agent = tool.agent().annotation("understudy.secrets", tool.secret);
    let agent = agent.annotation("understudy.instructions", "Remember the word codeword-in-terminal.");
    let tool = Tool { answer, ..*tool };
    let container = tool.assert_terminal_answers(&agent, command, ready);
    crate::hunt(&container);
}

#[test]
fn claude_code_is_told() {
    let ready = "(shift+tab to cycle)";
    is_told(&CLAUDE, "claude", ready, "MOCK-OK from x-api-key codeword-in-terminal");
}
