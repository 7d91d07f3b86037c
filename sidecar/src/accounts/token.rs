//! The exchange with a token endpoint: the request for new tokens (RFC 6749 section 6) and its answers (sections 5.1 and
//! 5.2). Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::import::{self, Login};
use super::record::{Millis, Record, Token, Tokens};
use crate::credentials::catalogue::{Encoding, Kind, Oauth};

/// Of an answer; no provider needs as much.
pub const MOST: usize = 1 << 16;
/// Of an account that says nothing of its lifetime, so that it is asked again at all.
const UNKNOWN_LIFETIME: u64 = 3600;
/// Ten years: a number beyond it is a mistake.
const LONGEST: u64 = 10 * 366 * 86_400;

/// New tokens.
pub struct Answer {
    access: Token,
    /// None: the one that was sent stays good (RFC 6749 section 6).
    refresh: Option<Token>,
    id: Option<Token>,
    /// In seconds.
    expires_in: Option<u64>,
    scopes: Option<Vec<String>>,
    /// What else was said, and is no token.
    said: Map<String, Value>,
}

/// Why there are none. Nothing of an answer is in it but a code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the provider ended this login ({0})")]
    Ended(String),
    #[error("the provider refused to renew it: {code} (status {status})")]
    Code { status: u16, code: String },
    #[error("the provider answered with status {0} and no reason")]
    Status(u16),
    #[error("the provider sent the request elsewhere (status {0}), which is not followed")]
    Redirect(u16),
    #[error("the provider's answer is not JSON")]
    NotJson,
    #[error("the provider's answer has no `{0}` that can be used")]
    NoToken(&'static str),
    #[error("the provider's answer is larger than {MOST} bytes")]
    TooLarge,
}

/// What is sent for `record`: its type, and the body. Nothing of what a client said when it asked for new tokens: one answer is
/// for all that share the account, and a `scope` of one of them could narrow it for the others (RFC 6749 section 6).
pub fn request(oauth: &Oauth, record: &Record, refresh: &Token) -> (&'static str, Zeroizing<Vec<u8>>) {
    // What the operator says goes before what the program that logged in said.
    let secret = oauth.client_secret.as_deref().or(record.client_secret.as_ref().map(Token::expose));
    let client = record.client_id.as_ref().unwrap_or(&oauth.client_id);
    let fields = [
        ("grant_type", Some("refresh_token")),
        ("refresh_token", Some(refresh.expose())),
        ("client_id", Some(client.as_str())),
        ("client_secret", secret),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    match oauth.encoding {
        Encoding::Json => {
            let object: Map<String, Value> =
                fields.map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
            ("application/json", Zeroizing::new(Value::Object(object).to_string().into_bytes()))
        }
        Encoding::Form => {
            let pairs = fields.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, FORM)));
            let body = pairs.collect::<Vec<_>>().join("&");
            ("application/x-www-form-urlencoded", Zeroizing::new(body.into_bytes()))
        }
    }
}

/// All but what RFC 3986 section 2.3 leaves as it is.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What the provider answered.
pub fn answer(oauth: &Oauth, status: u16, body: &[u8]) -> Result<Answer, Refused> {
    if body.len() > MOST {
        return Err(Refused::TooLarge);
    }
    let object = match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    };
    match status {
        200..300 => read(object.ok_or(Refused::NotJson)?),
        300..400 => Err(Refused::Redirect(status)),
        _ => Err(match object.as_ref().and_then(code) {
            // A server that is in trouble says nothing of the login.
            Some(code) if status < 500 && ends(oauth, &code) => Refused::Ended(code),
            Some(code) => Refused::Code { status, code },
            None => Refused::Status(status),
        }),
    }
}

fn ends(oauth: &Oauth, code: &str) -> bool {
    code == "invalid_grant" || oauth.ended.iter().any(|known| known == code)
}

/// `{"error": "invalid_grant"}`, or what some providers make of it: an object with a `code`.
pub(super) fn code(object: &Map<String, Value>) -> Option<String> {
    let error = object.get("error");
    let of_object = error.and_then(|error| error.get("code").or_else(|| error.get("type")));
    let code = of_object.or(error).or_else(|| object.get("code"))?.as_str()?;
    // It ends up in logs, and in containers.
    is_words(code).then(|| code.to_owned())
}

/// A few short words with hardly a digit: no token, key or UUID is.
fn is_words(code: &str) -> bool {
    let separator = |c: char| matches!(c, '_' | '-' | '.');
    let mut words = code.split(separator);
    let digits = code.bytes().filter(u8::is_ascii_digit).count();
    let word = |word: &str| word.len() <= 20 && word.bytes().all(|b| b.is_ascii_alphanumeric());
    !code.is_empty() && code.len() <= 64 && digits <= 6 && words.all(word)
}

fn read(mut object: Map<String, Value>) -> Result<Answer, Refused> {
    let mut token = |name: &'static str| match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if is_token(&text) => Ok(Some(Token::new(text))),
        Some(_) => Err(Refused::NoToken(name)),
    };
    let (access, refresh, id) = (token("access_token")?, token("refresh_token")?, token("id_token")?);
    let access = access.ok_or(Refused::NoToken("access_token"))?;
    let expires_in = object.remove("expires_in").as_ref().and_then(seconds);
    let scopes = object.get("scope").and_then(Value::as_str);
    let scopes = scopes.map(|scopes| scopes.split_whitespace().map(str::to_owned).collect());
    let expires_in = expires_in.filter(|seconds| (1..=LONGEST).contains(seconds));
    // Stand-ins are told for these, and an error is none of an answer's business.
    for name in ["token_type", "error"] {
        object.remove(name);
    }
    Ok(Answer { access, refresh, id, expires_in, scopes, said: object })
}

fn seconds(value: &Value) -> Option<u64> {
    // Some send it as text.
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// In seconds, as a token itself says (RFC 7519 sections 4.1.4 and 4.1.6): by the provider's clock, as ours may be far off, and
/// new tokens that seem to be over would be renewed without end.
fn lifetime_of(token: &Token, now: Millis) -> Option<u64> {
    let claims = crate::credentials::stand_in::jwt::claims(token.expose())?;
    let issued = claims.get("iat").and_then(Value::as_f64).map(|issued| issued as u64);
    let expires = import::expiry_of(token)?.0 / 1000;
    let lifetime = expires.checked_sub(issued.unwrap_or(now.0 / 1000))?;
    (1..=LONGEST).contains(&lifetime).then_some(lifetime)
}

/// What a header can hold, and long enough to be told from other words.
fn is_token(text: &str) -> bool {
    crate::credentials::SecretValue::from_bytes(text.as_bytes()).is_ok()
}

impl Answer {
    /// A new login, and what was said beside it. Of one that could not be kept or told, why.
    pub(super) fn login<'k>(
        self,
        kind: &'k Kind,
        oauth: &Oauth,
        now: Millis,
    ) -> Result<(Login<'k>, Map<String, Value>), String> {
        let Self { access, refresh, id, expires_in, scopes, said } = self;
        let refresh = refresh.ok_or("the provider gave no refresh token, so the login cannot be kept")?;
        if let Some(field) = undeclared(oauth, &said) {
            return Err(format!(
                "the provider's answer has a field `{field}` that looks like a token and is not known; the operator can add it to `harmless` of the kind in the catalogue"
            ));
        }
        let lifetime = expires_in.or_else(|| lifetime_of(&access, now)).unwrap_or(UNKNOWN_LIFETIME);
        let told = Value::Object(said);
        let facts = answered_facts(oauth, &told, id.as_ref());
        let identity = kind.identity().and_then(|name| facts.get(name)?.as_str()).map(str::to_owned);
        let login = Login {
            kind,
            tokens: Tokens { access, refresh: Some(refresh), id },
            expires: Some(Millis(now.0.saturating_add(lifetime * 1000))),
            scopes: scopes.unwrap_or_default(),
            facts,
            identity,
            client_id: None,
        };
        match told {
            Value::Object(said) => Ok((login, said)),
            _ => Ok((login, Map::new())),
        }
    }
}

impl Record {
    /// With the tokens of `answer`, which came at `now`.
    #[must_use]
    pub fn renewed(&self, oauth: &Oauth, answer: Answer, now: Millis) -> Self {
        let Answer { access, refresh, id, expires_in, scopes, said } = answer;
        let lifetime = expires_in.or_else(|| lifetime_of(&access, now)).unwrap_or(UNKNOWN_LIFETIME);
        let expires = Millis(now.0.saturating_add(lifetime * 1000));
        let mut record = Self {
            generation: self.generation + 1,
            access,
            expires: Some(expires),
            renewed: now,
            ended: None,
            ..self.clone()
        };
        if refresh.is_some() {
            record.refresh = refresh;
        }
        if let Some(id) = id.filter(|_| record.id.is_some()) {
            record.id = Some(id);
        }
        if let Some(scopes) = scopes {
            record.scopes = scopes;
        }
        let told = Value::Object(said);
        record.facts.extend(answered_facts(oauth, &told, None));
        record.said = match told {
            Value::Object(said) => said,
            _ => Map::new(),
        };
        record.undeclared = undeclared(oauth, &record.said);
        if record.undeclared.is_some() {
            record.said = Map::new();
        }
        record
    }

    /// With the provider's word for why the login is over.
    #[must_use]
    pub fn ended(&self, code: &str) -> Self {
        Self { generation: self.generation + 1, ended: Some(code.to_owned()), ..self.clone() }
    }
}

/// What an answer and its ID token tell of the account.
pub(super) fn answered_facts(oauth: &Oauth, told: &Value, id: Option<&Token>) -> Map<String, Value> {
    let claims = id.and_then(|id| crate::credentials::stand_in::jwt::claims(id.expose())).map(Value::Object);
    import::facts(&oauth.answer_facts, told, claims.as_ref())
}

/// The first field of `said`, by its path, that looks like a token which nobody declared.
fn undeclared(oauth: &Oauth, said: &Map<String, Value>) -> Option<String> {
    said.iter().find_map(|(name, value)| {
        let declared = oauth.harmless.contains(name);
        if declared { None } else { looks_like_a_token(name, value) }
    })
}

pub(crate) fn looks_like_a_token(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (telling_name(name) || telling_value(text)).then(|| name.to_owned()),
        Value::Array(items) => items.iter().find_map(|item| looks_like_a_token(name, item)),
        Value::Object(object) => {
            object.iter().find_map(|(key, value)| Some(format!("{name}/{}", looks_like_a_token(key, value)?)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

pub(crate) fn telling_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["token", "secret", "password", "credential", "assertion", "jwt", "api_key", "apikey", "cookie"]
        .iter()
        .any(|part| name.contains(part))
}

/// A long word of letters and digits that is no UUID, name, address or list of words.
pub(crate) fn telling_value(text: &str) -> bool {
    let letter =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b'~');
    let uuid = text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let mixed = text.bytes().any(|b| b.is_ascii_digit()) && text.bytes().any(|b| b.is_ascii_alphabetic());
    text.len() >= 24 && text.bytes().all(letter) && mixed && !uuid
}

#[cfg(test)]
#[path = "token/tests.rs"]
mod tests;
