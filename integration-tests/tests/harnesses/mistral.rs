//! Mistral Vibe with an API key.

use crate::tool::Tool;

pub(crate) const VIBE: Tool = Tool {
    harness: "mistral-vibe",
    needs: &["vibe"],
    env: &[("PYTHONPATH", "/opt/vibe")],
    command: "/opt/vibe/bin/vibe -p 'say hi'",
    answer: "MOCK-OK at api.mistral.ai",
    secret: "mistral-key",
    arrived: ("/v1/chat/completions", "authorization", "Bearer "),
    instructed: true,
    ..Tool::PLAIN
};

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn mistral_vibe_answers_with_a_stand_in() {
    VIBE.prove();
}
