//! Claude Code and Codex with an API key.

use crate::accounts::codex;
use crate::tool::Tool;

pub(crate) const CLAUDE: Tool = Tool {
    harness: "claude-code",
    programs: &["claude"],
    command: "claude -p 'say hi'",
    answer: "MOCK-OK from x-api-key",
    secret: "anthropic-key",
    arrived: ("/v1/messages", "x-api-key", ""),
    instructed: true,
    ..Tool::PLAIN
};

/// Codex by this command.
pub(crate) fn keyed(command: &str) -> Tool {
    Tool {
        harness: "codex",
        needs: &["codex"],
        command: command.to_owned().leak(),
        answer: "MOCK-OK over a WebSocket",
        secret: "openai-key",
        arrived: ("/responses", "authorization", "Bearer "),
        instructed: true,
        ..Tool::PLAIN
    }
}

#[test]
fn claude_code_answers_with_a_stand_in() {
    CLAUDE.prove();
}

#[test]
fn codex_answers_with_a_stand_in() {
    keyed(&format!("{} exec --skip-git-repo-check 'say hi'", codex())).prove();
}
