//! Chat completions, as OpenAI made them and many others answer them, Mistral and Copilot among them.

use serde_json::{Value, json};

use super::{Answer, Asked};

/// Answers whatever path ends as the API's.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    let chat = asked.method == "POST" && asked.path.ends_with("/chat/completions");
    chat.then(|| completion(asked))
}

fn completion(asked: &Asked<'_>) -> Answer {
    let request = asked.json();
    let model = request.get("model").and_then(Value::as_str).unwrap_or("mock");
    let text = asked.says(&format!("at {}", asked.host));
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    if request.get("stream").and_then(Value::as_bool) != Some(true) {
        let message = json!({ "role": "assistant", "content": text, "tool_calls": null });
        return Answer::json(&json!({
            "id": "mock", "object": "chat.completion", "created": 1, "model": model, "usage": usage,
            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        }));
    }
    let chunk = |delta: Value, end: Option<&str>| {
        json!({ "id": "mock", "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] })
    };
    let mut last = chunk(json!({ "content": "" }), Some("stop"));
    last["usage"] = usage;
    let chunks = [chunk(json!({ "role": "assistant", "content": text }), None), last];
    Answer::events(&chunks, "data: [DONE]\n\n")
}
