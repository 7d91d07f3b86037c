//! GitHub's API as far as its tools ask who somebody is, and Copilot's list of models.

use serde_json::{Value, json};

use super::{Answer, Asked};

/// Answers a path of the API.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    let answer = match (asked.method, asked.path) {
        ("GET", "/user") => json!({ "login": "mock", "id": 1 }),
        // `gh` asks so who has logged in.
        ("POST", "/graphql") => json!({ "data": { "viewer": { "login": "mock" } } }),
        ("GET", "/copilot_internal/user") => json!({
            "login": "mock", "access_type_sku": "free_limited_copilot", "copilot_plan": "individual",
            "chat_enabled": true, "cli_enabled": true, "analytics_tracking_id": "x",
            "can_signup_for_limited": false, "organization_login_list": [], "organization_list": [],
            "endpoints": {
                "api": "https://api.individual.githubcopilot.com",
                "telemetry": "https://telemetry.individual.githubcopilot.com",
                "proxy": "https://proxy.individual.githubcopilot.com",
            },
        }),
        ("GET", "/models") => {
            let models = ["gpt-5.4", "claude-sonnet-4.6", "gpt-5-mini"].map(model);
            json!({ "object": "list", "data": models })
        }
        ("POST", "/models/session") => json!({
            "available_models": ["gpt-5.4"], "selected_model": "gpt-5.4", "session_token": "x",
            "expires_at": 4_102_444_800_u64, "discounted_costs": {},
        }),
        _ => return None,
    };
    Some(Answer::json(&answer))
}

fn model(id: &str) -> Value {
    json!({
        "id": id, "name": id, "object": "model", "vendor": "Mock", "version": id, "preview": false,
        "model_picker_enabled": true, "is_chat_default": true, "is_chat_fallback": true,
        "policy": { "state": "enabled", "terms": "" }, "billing": { "is_premium": false, "multiplier": 0 },
        "supported_endpoints": ["/chat/completions"],
        "capabilities": {
            "type": "chat", "family": id, "object": "model_capabilities", "tokenizer": "o200k_base",
            "limits": { "max_context_window_tokens": 128_000, "max_prompt_tokens": 100_000,
                "max_output_tokens": 16_000 },
            "supports": { "streaming": true, "tool_calls": true, "parallel_tool_calls": true },
        },
    })
}
