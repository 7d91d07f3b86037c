//! How a program gets a key while somebody logs in: in the answer to a declared request (of a device code, RFC 8628, or of a
//! way of the provider's own). A key is not renewed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::oauth::TokenEndpoint;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLogin {
    /// What the key is called of which nobody said otherwise.
    pub name: String,
    /// Asked for by POST. A part of its path may be `*`.
    pub endpoint: TokenEndpoint,
    /// Programs that log in so, by the `client_id` of their request; empty: all.
    pub clients: Vec<String>,
    /// The field of the answer, a JSON object, in which the key stands.
    pub field: String,
    /// Whether the answer is a form unless the program accepts JSON.
    pub form: bool,
    /// Fields of the answer that look like tokens and are none.
    pub harmless: Vec<String>,
    /// Who tells whose key it is, as asked with it as `Bearer`.
    pub whose: Option<TokenEndpoint>,
    /// Of that answer, by name: JSON pointers (RFC 6901).
    pub facts: BTreeMap<String, String>,
    /// The kind of account whose login this one follows on: it is asked for with that account's token.
    pub follows: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawKeyLogin {
    name: String,
    endpoint: String,
    #[serde(default)]
    clients: Vec<String>,
    field: String,
    #[serde(default)]
    form: bool,
    #[serde(default)]
    harmless: Vec<String>,
    whose: Option<String>,
    #[serde(default)]
    facts: BTreeMap<String, String>,
    follows: Option<String>,
}

impl KeyLogin {
    /// Whether a program that calls itself so logs in this way.
    pub fn is_of(&self, client: Option<&str>) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|known| Some(known.as_str()) == client)
    }
}

impl RawKeyLogin {
    pub(super) fn checked(self) -> Result<KeyLogin, String> {
        let url = |key: &str, text: &str| {
            let wrong = |why| format!("`login`: `{key}`: {why}, as `https://auth.example.com/token`");
            TokenEndpoint::parse(text).map_err(wrong)
        };
        if crate::accounts::store::valid(&self.name).is_err() {
            return Err("`login`: `name` must be lower-case letters, digits and `-`, at most 64".to_owned());
        }
        if let Some(wrong) = self.facts.values().find(|pointer| !pointer.starts_with('/')) {
            return Err(format!("`login`: `facts`: `{wrong}` is no JSON pointer"));
        }
        Ok(KeyLogin {
            endpoint: url("endpoint", &self.endpoint)?,
            whose: self.whose.as_ref().map(|text| url("whose", text)).transpose()?,
            name: self.name,
            clients: self.clients,
            field: self.field,
            form: self.form,
            harmless: self.harmless,
            facts: self.facts,
            follows: self.follows,
        })
    }
}
