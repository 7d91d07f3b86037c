//! What a container asks of a token endpoint, and what it is told instead of the provider's answer. Pure.
//!
//! Only the refresh grant (RFC 6749 section 6) with the stand-in of an account that the container was granted is answered.
//! A grant that logs in is for a container whose operator armed it; every other one would bring a new login into the
//! container, real or an attacker's.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value, json};
use understudy_policies::unique;

use super::keeper::RenewError;
use super::record::{Account, Millis, Token};
use crate::credentials::catalogue::Encoding;
use crate::credentials::{Grants, Secret, Vault};

/// Tokens with less time left are renewed before a container is told of them.
const FRESH: u64 = 60_000;
/// Grants that bring a new login.
const LOGINS: [&str; 2] = ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"];

/// What the body of a request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// New tokens for this account: the name of its secret.
    Renew(String),
    /// The stand-in of an account that the container was not granted: the name of its secret.
    NotGranted(String),
    /// A refresh token that is no stand-in.
    Foreign,
    /// A login: an authorization code, or a device that was let in (RFC 6749 section 4.1.3, RFC 8628 section 3.4).
    Login(Grant),
    /// Another grant, by its name if it has one.
    Other(Option<String>),
    Malformed,
}

/// What the request of a program that logs in says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub name: String,
    /// As whom the program asks.
    pub client_id: Option<String>,
    /// What else an installed program says of itself.
    pub client_secret: Option<Token>,
    /// How its body is written.
    pub encoding: Encoding,
}

/// An answer to a container (RFC 6749 section 5).
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub body: Value,
}

impl Asked {
    /// `content_type` decides how it is read: form if it says so, else JSON.
    pub fn read(vault: &Vault, grants: &Grants, content_type: &str, body: &[u8]) -> Self {
        let Some((encoding, fields)) = read(content_type, body) else { return Self::Malformed };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        match (text("grant_type"), text("refresh_token")) {
            (Some("refresh_token"), Some(token)) => Self::of_token(vault, grants, token),
            (Some(grant), _) if LOGINS.contains(&grant) => Self::Login(Grant::of(&fields, encoding)),
            (grant, _) => Self::Other(grant.map(shown)),
        }
    }

    /// The same where a login brings a key, however its request is called; a key is not renewed.
    pub fn read_for_key(content_type: &str, body: &[u8]) -> Self {
        // Some say all that they have to say in their head.
        let empty = || body.is_empty().then(|| (Encoding::Json, Map::new()));
        let Some((encoding, fields)) = read(content_type, body).or_else(empty) else {
            return Self::Malformed;
        };
        match fields.get("grant_type").and_then(Value::as_str) {
            Some("refresh_token") => Self::Foreign,
            _ => Self::Login(Grant::of(&fields, encoding)),
        }
    }

    fn of_token(vault: &Vault, grants: &Grants, token: &str) -> Self {
        let is_of = |secret: &&Secret| secret.declaration().is_part() && secret.answers_to(token.as_bytes());
        let Some(part) = vault.secrets().iter().find(is_of) else { return Self::Foreign };
        let name = part.name().split('/').next().unwrap_or_default().to_owned();
        // That of an ID token is no refresh token.
        match part.name().ends_with("/refresh") {
            true if grants.contains(&name) => Self::Renew(name),
            true => Self::NotGranted(name),
            false => Self::Foreign,
        }
    }
}

impl Grant {
    fn of(fields: &Map<String, Value>, encoding: Encoding) -> Self {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        Self {
            name: text("grant_type").map_or_else(|| "for a key".to_owned(), shown),
            client_id: text("client_id").map(str::to_owned),
            client_secret: text("client_secret").map(|secret| Token::new(secret.to_owned())),
            encoding,
        }
    }
}

/// A form if its type says so, else JSON.
fn read(content_type: &str, body: &[u8]) -> Option<(Encoding, Map<String, Value>)> {
    match content_type.to_ascii_lowercase().contains("x-www-form-urlencoded") {
        true => Some((Encoding::Form, of_form(body)?)),
        false => Some((Encoding::Json, of_json(body)?)),
    }
}

/// A grant's name is a word or a URI; anything else may be what must not be repeated.
fn shown(grant: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | ':' | '-');
    if grant.len() <= 64 && grant.chars().all(plain) { grant.to_owned() } else { "another".to_owned() }
}

/// None if a field is there twice, as in a form.
fn of_json(body: &[u8]) -> Option<Map<String, Value>> {
    match unique::parse(body) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// None if a field is there twice: it could be another one for whoever reads it (RFC 6749 section 3.2).
fn of_form(body: &[u8]) -> Option<Map<String, Value>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut fields = Map::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned()).ok()
        };
        if fields.insert(decoded(name)?, Value::from(decoded(value)?)).is_some() {
            return None;
        }
    }
    Some(fields)
}

/// Whether new tokens are to be got before a container is told of the account's.
pub fn is_stale(account: &Account, now: Millis) -> bool {
    account.ended.is_none() && account.expires.is_some_and(|expires| expires.since(now) < fresh(account))
}

/// At most half of a token's life, so that a short one is not renewed each time.
fn fresh(account: &Account) -> u64 {
    let life = account.expires.map_or(0, |expires| expires.since(account.renewed));
    FRESH.min(life / 2)
}

/// Stand-ins, what the provider said beside its tokens, and the true lifetime.
pub fn tokens(account: &Account, now: Millis) -> Reply {
    if let Some(field) = &account.undeclared {
        let told = format!(
            "the provider's answer has a field `{field}` that looks like a token and is not known, so no answer is passed on; the operator can add it to `harmless` of the kind in the catalogue"
        );
        return error(502, "server_error", &told);
    }
    let stand_ins = &account.stand_ins;
    let mut body = account.said.clone();
    let mut tell = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    tell("access_token", json!(stand_ins.access));
    if let Some(refresh) = &stand_ins.refresh {
        tell("refresh_token", json!(refresh));
    }
    if let Some(id) = &stand_ins.id {
        tell("id_token", json!(id));
    }
    tell("token_type", json!("Bearer"));
    if let Some(expires) = account.expires {
        tell("expires_in", json!(expires.since(now) / 1000));
    }
    if !account.scopes.is_empty() {
        tell("scope", json!(account.scopes.join(" ")));
    }
    Reply { status: 200, body: Value::Object(body) }
}

/// The stand-in of a key in its field, and what the provider said beside it.
pub fn key(account: &Account, field: &str) -> Reply {
    let mut body = account.said.clone();
    body.insert(field.to_owned(), json!(account.stand_ins.access));
    Reply { status: 200, body: Value::Object(body) }
}

/// Why there are none.
pub fn failed(failure: &RenewError) -> Reply {
    match failure {
        // `invalid_grant` makes programs forget their login, and this one comes back with the operator's next import.
        RenewError::Ended { account, .. } => {
            let told = format!(
                "{failure}; the operator must log in again and run: understudy login import FORMAT --account {account} < FILE. Trying again will not help"
            );
            error(401, "login_required", &told)
        }
        RenewError::Later { .. } => error(503, "temporarily_unavailable", &failure.to_string()),
    }
}

/// The same for a request that is no refresh.
pub fn refused(told: &str) -> Reply {
    error(403, "access_denied", told)
}

/// What the provider said holds a real token in a field that is not for one.
pub fn repeated() -> Reply {
    let told =
        "the provider's answer repeats a token in a field where none is expected, so no answer is passed on";
    error(502, "server_error", told)
}

/// The provider's own word, with which a program goes on asking or gives up (RFC 8628 section 3.5). Nothing else of its answer.
pub fn said(status: u16, code: &str) -> Reply {
    Reply { status, body: json!({ "error": code }) }
}

/// A login that came to nothing, and not by the program's fault.
pub fn login_failed(told: &str) -> Reply {
    error(502, "server_error", told)
}

impl Reply {
    /// As a form (RFC 6749 appendix B): all that is in it is a text or a number, or is left out.
    pub fn as_form(&self) -> String {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let fields = self.body.as_object().into_iter().flatten();
        let pairs = fields.filter_map(|(name, value)| Some((name, text(value)?)));
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        pairs
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(&value)))
            .collect::<Vec<_>>()
            .join("&")
    }
}

pub fn malformed() -> Reply {
    error(400, "invalid_request", "the request is neither a form nor a JSON object, or names a field twice")
}

fn error(status: u16, code: &str, told: &str) -> Reply {
    let body = json!({ "error": code, "error_description": format!("understudy: {told}") });
    Reply { status, body }
}

#[cfg(test)]
#[path = "broker/tests.rs"]
mod tests;
