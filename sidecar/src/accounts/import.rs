//! Login files of programs: what an account is made of. The files are read, and never changed. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::record::{Millis, Record, StandIns, Token, Tokens};
use crate::credentials::catalogue::{Catalogue, Kind, LoginFile, Oauth};
use crate::credentials::stand_in::jwt;
use crate::credentials::{InstallationKey, SecretValue, stand_in};
use understudy_policies::document::closest;

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
    #[error("it is not JSON (line {0})")]
    NotJson(usize),
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
    #[error("a stand-in cannot be made for `{0}`: {1}")]
    Shape(&'static str, String),
}

/// The format of that name, and whose it is.
pub fn format<'c>(
    catalogue: &'c Catalogue,
    name: &str,
) -> Result<(&'c Kind, &'c Oauth, &'c LoginFile), ImportError> {
    let all = || {
        let files = catalogue.accounts().map(|(kind, oauth)| (kind, oauth, &oauth.login_files));
        files.flat_map(|(kind, oauth, files)| files.iter().map(move |file| (&**kind, oauth, file)))
    };
    all().find(|(_, _, file)| file.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|(_, _, file)| file.name.as_str()).collect();
        ImportError::Format {
            name: name.chars().take(40).collect(),
            meant: closest(name, names.iter().copied()).map(str::to_owned),
            known: names.join(", "),
        }
    })
}

/// What `bytes` say, as a file of that format.
pub fn read<'c>(kind: &'c Kind, format: &LoginFile, bytes: &[u8]) -> Result<Login<'c>, ImportError> {
    if bytes.len() > MOST {
        return Err(ImportError::TooLarge);
    }
    // An editor's byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
    if bytes.is_empty() {
        return Err(ImportError::Empty);
    }
    let file: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true => ImportError::Truncated(error.line()),
        false => ImportError::NotJson(error.line()),
    })?;
    let reader = Reader { file: &file, format };
    let (access, refresh) = (reader.needed(&format.access)?, reader.needed(&format.refresh)?);
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
    Ok(Login {
        kind,
        expires: said.or_else(|| expiry_of(&access)),
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

    /// What an older or another login is known by.
    fn hint(&self) -> Option<String> {
        let key = |pointer: &str| self.file.pointer(pointer).is_some_and(|key| !key.is_null());
        if key("/OPENAI_API_KEY") || key("/primaryApiKey") {
            return Some("it holds an API key: declare that as a secret, not as an account".to_owned());
        }
        None
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
    pub fn whose(&self) -> Option<&str> {
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
        for (what, token) in [("access token", &self.tokens.access), ("refresh token", &self.tokens.refresh)]
        {
            if stand_in::mark::is_in(key, token.expose().as_bytes()) {
                return Err(ImportError::StandIn(what.to_owned()));
            }
        }
        let same = before.is_some_and(|old| old.kind == self.kind.name && old.identity == self.identity);
        if let Some(old) = before.filter(|_| !same && !replace) {
            let whose = whose(&old.facts).unwrap_or(&old.kind).to_owned();
            return Err(ImportError::Another(name.to_owned(), whose));
        }
        let kept = before.filter(|old| same && old.stand_ins.id.is_some() == self.tokens.id.is_some());
        let stand_ins = match kept {
            Some(old) => old.stand_ins.clone(),
            None => self.stand_ins(name, key, catalogue)?,
        };
        let mut facts = before.filter(|_| same).map(|old| old.facts.clone()).unwrap_or_default();
        facts.extend(self.facts);
        Ok(Record {
            generation: before.map_or(1, |old| old.generation + 1),
            expires: self.expires,
            scopes: self.scopes,
            facts,
            identity: self.identity,
            ..Record::new(&self.kind.name, self.tokens, stand_ins)
        })
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
            stand_in::derive_of_account(key, &format!("account {name} {part}"), &value, catalogue)
                .map_err(|error| wrong(error.to_string()))
        };
        Ok(StandIns {
            access: one("access token", &self.tokens.access)?,
            refresh: one("refresh token", &self.tokens.refresh)?,
            id: self.tokens.id.as_ref().map(|id| one("ID token", id)).transpose()?,
        })
    }
}

/// As people know an account.
pub fn whose(facts: &Map<String, Value>) -> Option<&str> {
    ["email", "account-id", "subject"].iter().find_map(|name| facts.get(*name)?.as_str())
}

#[cfg(test)]
#[path = "import/tests.rs"]
mod tests;
