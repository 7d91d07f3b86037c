//! Login files of programs: what an account is made of. Pure.

mod document;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::document::Broken;
use super::record::{Millis, Record, StandIns, Token, Tokens};
use crate::credentials::catalogue::{Catalogue, Kind, LoginFile};
use crate::credentials::stand_in::jwt;
use crate::credentials::{InstallationKey, SecretValue, stand_in};
use understudy_policies::document::closest;
use understudy_policies::is_plain;

/// Of a login file; none is as large.
pub const MOST: usize = 1 << 20;
/// Numbers below are seconds since the epoch, those above milliseconds: the year 5138, or 1973.
const SECONDS_BELOW: u64 = 100_000_000_000;
/// The year 5138 in milliseconds.
const NO_TIME: u64 = SECONDS_BELOW * 1000;

/// What a login file says.
pub struct Login<'c> {
    pub kind: &'c Kind,
    pub(super) tokens: Tokens,
    pub(super) expires: Option<Millis>,
    pub(super) scopes: Vec<String>,
    pub(super) facts: Map<String, Value>,
    pub(super) identity: Option<String>,
    /// As whom it is to be renewed, if that is not the kind's usual client.
    pub(super) client_id: Option<String>,
}

/// Nothing of the file is in it but names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("there is no format `{name}`{}; known are: {known}", meant.as_ref().map_or(String::new(), |m| format!(", did you mean `{m}`?")))]
    Format { name: String, meant: Option<String>, known: String },
    #[error("it is empty; give the file on standard input, as `< auth.json` (with podman exec: -i)")]
    Empty,
    #[error("it is larger than 1 MiB, so it is no login file")]
    TooLarge,
    #[error("it breaks off in line {0}: copy the whole file")]
    Truncated(usize),
    #[error("it is not {0} (line {1})")]
    Not(&'static str, usize),
    #[error(
        "it has a field twice (line {0}), and which of the two its program takes is not known: leave one of them"
    )]
    Twice(usize),
    #[error("it has no `{pointer}`, so it is not {what} of a version that is known{}", hint.as_ref().map_or(String::new(), |hint| format!("; {hint}")))]
    Missing { pointer: String, what: String, hint: Option<String> },
    #[error("`{pointer}` is no token: {why}")]
    Token { pointer: String, why: String },
    #[error("`{0}` is no JSON Web Token, and the program would not take it")]
    NotJwt(String),
    #[error("`{0}` is no time: expected seconds or milliseconds since 1970")]
    Time(String),
    #[error("`{0}` is a stand-in: this file comes from a container; import the one that you logged in with")]
    StandIn(String),
    #[error(
        "account `{0}` is another one ({1}); give it another name with --account, or --replace what is there"
    )]
    Another(String, String),
    #[error(
        "account `{0}` holds another key already; give this one another name with --account, or --replace what is there"
    )]
    AnotherKey(String),
    #[error(
        "account `{0}` is stored already, and nothing tells whether this login is of the same account, as they do not both say whose they are; give it another name with --account, or --replace what is there"
    )]
    Unknown(String),
    #[error("`{0}` is no name of an OAuth client")]
    Client(String),
    #[error("the {0} is none of a shape that is known: {1}")]
    Shape(&'static str, String),
}

/// A format of login files: of one kind, or of several that one program keeps in one place.
pub struct Format<'c>(Vec<(&'c Kind, &'c LoginFile)>);

impl<'c> Format<'c> {
    pub fn named(catalogue: &'c Catalogue, name: &str) -> Result<Self, ImportError> {
        let found: Vec<_> = catalogue.login_files().filter(|(_, file)| file.name == name).collect();
        if found.is_empty() {
            let mut names: Vec<&str> = catalogue.login_files().map(|(_, file)| file.name.as_str()).collect();
            names.dedup();
            return Err(ImportError::Format {
                name: name.chars().take(40).collect(),
                meant: closest(name, names.iter().copied()).map(str::to_owned),
                known: names.join(", "),
            });
        }
        Ok(Self(found))
    }

    /// For people, with its usual path.
    pub fn what(&self) -> &str {
        self.0.first().map_or("", |(_, file)| &file.what)
    }

    /// What `bytes` say, as a file of that format: of the first kind that it can be of.
    pub fn read(&self, bytes: &[u8]) -> Result<Login<'c>, ImportError> {
        let bytes = content(bytes)?;
        let mut last = ImportError::Empty;
        for (kind, file) in &self.0 {
            match read(kind, file, bytes) {
                // Perhaps of the next kind.
                Err(error @ ImportError::Shape(..)) => last = error,
                read => return read,
            }
        }
        Err(last)
    }
}

/// Without an editor's byte order mark, and white space around it.
fn content(bytes: &[u8]) -> Result<&[u8], ImportError> {
    if bytes.len() > MOST {
        return Err(ImportError::TooLarge);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
    if bytes.is_empty() { Err(ImportError::Empty) } else { Ok(bytes) }
}

fn read<'c>(kind: &'c Kind, format: &LoginFile, bytes: &[u8]) -> Result<Login<'c>, ImportError> {
    let file = document::parse(format.syntax, bytes).map_err(|broken| match broken {
        Broken::Truncated(line) => ImportError::Truncated(line),
        Broken::Not(syntax, line) => ImportError::Not(syntax.what(), line),
        Broken::Twice(line) => ImportError::Twice(line),
    })?;
    let reader = Reader { file: &file, format };
    let access = reader.needed(&format.access)?;
    if !kind.shapes.is_empty() && !kind.shapes.iter().any(|shape| shape.pattern.fits(access.expose())) {
        let why = match kind.prefixes() {
            Some(prefixes) => format!("expected a whole one, which starts with {prefixes}"),
            None => "its length or its letters are others: copy the whole file".to_owned(),
        };
        return Err(ImportError::Shape("key", why));
    }
    let refresh = format.refresh.as_ref().map(|pointer| reader.needed(pointer)).transpose()?;
    let id = match &format.id {
        Some(pointer) => reader.token(pointer)?,
        None => None,
    };
    let claims = match (&id, &format.id) {
        (Some(id), Some(pointer)) => {
            Some(jwt::claims(id.expose()).ok_or_else(|| ImportError::NotJwt(pointer.clone()))?)
        }
        _ => None,
    };
    let said = format.expires.as_ref().map(|pointer| reader.time(pointer)).transpose()?.flatten();
    let facts = facts(&format.facts, &file, claims.map(Value::Object).as_ref());
    let identity = format.identity.as_ref().and_then(|name| facts.get(name)?.as_str());
    let renewed = refresh.is_some();
    let client_id = format.client_id.as_ref().map(|pointer| reader.client(pointer)).transpose()?.flatten();
    let usual = kind.oauth.as_ref().map(|oauth| &oauth.client_id);
    Ok(Login {
        client_id: client_id.filter(|client| Some(client) != usual),
        kind,
        expires: said.or_else(|| expiry_of(&access)).filter(|_| renewed),
        scopes: format.scopes.as_ref().map(|pointer| reader.words(pointer)).unwrap_or_default(),
        identity: identity.map(str::to_owned),
        facts,
        tokens: Tokens { access, refresh, id },
    })
}

/// When a token says itself that it expires: `exp` of a JWT (RFC 7519 section 4.1.4).
pub fn expiry_of(token: &Token) -> Option<Millis> {
    let exp = jwt::claims(token.expose())?
        .get("exp")
        .and_then(|exp| exp.as_u64().or(exp.as_f64().map(|exp| exp as u64)));
    exp.filter(|exp| (1..SECONDS_BELOW).contains(exp)).map(|exp| Millis(exp * 1000))
}

struct Reader<'f> {
    file: &'f Value,
    format: &'f LoginFile,
}

impl Reader<'_> {
    fn needed(&self, pointer: &str) -> Result<Token, ImportError> {
        self.token(pointer)?.ok_or_else(|| ImportError::Missing {
            pointer: pointer.to_owned(),
            what: self.format.what.clone(),
            hint: self.hint(),
        })
    }

    fn token(&self, pointer: &str) -> Result<Option<Token>, ImportError> {
        let wrong = |why: String| ImportError::Token { pointer: pointer.to_owned(), why };
        match self.file.pointer(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => {
                SecretValue::from_bytes(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
                Ok(Some(Token::new(text.clone())))
            }
            Some(_) => Err(wrong("it is not a text".to_owned())),
        }
    }

    /// RFC 6749 appendix A.1.
    fn client(&self, pointer: &str) -> Result<Option<String>, ImportError> {
        let plain =
            |text: &&String| (1..=200).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        match self.file.pointer(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if plain(&text) => Ok(Some(text.clone())),
            Some(_) => Err(ImportError::Client(pointer.to_owned())),
        }
    }

    /// What an older or another login is known by.
    fn hint(&self) -> Option<String> {
        let key = |pointer: &str| self.file.pointer(pointer).is_some_and(|key| !key.is_null());
        if key("/OPENAI_API_KEY") || key("/primaryApiKey") {
            return Some("it holds an API key: declare that as a secret, not as an account".to_owned());
        }
        self.format.hint.clone()
    }

    fn time(&self, pointer: &str) -> Result<Option<Millis>, ImportError> {
        let wrong = || ImportError::Time(pointer.to_owned());
        let number = match self.file.pointer(pointer) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => {
                let whole = number.as_f64().filter(|n| *n >= 1.0 && *n < NO_TIME as f64);
                number.as_u64().or(whole.map(|n| n as u64)).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        match number {
            0 => Err(wrong()),
            seconds if seconds < SECONDS_BELOW => Ok(Some(Millis(seconds * 1000))),
            millis if millis < NO_TIME => Ok(Some(Millis(millis))),
            _ => Err(wrong()),
        }
    }

    fn words(&self, pointer: &str) -> Vec<String> {
        match self.file.pointer(pointer) {
            Some(Value::String(words)) => words.split_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(words)) => {
                words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What is at `pointers` of a document and the claims of an ID token, by name.
pub(super) fn facts(
    pointers: &BTreeMap<String, String>,
    document: &Value,
    claims: Option<&Value>,
) -> Map<String, Value> {
    let found = pointers.iter().filter_map(|(name, pointer)| {
        let found = match pointer.strip_prefix("id:") {
            Some(claim) => claims?.pointer(claim)?,
            None => document.pointer(pointer)?,
        };
        found.is_string().then(|| (name.clone(), found.clone()))
    });
    found.collect()
}

impl Login<'_> {
    pub fn expires(&self) -> Option<Millis> {
        self.expires
    }

    /// As people know the account.
    pub fn whose(&self) -> Option<String> {
        whose(&self.facts)
    }

    /// The account `name`, in the place of `before`, whose stand-ins it keeps if it is the same one.
    pub fn record(
        self,
        name: &str,
        (key, catalogue): (&InstallationKey, &Catalogue),
        before: Option<&Record>,
        replace: bool,
    ) -> Result<Record, ImportError> {
        let tokens = [Some(&self.tokens.access), self.tokens.refresh.as_ref()];
        for (what, token) in ["access token", "refresh token"].into_iter().zip(tokens) {
            if token.is_some_and(|token| stand_in::mark::is_in(key, token.expose().as_bytes())) {
                return Err(ImportError::StandIn(what.to_owned()));
            }
        }
        let same = before.is_some_and(|old| self.is_of(old));
        if let Some(old) = before.filter(|_| !same && !replace) {
            let one_kind = old.kind == self.kind.name;
            return Err(match whose(&old.facts) {
                None if old.refresh.is_none() => ImportError::AnotherKey(name.to_owned()),
                _ if one_kind && (old.identity.is_none() || self.identity.is_none()) => {
                    ImportError::Unknown(name.to_owned())
                }
                whose => ImportError::Another(name.to_owned(), whose.unwrap_or_else(|| old.kind.clone())),
            });
        }
        let of_same = before.filter(|old| same && old.stand_ins.id.is_some() == self.tokens.id.is_some());
        let stand_ins = match of_same {
            Some(old) => old.stand_ins.clone(),
            None => self.stand_ins(name, key, catalogue)?,
        };
        let kept = before.filter(|_| same);
        let mut facts = kept.map(|old| old.facts.clone()).unwrap_or_default();
        facts.extend(self.facts);
        Ok(Record {
            generation: before.map_or(1, |old| old.generation + 1),
            expires: self.expires,
            scopes: self.scopes,
            facts,
            // A file does not say it, and without it no renewal might succeed.
            client_secret: kept.and_then(|old| old.client_secret.clone()),
            client_id: self.client_id,
            identity: self.identity.or_else(|| kept?.identity.clone()),
            uid: kept.and_then(|old| old.uid.clone()),
            ..Record::new(&self.kind.name, self.tokens, stand_ins)
        })
    }

    /// Whether it is of the same account. One that says nothing of whose it is, is another one if it is not the very same.
    fn is_of(&self, old: &Record) -> bool {
        let Tokens { access, refresh, .. } = &self.tokens;
        let told = self.identity.is_some() && old.identity.is_some();
        let very_same = match (refresh, &old.refresh) {
            (Some(refresh), Some(old)) => refresh == old,
            (None, None) => *access == old.access,
            _ => false,
        };
        old.kind == self.kind.name && if told { old.identity == self.identity } else { very_same }
    }

    fn stand_ins(
        &self,
        name: &str,
        key: &InstallationKey,
        catalogue: &Catalogue,
    ) -> Result<StandIns, ImportError> {
        let one = |part: &'static str, token: &Token| {
            let wrong = |error: String| ImportError::Shape(part, error);
            let value =
                SecretValue::from_bytes(token.expose().as_bytes()).map_err(|e| wrong(e.to_string()))?;
            let known = (self.kind, catalogue);
            stand_in::derive_of_account(key, &format!("account {name} {part}"), &value, known)
                .map_err(|error| wrong(error.to_string()))
        };
        Ok(StandIns {
            access: one("access token", &self.tokens.access)?,
            refresh: self.tokens.refresh.as_ref().map(|token| one("refresh token", token)).transpose()?,
            id: self.tokens.id.as_ref().map(|id| one("ID token", id)).transpose()?,
        })
    }
}

/// As people know an account. A provider or a file may say anything, and it ends up on terminals and in logs.
pub fn whose(facts: &Map<String, Value>) -> Option<String> {
    let said =
        ["email", "user", "account-id", "subject"].iter().find_map(|name| facts.get(*name)?.as_str())?;
    Some(said.chars().filter(|c| is_plain(*c)).take(120).collect())
}

#[cfg(test)]
#[path = "import/tests.rs"]
mod tests;
