//! Logins of devices: as Codex asks for them, a code for the user, then one for the token endpoint, which `accounts` answers;
//! and as GitHub's tools do (RFC 8628), whose token does not expire.

use serde_json::json;

use super::{Answer, Asked, FORM};

/// What GitHub gives a tool that logs in.
pub const GITHUB: &str = "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";

/// The user has let the device in already.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    match (asked.method, asked.path) {
        ("POST", "/api/accounts/deviceauth/usercode") => Some(Answer::json(&json!({
            "device_auth_id": "device-mock", "user_code": "ABCD-12345", "interval": "1" }))),
        ("POST", "/api/accounts/deviceauth/token") => Some(Answer::json(&json!({
            "authorization_code": "code-of-device", "code_challenge": "challenge", "code_verifier": "verifier" }))),
        ("POST", "/login/device/code") => {
            let fields = "device_code=device-mock&user_code=ABCD-1234&expires_in=900&interval=1&verification_uri=https%3A%2F%2Fgithub.com%2Flogin%2Fdevice";
            Some(Answer { body: fields.to_owned(), kind: FORM })
        }
        ("POST", "/login/oauth/access_token") => Some(Answer::json(&json!({
            "access_token": GITHUB, "token_type": "bearer", "scope": "repo,read:org,gist" }))),
        _ => None,
    }
}
