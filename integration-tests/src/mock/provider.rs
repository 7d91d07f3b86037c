//! What the providers' own clients are answered: each file knows the routes of one API.

mod anthropic;
mod device;
mod gemini;
mod github;
mod google;
mod openai;
mod responses;
mod shopify;

use serde_json::Value;

pub use device::GITHUB as GITHUB_TOKEN;
pub use google::ACCESS as GOOGLE_ACCESS;

/// What the mock says, with the host that was asked or the header that carried the credential, and a word of the request
/// that begins with [`CODE_WORD`]: so a test sees what an agent was told without a look at its requests.
const ANSWER: &str = "MOCK-OK";
const CODE_WORD: &str = "codeword-";
/// In a request, it makes the answer 401.
const UNAUTHORIZED: &str = "codeword-unauthorized";

/// A request, as far as an API's answer depends on it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: &'a http::HeaderMap,
    pub(super) body: &'a [u8],
}

/// The whole answer, and its type.
pub(super) struct Answer {
    pub(super) body: String,
    pub(super) kind: &'static str,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const FORM: &str = "application/x-www-form-urlencoded";

/// Answers a request of one of the APIs.
pub(super) fn answer(asked: &Asked<'_>) -> Option<Answer> {
    [
        device::answer,
        anthropic::answer,
        openai::answer,
        responses::answer,
        gemini::answer,
        github::answer,
        google::answer,
        shopify::answer,
    ]
    .into_iter()
    .find_map(|answer| answer(asked))
}

/// As several of them say it at once: each client reads what it knows.
pub(super) fn unauthorized() -> Value {
    serde_json::json!({ "type": "error", "error": { "type": "authentication_error", "status": "UNAUTHENTICATED",
        "code": "invalid_api_key", "message": "mock: this key is not valid" } })
}

/// What a WebSocket at that path is sent for this message of its; nothing if it is an echo.
pub(super) fn messages(path: &str, message: &[u8]) -> Vec<String> {
    responses::messages(path, message)
}

impl Asked<'_> {
    fn json(&self) -> Value {
        serde_json::from_slice(self.body).unwrap_or(Value::Null)
    }

    /// Whether it is to be answered as if its key were not good.
    pub(super) fn is_unauthorized(&self) -> bool {
        String::from_utf8_lossy(self.body).contains(UNAUTHORIZED)
    }

    fn says(&self, of: &str) -> String {
        said(self.body, of)
    }
}

fn said(body: &[u8], of: &str) -> String {
    let body = String::from_utf8_lossy(body);
    let word = body.find(CODE_WORD).map(|at| &body[at..]).unwrap_or_default();
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len());
    format!("{ANSWER} {of} {}", &word[..end])
}

impl Answer {
    fn json(value: &Value) -> Self {
        Self { body: value.to_string(), kind: JSON }
    }

    /// Server-sent events without names.
    fn events(values: &[Value], end: &str) -> Self {
        let events: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
        Self { body: events + end, kind: EVENTS }
    }
}
