//! The Gemini API, and Gemini Code Assist's, which wraps the same answers.

use serde_json::{Value, json};

use super::{Answer, Asked};

/// What the terminal agent's own router of models expects of the first call.
const ROUTE: &str =
    r#"{"complexity_reasoning":"x","complexity_score":1,"reasoning":"x","model_choice":"flash"}"#;

/// Answers `…/models/MODEL:METHOD`.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    if asked.host == "oauth2.googleapis.com" && asked.path == "/tokeninfo" {
        return Some(Answer::json(
            &json!({ "aud": "x", "expires_in": 3000, "scope": "x", "email": "mock@example.invalid" }),
        ));
    }
    let (_, method) = asked.path.rsplit_once(':').filter(|_| asked.method == "POST")?;
    if asked.path.starts_with("/v1internal:") {
        return Some(code_assist(asked, method));
    }
    match method {
        "streamGenerateContent" => {
            Some(Answer::events(&[content(&asked.says(&format!("at {}", asked.host)))], ""))
        }
        "generateContent" => Some(Answer::json(&content(ROUTE))),
        "countTokens" => Some(Answer::json(&json!({ "totalTokens": 1 }))),
        _ => None,
    }
}

fn code_assist(asked: &Asked<'_>, method: &str) -> Answer {
    const PROJECT: &str = "mock-project";
    match method {
        "streamGenerateContent" => {
            let text = asked.says(&format!("at {}", asked.host));
            Answer::events(&[json!({ "response": content(&text), "traceId": "mock" })], "")
        }
        "generateContent" => Answer::json(&json!({ "response": content(ROUTE) })),
        "loadCodeAssist" => Answer::json(&json!({ "currentTier": { "id": "free-tier", "name": "Free" },
            "allowedTiers": [{ "id": "free-tier", "name": "Free", "isDefault": true }],
            "cloudaicompanionProject": PROJECT })),
        "onboardUser" => Answer::json(&json!({ "name": "op", "done": true,
            "response": { "cloudaicompanionProject": { "id": PROJECT, "name": PROJECT } } })),
        _ => Answer::json(&json!({})),
    }
}

fn content(text: &str) -> Value {
    json!({
        "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
        "modelVersion": "mock", "responseId": "mock",
    })
}
