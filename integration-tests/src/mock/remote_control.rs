//! Remote Control as its service is seen from a machine that runs `claude remote-control`: the machine registers and gets a secret,
//! polls for work with it, gets one session to run with a token of its own, and tells what happens in it.
//!
//! Whoever speaks with anything but the real secret or token is answered 401.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::routes::{Body, whole};

/// What the machine polls with.
pub const ENVIRONMENT_SECRET: &str = "sk-ant-env01-the-mock-made-this-environment-secret-0123456789abcdef";
/// What comes with the work beside the token of the session: of an account, of a repository, in a variable.
pub const OTHER_TOKENS: [&str; 3] = [
    "sk-ant-oat01-the-mock-made-this-token-of-an-account-0123456789",
    "ghs_theMockMadeThisTokenOfARepository0123456",
    "a-short-one",
];
/// What is asked in the session, and what the model's mock says of it.
const QUESTION: &str = "say codeword-from-afar";
pub const ANSWER: &str = "MOCK-OK from bearer codeword-from-afar";
const ENVIRONMENT: &str = "env_mock";
const SESSION: &str = "cse_mock0001";
/// How long a poll is kept waiting.
const POLL: Duration = Duration::from_secs(1);
/// The polls that are answered as by a service in trouble.
const IN_TROUBLE: std::ops::Range<u32> = 3..5;
/// The poll that the session comes with.
const AT_WORK: u32 = 6;

/// How often it was polled.
#[derive(Debug, Default)]
pub struct RemoteControl {
    polls: Mutex<u32>,
}

/// The token of the session: a JSON Web Token behind a word.
pub fn session_token() -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims = json!({ "session_id": SESSION, "exp": 4_102_444_800_u64 }).to_string();
    let signature = part("the-mock-signed-this-token-of-a-session-0123456789");
    format!("sk-ant-si-{}.{}.{signature}", part(r#"{"alg":"ES256","typ":"JWT"}"#), part(&claims))
}

impl RemoteControl {
    pub(super) async fn answer(&self, parts: &http::request::Parts) -> Option<Result<Response<Body>>> {
        let path = parts.uri.path();
        let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let environment = format!("/v1/environments/{ENVIRONMENT}");
        let worker = format!("/v1/code/sessions/{SESSION}/worker");
        let as_machine = || bearer == ENVIRONMENT_SECRET || bearer == session_token();
        let answer = |value: Value| Some(whole(StatusCode::OK, "application/json", value.to_string()));
        let refused = || {
            Some(whole(
                StatusCode::UNAUTHORIZED,
                "application/json",
                r#"{"error":{"type":"authentication_error"}}"#,
            ))
        };
        match path {
            "/v1/environments/bridge" => {
                answer(json!({ "environment_id": ENVIRONMENT, "environment_secret": ENVIRONMENT_SECRET }))
            }
            "/v1/sessions" | "/v1/code/sessions" => {
                answer(json!({ "id": SESSION, "session": { "id": SESSION } }))
            }
            "/api/oauth/validate" => answer(json!({})),
            _ if path.starts_with("/v1/environments/bridge/") => answer(json!({})),
            _ if path.starts_with(&environment) => match path[environment.len()..].as_ref() {
                "/work/poll" if bearer == ENVIRONMENT_SECRET => Some(self.poll().await),
                _ if as_machine() => answer(json!({ "lease_extended": true, "state": "acknowledged" })),
                _ => refused(),
            },
            _ if path.starts_with(&worker) => match path[worker.len()..].as_ref() {
                _ if bearer != session_token() => refused(),
                "/register" => answer(json!({ "worker_epoch": "1" })),
                "/events/stream" => Some(Ok(events())),
                _ if parts.method == Method::GET => answer(json!({ "data": [], "worker": {} })),
                _ => answer(json!({})),
            },
            _ => None,
        }
    }

    async fn poll(&self) -> Result<Response<Body>> {
        let number = {
            let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
            *polls += 1;
            *polls
        };
        if IN_TROUBLE.contains(&number) {
            return whole(StatusCode::SERVICE_UNAVAILABLE, "application/json", "{}");
        }
        if number != AT_WORK {
            tokio::time::sleep(POLL).await;
            return whole(StatusCode::NO_CONTENT, "application/json", "");
        }
        let source = json!({ "type": "git_repository",
            "git_info": { "type": "github", "repo": "o/r", "ref": "main", "token": OTHER_TOKENS[1] } });
        let servers = json!({ "mcpServers": {} });
        let secret = json!({ "version": 1, "session_ingress_token": session_token(),
            "api_base_url": "https://api.anthropic.com", "sources": [source],
            "auth": [{ "type": "account", "token": OTHER_TOKENS[0] }],
            "environment_variables": { "GH_TOKEN": OTHER_TOKENS[2] },
            "claude_code_args": { "model": "claude-sonnet-4-5-20250929" },
            "mcp_config": { "content": BASE64_STANDARD.encode(servers.to_string()) }, "use_code_sessions": true });
        let work = json!({ "id": "work_mock0001", "type": "work", "environment_id": ENVIRONMENT, "state": "pending",
            "data": { "type": "session", "id": SESSION }, "created_at": "2026-01-01T00:00:00Z",
            "secret": BASE64_URL_SAFE_NO_PAD.encode(secret.to_string()) });
        whole(StatusCode::OK, "application/json", work.to_string())
    }
}

/// What a person types in the session, and then nothing for as long as it is listened to.
fn events() -> Response<Body> {
    let payload = json!({ "type": "user", "uuid": "00000000-0000-4000-8000-00000000000a", "session_id": SESSION,
        "parent_tool_use_id": null, "message": { "role": "user", "content": QUESTION } });
    let event = json!({ "event_id": "evt_mock0001", "sequence_num": 1, "event_type": "user", "source": "client",
        "created_at": "2026-01-01T00:00:00Z", "payload": payload });
    let first = format!("event: client_event\nid: 1\ndata: {event}\n\n");
    let stream = futures_util::stream::unfold(Some(first), |first| async move {
        let text = match first {
            Some(first) => first,
            None => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                ":keepalive\n\n".to_owned()
            }
        };
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), None))
    });
    let mut response = Response::new(StreamBody::new(Box::pin(stream)).boxed());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response
}
