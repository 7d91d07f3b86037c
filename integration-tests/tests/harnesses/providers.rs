//! Agents that talk to one of several providers with its API key.

use crate::tool::{Tool, node_arch};

const ANTHROPIC: Tool = Tool {
    answer: "MOCK-OK from x-api-key",
    secret: "anthropic-key",
    arrived: ("/v1/messages", "x-api-key", ""),
    instructed: true,
    ..Tool::PLAIN
};

/// Its headless run with that model.
fn opencode(model: &str) -> &'static str {
    let program = match node_arch() {
        "arm64" => "/opt/opencode/node_modules/opencode-linux-arm64/bin/opencode",
        _ => "/opt/opencode/node_modules/opencode-linux-x64/bin/opencode",
    };
    format!("{program} run -m {model} 'say hi'").leak()
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_answers_with_a_stand_in() {
    let command = opencode("anthropic/claude-sonnet-4-5");
    Tool { harness: "opencode", needs: &["opencode"], command, ..ANTHROPIC }.prove();
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn pi_answers_with_a_stand_in() {
    let pi = Tool {
        harness: "pi",
        needs: &["node", "pi"],
        command: "node /opt/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js -p 'say hi'",
        ..ANTHROPIC
    };
    pi.prove();
}

/// In an image with an older Python.
fn aider() -> Tool {
    let tar = crate::stand().paths.cache.join("clis-older.tar");
    understudy_integration_tests::stand::import(&tar, "localhost/understudy-clis-older").unwrap();
    Tool {
        harness: "aider",
        needs: &["aider"],
        image: "localhost/understudy-clis-older",
        env: &[("PYTHONPATH", "/opt/aider")],
        command: "/opt/aider/bin/aider --no-git --yes-always --no-show-model-warnings --no-pretty \
                  --model anthropic/claude-sonnet-4-5 --message 'say hi'",
        ..ANTHROPIC
    }
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn aider_answers_with_a_stand_in() {
    aider().prove();
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn qwen_code_answers_with_a_stand_in() {
    let qwen = Tool {
        harness: "qwen-code",
        needs: &["node", "qwen"],
        env: &[("OPENAI_MODEL", "qwen3-coder-plus")],
        command: "node /opt/qwen/node_modules/@qwen-code/qwen-code/cli.js -p 'say hi'",
        answer: "MOCK-OK at dashscope.aliyuncs.com",
        secret: "dashscope-key",
        arrived: ("/compatible-mode/v1/chat/completions", "authorization", "Bearer "),
        instructed: true,
        ..Tool::PLAIN
    };
    qwen.prove();
}
