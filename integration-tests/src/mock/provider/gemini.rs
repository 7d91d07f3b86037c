//! The Gemini API.

use serde_json::{Value, json};

use super::{Answer, Asked};

/// What the terminal agent's own router of models expects of the first call.
const ROUTE: &str =
    r#"{"complexity_reasoning":"x","complexity_score":1,"reasoning":"x","model_choice":"flash"}"#;

/// Answers `…/models/MODEL:METHOD`.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    let (_, method) = asked.path.rsplit_once(':').filter(|_| asked.method == "POST")?;
    match method {
        "streamGenerateContent" => {
            Some(Answer::events(&[content(&asked.says(&format!("at {}", asked.host)))], ""))
        }
        "generateContent" => Some(Answer::json(&content(ROUTE))),
        "countTokens" => Some(Answer::json(&json!({ "totalTokens": 1 }))),
        _ => None,
    }
}

fn content(text: &str) -> Value {
    json!({
        "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
        "modelVersion": "mock", "responseId": "mock",
    })
}
