//! A provider of accounts as strict as providers are: a refresh token can be used once (RFC 9700 section 4.14), and one that
//! is used again ends the whole login. It needs nothing but time: tests of other crates include this file.
//!
//! Tokens name their login and their number, so that a provider that is started later takes those of a login file too:
//! `rt_Fwork-N0-…` is the refresh token of login `work` before any renewal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest;
use serde_json::{Value, json};

/// What a login's tokens look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// JSON Web Tokens, with an ID token.
    ChatGpt,
    /// Words.
    Claude,
    /// Words; the refresh token stays the same.
    Google,
}

#[derive(Clone, Debug)]
pub struct Tokens {
    pub access: String,
    pub refresh: String,
    pub id: Option<String>,
}

/// All logins of the provider.
#[derive(Debug)]
pub struct Accounts {
    pub lifetime: Duration,
    logins: Mutex<BTreeMap<String, Login>>,
    /// Status and body of the next answers of the token endpoint, instead of its own.
    faults: Mutex<VecDeque<(u16, String)>>,
    /// For how long the refresh token before the last one is good yet, as some providers have it for answers that are lost.
    grace: Mutex<Duration>,
    /// How many of the next answers never arrive.
    lost: Mutex<u32>,
    /// How often each word of [`Self::refuses`] was seen.
    refused: Mutex<BTreeMap<String, u32>>,
}

#[derive(Clone, Debug, Default)]
pub struct Login {
    /// Of the refresh token that is good now.
    pub number: u64,
    /// It was used again, so nothing of this login is good any more.
    pub revoked: bool,
    pub reuses: u64,
    /// When each access token was made.
    made: BTreeMap<u64, SystemTime>,
}

pub const ACCOUNT_ID: &str = "acc-mock";

impl Scheme {
    fn refresh(self) -> &'static str {
        match self {
            Self::ChatGpt => "rt_",
            Self::Claude => "sk-ant-ort01-",
            Self::Google => "1//",
        }
    }
}

/// The tokens of a login after so many renewals; access tokens say that they are good for `lifetime`.
pub fn tokens(scheme: Scheme, login: &str, number: u64, lifetime: Duration) -> Tokens {
    let word = |prefix: &str| {
        let hash = digest::digest(&digest::SHA256, format!("{prefix} {login} {number}").as_bytes());
        format!("{prefix}F{login}-N{number}-{}", BASE64_URL_SAFE_NO_PAD.encode(hash))
    };
    if scheme == Scheme::Google {
        return Tokens { access: word("ya29."), refresh: format!("1//F{login}-N0-the-one"), id: None };
    }
    let refresh = word(scheme.refresh());
    if scheme == Scheme::Claude {
        return Tokens { access: word("sk-ant-oat01-"), refresh, id: None };
    }
    let expires = SystemTime::now() + lifetime;
    let seconds = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let auth = json!({ "chatgpt_account_id": ACCOUNT_ID, "chatgpt_plan_type": "plus", "chatgpt_user_id": "user-mock",
        "user_id": "user-mock" });
    let claims = |audience: &str| {
        json!({ "iss": "https://auth.openai.com", "aud": [audience], "exp": seconds, "login": login, "number": number,
            "email": "mock@example.invalid", "https://api.openai.com/auth": auth })
    };
    let jwt = |claims: &Value| {
        let encoded = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
        let signature = digest::digest(&digest::SHA512, claims.to_string().as_bytes());
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": "mock" });
        format!("{}.{}.{}", encoded(&header), encoded(claims), BASE64_URL_SAFE_NO_PAD.encode(signature))
    };
    let (access, id) = (claims("https://api.openai.com/v1"), claims("app_EMoamEEZ73f0CkXaXp7hrann"));
    Tokens { access: jwt(&access), refresh, id: Some(jwt(&id)) }
}

/// Whether it is the token of an account, genuine or not.
pub fn is_of_account(authorization: &str) -> bool {
    let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
    known(token).is_some()
}

impl Accounts {
    pub fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            logins: Mutex::default(),
            faults: Mutex::default(),
            grace: Mutex::default(),
            lost: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    pub fn allow_reuse_for(&self, time: Duration) {
        *self.grace.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// The last renewal of a login is forgotten, as by a provider that was set back to an older state.
    pub fn forget_renewal(&self, login: &str) {
        let mut logins = self.lock();
        let login = logins.entry(login.to_owned()).or_default();
        login.number = login.number.saturating_sub(1);
    }

    /// The token endpoint does what it is asked, and its next answers do not arrive.
    pub fn lose(&self, answers: u32) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// Whether this answer is one of them.
    pub fn is_lost(&self) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = *lost > 0;
        *lost = lost.saturating_sub(1);
        is_lost
    }

    /// What is known of a login; nothing before it was used.
    pub fn login(&self, login: &str) -> Login {
        self.lock().get(login).cloned().unwrap_or_default()
    }

    /// Answers the next request to the token endpoint with this.
    pub fn fault(&self, status: u16, body: impl Into<String>) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back((status, body.into()));
    }

    /// The token endpoint: status and body.
    pub fn token(&self, body: &[u8]) -> (u16, String) {
        if let Some(fault) = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            return fault;
        }
        let refused = |status: u16, code: &str| (status, json!({ "error": { "code": code } }).to_string());
        let request: Value = serde_json::from_slice(body).unwrap_or_else(|_| form(body));
        let code = request["code"].as_str().or(request["device_code"].as_str());
        if let Some(login) = code.and_then(|code| code.strip_prefix("code-of-")) {
            // As Claude Code calls itself.
            let claude = request["client_id"].as_str().is_some_and(|client| client.starts_with("9d1c250a-"));
            let scheme = if claude { Scheme::Claude } else { Scheme::ChatGpt };
            return (200, self.told(scheme, tokens(scheme, login, 0, self.lifetime)).to_string());
        }
        if request["grant_type"] != "refresh_token" {
            // A login of whoever sits in front of it.
            let tokens = tokens(Scheme::ChatGpt, "attacker", 0, self.lifetime);
            let body = json!({ "access_token": tokens.access, "refresh_token": tokens.refresh });
            return (200, body.to_string());
        }
        let text = request["refresh_token"].as_str().unwrap_or_default();
        let scheme = [Scheme::ChatGpt, Scheme::Claude, Scheme::Google]
            .into_iter()
            .find(|s| text.starts_with(s.refresh()));
        let Some((scheme, (name, number))) = scheme.and_then(|s| Some((s, numbered(text, s.refresh())?)))
        else {
            return refused(400, "invalid_grant");
        };
        let mut logins = self.lock();
        let login = logins.entry(name.clone()).or_default();
        let genuine = tokens(scheme, &name, number, self.lifetime).refresh == text;
        if login.revoked || !genuine {
            return refused(401, "refresh_token_invalidated");
        }
        if scheme == Scheme::Google {
            login.number += 1;
            login.made.insert(login.number, SystemTime::now());
            return (200, self.told(scheme, tokens(scheme, &name, login.number, self.lifetime)).to_string());
        }
        let grace = *self.grace.lock().unwrap_or_else(PoisonError::into_inner);
        let made = login.made.get(&login.number).and_then(|made| made.elapsed().ok());
        let again = number + 1 == login.number && made.is_some_and(|age| age < grace);
        if number > login.number {
            return refused(400, "invalid_grant");
        }
        if number != login.number && !again {
            login.revoked = true;
            login.reuses += 1;
            return refused(401, "refresh_token_reused");
        }
        if !again {
            login.number += 1;
            login.made.insert(login.number, SystemTime::now());
        }
        (200, self.told(scheme, tokens(scheme, &name, login.number, self.lifetime)).to_string())
    }

    /// What a program hears of its tokens.
    fn told(&self, scheme: Scheme, new: Tokens) -> Value {
        let mut answer = json!({ "token_type": "Bearer", "access_token": new.access,
            "expires_in": self.lifetime.as_secs() });
        if scheme != Scheme::Google {
            answer["refresh_token"] = json!(new.refresh);
        }
        match (scheme, new.id) {
            (Scheme::Google, _) => answer["scope"] = json!("https://www.googleapis.com/auth/cloud-platform"),
            (Scheme::ChatGpt, id) => answer["id_token"] = json!(id),
            (Scheme::Claude, _) => {
                answer["scope"] = json!("user:inference user:profile user:sessions:claude_code");
                answer["account"] = json!({ "uuid": "00000000-0000-4000-8000-000000000002",
                    "email_address": "mock@example.invalid" });
                answer["organization"] = json!({ "uuid": "00000000-0000-4000-8000-000000000001" });
            }
        }
        answer
    }

    /// Whether a request with this `Authorization` is answered.
    pub fn takes(&self, authorization: &str) -> bool {
        let Some(token) = authorization.strip_prefix("Bearer ") else { return false };
        let Some((name, number)) = known(token) else { return false };
        let mut logins = self.lock();
        let login = logins.entry(name).or_default();
        // The one of a login file is good from its first use.
        let made = *login.made.entry(number).or_insert_with(SystemTime::now);
        let age = made.elapsed().unwrap_or_default();
        !login.revoked && number <= login.number && age < self.lifetime
    }

    /// Whether a request with a token that is good is answered 401 all the same: with `codeword-refused-COUNT-NAME` in it that happens
    /// so many times.
    pub fn refuses(&self, body: &[u8]) -> bool {
        const MARK: &str = "codeword-refused-";
        let body = String::from_utf8_lossy(body);
        let Some(word) = body.find(MARK).map(|at| &body[at + MARK.len()..]) else { return false };
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len());
        let count = word.split('-').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = refused.entry(word[..end].to_owned()).or_default();
        *seen += 1;
        *seen <= count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Login>> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Login and number of an access token.
fn known(token: &str) -> Option<(String, u64)> {
    numbered(token, "sk-ant-oat01-").or_else(|| numbered(token, "ya29.")).or_else(|| claimed(token))
}

/// Login and number of a word.
fn numbered(text: &str, prefix: &str) -> Option<(String, u64)> {
    let (login, rest) = text.strip_prefix(prefix)?.strip_prefix('F')?.split_once("-N")?;
    Some((login.to_owned(), rest.split_once('-')?.0.parse().ok()?))
}

/// Login and number of a JSON Web Token whose signature is right.
fn claimed(token: &str) -> Option<(String, u64)> {
    let mut parts = token.split('.').skip(1);
    let (claims, signature) = (parts.next()?, parts.next()?);
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let right = digest::digest(&digest::SHA512, claims.to_string().as_bytes());
    let genuine = BASE64_URL_SAFE_NO_PAD.encode(right) == signature;
    genuine.then_some((claims["login"].as_str()?.to_owned(), claims["number"].as_u64()?))
}

/// Of words that need no decoding but of slashes, as tokens are.
fn form(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), Value::from(value.replace("%2F", "/"))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
