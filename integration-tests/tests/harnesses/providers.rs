//! Agents that talk to one of several providers with its API key.

use crate::tool::{Tool, node_arch};

const ANTHROPIC: Tool = Tool {
    answer: "MOCK-OK from x-api-key",
    secret: "anthropic-key",
    arrived: ("/v1/messages", "x-api-key", ""),
    instructed: true,
    ..Tool::PLAIN
};

pub(crate) const PI: Tool = Tool {
    harness: "pi",
    needs: &["node", "pi"],
    command: "node /opt/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js -p 'say hi'",
    ..ANTHROPIC
};

pub(crate) fn opencode() -> Tool {
    let command = "/opt/opencode/node_modules/opencode-linux-x64/bin/opencode run -m anthropic/claude-sonnet-4-5 'say hi'";
    let command = command.replace("x64", node_arch()).leak();
    Tool { harness: "opencode", needs: &["opencode"], command, ..ANTHROPIC }
}

/// In an image with an older Python.
pub(crate) fn aider() -> Tool {
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

pub(crate) fn qwen() -> Tool {
    Tool {
        harness: "qwen-code",
        needs: &["node", "qwen"],
        env: &[("OPENAI_MODEL", "qwen3-coder-plus")],
        command: "node /opt/qwen/node_modules/@qwen-code/qwen-code/cli.js -p 'say hi'",
        answer: "MOCK-OK at dashscope.aliyuncs.com",
        secret: "dashscope-key",
        arrived: ("/compatible-mode/v1/chat/completions", "authorization", "Bearer "),
        instructed: true,
        ..Tool::PLAIN
    }
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_answers_with_a_stand_in() {
    opencode().prove();
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn pi_answers_with_a_stand_in() {
    PI.prove();
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn aider_answers_with_a_stand_in() {
    aider().prove();
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn qwen_code_answers_with_a_stand_in() {
    qwen().prove();
}
