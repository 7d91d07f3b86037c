//! Gemini CLI with an API key.

use crate::tool::Tool;

pub(crate) const GEMINI: Tool = Tool {
    harness: "gemini-cli",
    needs: &["node", "gemini"],
    command: "node /opt/gemini/node_modules/@google/gemini-cli/bundle/gemini.js -p 'say hi'",
    answer: "MOCK-OK at generativelanguage.googleapis.com",
    secret: "gemini-key",
    arrived: (":streamGenerateContent", "x-goog-api-key", ""),
    instructed: true,
    ..Tool::PLAIN
};

#[test]
fn gemini_cli_answers_with_a_stand_in() {
    GEMINI.prove();
}
