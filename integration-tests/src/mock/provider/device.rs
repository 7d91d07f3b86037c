//! Logins of devices, as Codex asks for them: a code for the user, then one for the token endpoint, which `accounts` answers.

use serde_json::json;

use super::{Answer, Asked};

/// The user has let the device in already.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    match (asked.method, asked.path) {
        ("POST", "/api/accounts/deviceauth/usercode") => Some(Answer::json(&json!({
            "device_auth_id": "device-mock", "user_code": "ABCD-12345", "interval": "1" }))),
        ("POST", "/api/accounts/deviceauth/token") => Some(Answer::json(&json!({
            "authorization_code": "code-of-device", "code_challenge": "challenge", "code_verifier": "verifier" }))),
        _ => None,
    }
}
