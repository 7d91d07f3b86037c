//! Terminal interfaces start without a question: about the theme, the login, or the directory.

use crate::google::GEMINI;
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
