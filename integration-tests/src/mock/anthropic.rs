//! The routes of the Anthropic API that Claude Code needs to print an answer. What it asks besides (settings, limits,
//! telemetry) may answer 404: it goes on.

use serde_json::{Value, json};

/// What the mock says, with the header that carried the credential.
pub(super) const ANSWER: &str = "MOCK-OK";

/// The whole answer, and whether it is an event stream.
pub(super) struct Answer {
    pub(super) body: String,
    pub(super) stream: bool,
}

/// Answers `path` if it is one of the API's.
pub(super) fn answer(method: &str, path: &str, headers: &http::HeaderMap, body: &[u8]) -> Option<Answer> {
    let whole = |value: Value| Some(Answer { body: value.to_string(), stream: false });
    match (method, path) {
        ("POST", "/v1/messages") => Some(messages(headers, body)),
        ("POST", "/v1/messages/count_tokens") => whole(json!({ "input_tokens": 10 })),
        ("GET", "/api/claude_code/policy_limits") => whole(json!({ "restrictions": {} })),
        ("GET", "/api/oauth/profile") => whole(json!({
            "account": { "uuid": "00000000-0000-4000-8000-000000000002", "full_name": "Mock", "display_name": "Mock",
                "email": "mock@example.invalid", "has_claude_max": true, "has_claude_pro": false },
            "organization": { "uuid": "00000000-0000-4000-8000-000000000001", "name": "Mock",
                "organization_type": "claude_max", "rate_limit_tier": "default_claude_max_5x" },
        })),
        _ => None,
    }
}

fn messages(headers: &http::HeaderMap, body: &[u8]) -> Answer {
    let request: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let model = request.get("model").and_then(Value::as_str).unwrap_or("claude");
    let text =
        format!("{ANSWER} from {}", if headers.contains_key("x-api-key") { "x-api-key" } else { "bearer" });
    if request.get("stream").and_then(Value::as_bool) == Some(true) {
        return Answer { body: events(model, &text), stream: true };
    }
    let message = json!({
        "id": "msg_mock", "type": "message", "role": "assistant", "model": model,
        "content": [{ "type": "text", "text": text }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    Answer { body: message.to_string(), stream: false }
}

fn events(model: &str, text: &str) -> String {
    let usage = json!({ "input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 1 });
    let message = json!({ "id": "msg_mock", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null },
            "usage": { "output_tokens": 5 } }),
        json!({ "type": "message_stop" }),
    ];
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
        .collect()
}
