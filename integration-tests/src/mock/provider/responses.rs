//! OpenAI's Responses API as Codex asks it, over a WebSocket or with server-sent events, and what it asks of ChatGPT before.

use serde_json::{Value, json};

use super::{Answer, Asked, EVENTS, said};
use crate::mock::accounts::ACCOUNT_ID;

/// Answers a path of the API.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    match (asked.method, asked.path) {
        ("POST", path) if is_responses(path) => {
            let text = asked.says("over events");
            let events: String = events(&text)
                .iter()
                .map(|event| {
                    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
                })
                .collect();
            Some(Answer { body: events, kind: EVENTS })
        }
        ("GET", "/backend-api/wham/accounts/check") => {
            let account = json!({ "id": ACCOUNT_ID, "name": "Mock", "structure": "personal", "plan_type": "plus",
                "is_deactivated": false, "workspace_backend_origin": "NO_CONSTRAINT",
                "account_routing_override": "NO_CONSTRAINT" });
            Some(Answer::json(&json!({ "accounts": [account], "default_account_id": ACCOUNT_ID,
                "account_ordering": [ACCOUNT_ID] })))
        }
        _ => None,
    }
}

pub(super) fn messages(path: &str, message: &[u8]) -> Vec<String> {
    match is_responses(path) {
        true => events(&said(message, "over a WebSocket")).iter().map(Value::to_string).collect(),
        false => Vec::new(),
    }
}

fn is_responses(path: &str) -> bool {
    path.ends_with("/responses")
}

fn events(text: &str) -> Vec<Value> {
    let item = |status: &str, content: Value| json!({ "type": "message", "id": "msg_mock", "role": "assistant", "status": status, "content": content });
    let whole = item("completed", json!([{ "type": "output_text", "text": text, "annotations": [] }]));
    let response = |status: &str| json!({ "id": "resp_mock", "object": "response", "status": status });
    let mut completed = response("completed");
    completed["output"] = json!([whole]);
    completed["usage"] = json!({ "input_tokens": 1, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 1, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 2 });
    vec![
        json!({ "type": "response.created", "response": response("in_progress") }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item("in_progress", json!([])) }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_mock", "output_index": 0, "content_index": 0,
            "delta": text }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": whole }),
        json!({ "type": "response.completed", "response": completed }),
    ]
}
