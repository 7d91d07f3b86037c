//! Google's token endpoint, as far as service accounts use it: whoever asks gets a token, and a test looks at what was asked.

use serde_json::json;

use super::{Answer, Asked};

/// What it makes.
pub const ACCESS: &str = "ya29.c.the-mock-made-this-access-token-0123456789";

/// Answers a path of the API.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    match (asked.method, asked.path) {
        ("POST", "/google/token") => {
            Some(Answer::json(&json!({ "access_token": ACCESS, "expires_in": 3599, "token_type": "Bearer" })))
        }
        _ => None,
    }
}
