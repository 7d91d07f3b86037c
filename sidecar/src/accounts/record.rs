//! One account as it is stored. Tokens do not print, and are wiped when they are dropped.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

const VERSION: u32 = 1;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Record {
    pub(super) version: u32,
    /// Of the catalogue.
    pub kind: String,
    /// One more with each change of the tokens.
    pub generation: u64,
    pub access: Token,
    /// None: it is a key, which is good until somebody revokes it, and is never renewed.
    pub refresh: Option<Token>,
    pub id: Option<Token>,
    /// When the access token expires. None: nobody said.
    pub expires: Option<Millis>,
    /// When the sidecar got these tokens; 0 if they were imported.
    pub renewed: Millis,
    pub scopes: Vec<String>,
    /// What else is known, by the names that the catalogue gives; no secret among it.
    pub facts: Map<String, Value>,
    /// What the last answer said beside tokens.
    pub said: Map<String, Value>,
    /// A field of it that looks like a token and that the catalogue does not know. Nothing of that answer is kept.
    pub undeclared: Option<String>,
    /// Of whom two records are of one account.
    pub identity: Option<String>,
    pub stand_ins: StandIns,
    /// The provider's word for why this login is over. Only another login helps.
    pub ended: Option<String>,
    /// Of the installed program that logged in (RFC 8252 section 8.5), where it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Token>,
    /// The client that it is renewed as, if it is not the kind's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Random, and the same for as long as it is the same account under that name. None: of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What is known of an account, without its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub name: String,
    /// As [`Record::uid`].
    pub uid: Option<String>,
    pub generation: u64,
    pub expires: Option<Millis>,
    pub renewed: Millis,
    pub scopes: Vec<String>,
    pub facts: Map<String, Value>,
    pub said: Map<String, Value>,
    pub undeclared: Option<String>,
    pub stand_ins: StandIns,
    pub ended: Option<String>,
}

/// What containers hold instead. They stay the same when tokens change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIns {
    pub access: String,
    /// None: it is a key.
    pub refresh: Option<String>,
    pub id: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(Zeroizing<String>);

/// Since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("it is not a whole record of an account: {0}; import the login again")]
    Json(String),
    #[error("it is of version {0}, and this program knows version {VERSION}; use the newer program")]
    Version(u64),
}

/// The tokens of a login, before it is an account.
pub struct Tokens {
    pub access: Token,
    pub refresh: Option<Token>,
    pub id: Option<Token>,
}

impl Record {
    pub fn new(kind: &str, tokens: Tokens, stand_ins: StandIns) -> Self {
        let Tokens { access, refresh, id } = tokens;
        Self {
            version: VERSION,
            kind: kind.to_owned(),
            generation: 1,
            access,
            refresh,
            id,
            expires: None,
            renewed: Millis(0),
            scopes: Vec::new(),
            facts: Map::new(),
            said: Map::new(),
            undeclared: None,
            identity: None,
            stand_ins,
            ended: None,
            client_secret: None,
            client_id: None,
            uid: None,
        }
    }

    /// The same as the account of that uid.
    #[must_use]
    pub fn of_uid(self, uid: String) -> Self {
        Self { uid: Some(uid), ..self }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        // serde_json quotes what it did not expect, which may be a token.
        let told = |error: &serde_json::Error| format!("line {} column {}", error.line(), error.column());
        let version = serde_json::from_slice::<Versioned>(bytes);
        let version = version.map_err(|error| RecordError::Json(told(&error)))?.version;
        if version != u64::from(VERSION) {
            return Err(RecordError::Version(version));
        }
        serde_json::from_slice(bytes).map_err(|error| RecordError::Json(told(&error)))
    }

    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, RecordError> {
        let bytes = serde_json::to_vec(self).map_err(|error| RecordError::Json(error.to_string()))?;
        Ok(Zeroizing::new(bytes))
    }

    pub fn account(&self, name: &str) -> Account {
        let mut facts = self.facts.clone();
        facts.insert("scopes".to_owned(), Value::from(self.scopes.clone()));
        Account {
            name: name.to_owned(),
            uid: self.uid.clone(),
            generation: self.generation,
            expires: self.expires,
            renewed: self.renewed,
            scopes: self.scopes.clone(),
            facts,
            said: self.said.clone(),
            undeclared: self.undeclared.clone(),
            stand_ins: self.stand_ins.clone(),
            ended: self.ended.clone(),
        }
    }

    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        [&self.access].into_iter().chain(&self.refresh).chain(&self.id)
    }
}

impl Token {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Every use of this is a place where the real value could get out.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// An account that a container was given because its own program logged in to it: another one of that name is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnAccount {
    pub name: String,
    /// As [`Record::uid`].
    pub uid: String,
}

/// A [`Record::uid`] that no other account has.
///
/// # Errors
/// The system gives no random numbers.
pub fn new_uid() -> Result<String, ring::error::Unspecified> {
    let mut uid = [0_u8; 16];
    SystemRandom::new().fill(&mut uid)?;
    Ok(uid.map(|byte| format!("{byte:02x}")).concat())
}

/// In a time that depends on the lengths only.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        let differences = own.iter().zip(other).fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
        own.len() == other.len() && differences == 0
    }
}

impl Eq for Token {}

impl Millis {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("kind", &self.kind)
            .field("generation", &self.generation)
            .field("expires", &self.expires)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let token = |text: &str| Token::new(text.to_owned());
        let tokens = Tokens { access: token("the-access"), refresh: Some(token("the-refresh")), id: None };
        Record::new("chatgpt-account", tokens, StandIns::default())
    }

    #[test]
    fn it_comes_back_as_it_was_and_does_not_print() {
        let record = record();
        let again = Record::parse(&record.to_bytes().unwrap()).unwrap();
        assert_eq!(again.access.expose(), "the-access");
        assert_eq!(again.refresh.as_ref().unwrap().expose(), "the-refresh");
        assert!(!format!("{again:?}{:?}", again.access).contains("the-"));
    }

    #[test]
    fn what_is_no_record_is_told_without_what_is_in_it() {
        let whole = record().to_bytes().unwrap();
        let cut = &whole[..whole.len() - 9];
        let newer = String::from_utf8(whole.to_vec()).unwrap().replace("\"version\":1", "\"version\":2");
        let wrong = r#"{"version":1,"kind":"a","access":["sk-secret"]}"#;
        for (bytes, said) in [
            (cut, "not a whole record"),
            (b"", "not a whole record"),
            (newer.as_bytes(), "version 2"),
            (wrong.as_bytes(), "not a whole record"),
        ] {
            let error = Record::parse(bytes).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("sk-secret"), "{error}");
        }
    }
}
