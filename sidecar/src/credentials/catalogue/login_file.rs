//! What the login files of programs look like: where `understudy login import` finds an account's tokens, or a key.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Where a program's login file has what: JSON pointers (RFC 6901), whatever it is written in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoginFile {
    /// What `understudy login import` calls it. Kinds of one provider may have the same: the first whose shapes fit is meant.
    pub name: String,
    /// For people, with its usual path.
    pub what: String,
    #[serde(default)]
    pub syntax: Syntax,
    /// The access token, or the key.
    pub access: String,
    /// Not of a key.
    pub refresh: Option<String>,
    pub id: Option<String>,
    /// When the access token expires: seconds or milliseconds since the epoch. Without it, its own `exp` says so.
    pub expires: Option<String>,
    /// A list of texts, or one text with spaces between them.
    pub scopes: Option<String>,
    /// The client (RFC 6749 section 2.2) that a login is of, where it need not be the kind's: it is renewed as that.
    pub client_id: Option<String>,
    /// What else is known of the account, by name; no secret may be among it. `id:/claim` is a claim of the ID token.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// The fact that tells one account from another.
    pub identity: Option<String>,
    /// Where the token might be instead, for people: ends the sentence "it has no `access`".
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syntax {
    #[default]
    Json,
    /// Mappings of plain words alone.
    Yaml,
    /// Lines `KEY=value`.
    Env,
}

impl Syntax {
    /// Ends the sentence "it is not …".
    pub fn what(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Yaml => "YAML as it is known of such files",
            Self::Env => "lines of the form KEY=value",
        }
    }
}

impl LoginFile {
    pub(super) fn check(&self) -> Result<(), String> {
        let of_claims = |pointer: &String| pointer.strip_prefix("id:").unwrap_or(pointer).to_owned();
        let pointers = [Some(&self.access), self.refresh.as_ref(), self.id.as_ref(), self.expires.as_ref()];
        let pointers = pointers.into_iter().chain([self.scopes.as_ref()]).flatten().cloned();
        let mut pointers = pointers.chain(self.facts.values().map(of_claims));
        if let Some(wrong) = pointers.find(|pointer| !pointer.starts_with('/')) {
            return Err(format!("login file `{}`: `{wrong}` is no JSON pointer", self.name));
        }
        if let Some(identity) = self.identity.as_ref().filter(|name| !self.facts.contains_key(*name)) {
            return Err(format!("login file `{}`: `identity` `{identity}` is no fact", self.name));
        }
        Ok(())
    }

    /// Of a key: what is renewed has a table of its own.
    pub(super) fn check_of_key(&self) -> Result<(), String> {
        match [&self.refresh, &self.id, &self.expires].iter().any(|pointer| pointer.is_some()) {
            true => {
                Err(format!("login file `{}`: `refresh`, `id` and `expires` are for accounts", self.name))
            }
            false => self.check(),
        }
    }
}
