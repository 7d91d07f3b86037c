//! The routes of the Anthropic API that Claude Code needs to print an answer. What it asks besides (settings, limits,
//! telemetry) may answer 404: it goes on.

use serde_json::{Value, json};

use super::{Answer, Asked, EVENTS};

/// Answers a path of the API.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    let whole = |value: Value| Some(Answer::json(&value));
    match (asked.method, asked.path) {
        ("POST", "/v1/messages") => Some(messages(asked)),
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

fn messages(asked: &Asked<'_>) -> Answer {
    let request = asked.json();
    let model = request.get("model").and_then(Value::as_str).unwrap_or("claude");
    let text =
        asked.says(if asked.headers.contains_key("x-api-key") { "from x-api-key" } else { "from bearer" });
    if request.get("stream").and_then(Value::as_bool) == Some(true) {
        return Answer { body: events(model, &text), kind: EVENTS };
    }
    let message = json!({
        "id": "msg_mock", "type": "message", "role": "assistant", "model": model,
        "content": [{ "type": "text", "text": text }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    Answer::json(&message)
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
