//! Text with the stand-in of a secret in it: `{stand-in}`, or `{stand-in:last-20}` for its last 20 characters. Of an
//! account (`kind = "oauth"`) that is the one of its access token; `{stand-in:refresh}` and `{stand-in:id}` are those of its
//! other tokens, `{account:NAME}` is what is known of it. Every other brace means itself, so that JSON can be written as
//! it is.

use serde::Deserialize;
use serde_json::{Map, Value};
use understudy_policies::document;

const OPENINGS: [&str; 2] = ["{stand-in", "{account:"];

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

/// What is put in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filling<'a> {
    pub stand_in: &'a str,
    /// Of an account; empty if it has none.
    pub refresh: &'a str,
    pub id: &'a str,
    /// What is known of an account, by name.
    pub account: Option<&'a Map<String, Value>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    StandIn,
    /// The last characters of it, this many.
    Last(usize),
    Refresh,
    Id,
    Account(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "unknown template `{0}`; known are `{{stand-in}}`, `{{stand-in:last-N}}`, `{{stand-in:refresh}}`, `{{stand-in:id}}` and `{{account:NAME}}`"
    )]
    Unknown(String),
    #[error("not a JSON object: {0}")]
    Json(String),
}

impl<'a> Filling<'a> {
    /// Of a secret that is no account.
    pub fn of(stand_in: &'a str) -> Self {
        Self { stand_in, ..Self::default() }
    }

    /// What is known under that name.
    fn known(&self, name: &str) -> Option<&'a Value> {
        self.account?.get(name)
    }
}

impl Template {
    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn needs_stand_in(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Text(_)))
    }

    /// Whether only an account can fill it.
    pub fn needs_account(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Refresh | Part::Id | Part::Account(_)))
    }

    /// As plain text. What is not known of the account is empty.
    pub fn render(&self, filling: Filling<'_>) -> String {
        self.parts.iter().map(|part| part.render(filling)).collect()
    }

    /// As JSON: the text is parsed first and its strings are rendered then, so that no character of a stand-in can
    /// change the structure. A string that is `{account:NAME}` and nothing else becomes what is known, whatever its type;
    /// a member of an object is left out if nothing is, and so is an object without any that is left.
    pub fn render_json(&self, filling: Filling<'_>) -> Result<String, TemplateError> {
        let mut object = self.json_object()?;
        render_strings(&mut object, filling)?;
        Ok(object.to_string())
    }

    pub(crate) fn json_object(&self) -> Result<Value, TemplateError> {
        match serde_json::from_str(&self.source) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) => Err(TemplateError::Json("another kind of value".to_owned())),
            Err(error) => Err(TemplateError::Json(error.to_string())),
        }
    }

    /// The name, if it is `{account:NAME}` and nothing else.
    fn whole_account(&self) -> Option<&str> {
        let text = |part: &&Part| !matches!(part, Part::Text(text) if text.is_empty());
        match self.parts.iter().filter(text).collect::<Vec<_>>().as_slice() {
            [Part::Account(name)] => Some(name),
            _ => None,
        }
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(source: String) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = source.as_str();
        let first = |text: &str| OPENINGS.iter().filter_map(|open| Some((text.find(open)?, *open))).min();
        while let Some((at, open)) = first(rest) {
            let (text, after) = rest.split_at(at);
            parts.push(Part::Text(text.to_owned()));
            let (written, after) =
                after.split_once('}').ok_or_else(|| TemplateError::Unknown(open.to_owned()))?;
            parts.push(Part::parse(written)?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { source, parts })
    }
}

impl Part {
    /// `written` has its opening brace, and not the closing one.
    fn parse(written: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(format!("{written}}}"));
        if let Some(name) = written.strip_prefix("{account:") {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            let named = !name.is_empty() && name.bytes().all(plain);
            return named.then(|| Self::Account(name.to_owned())).ok_or_else(unknown);
        }
        match written.strip_prefix("{stand-in").unwrap_or(written) {
            "" => Ok(Self::StandIn),
            ":refresh" => Ok(Self::Refresh),
            ":id" => Ok(Self::Id),
            other => {
                let count = other.strip_prefix(":last-").and_then(document::number);
                count.filter(|n| *n > 0).map(Self::Last).ok_or_else(unknown)
            }
        }
    }

    fn render(&self, filling: Filling<'_>) -> String {
        let stand_in = filling.stand_in;
        match self {
            Self::Text(text) => text.clone(),
            Self::StandIn => stand_in.to_owned(),
            // A stand-in is ASCII, so bytes are characters; one that is not is used whole.
            Self::Last(count) => {
                stand_in.get(stand_in.len().saturating_sub(*count)..).unwrap_or(stand_in).to_owned()
            }
            Self::Refresh => filling.refresh.to_owned(),
            Self::Id => filling.id.to_owned(),
            Self::Account(name) => match filling.known(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            },
        }
    }
}

fn render_strings(value: &mut Value, filling: Filling<'_>) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => {
            let template = Template::try_from(std::mem::take(text))?;
            *value = match template.whole_account() {
                Some(name) => filling.known(name).cloned().unwrap_or(Value::Null),
                None => Value::String(template.render(filling)),
            };
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| render_strings(item, filling))?,
        Value::Object(members) => {
            let unknown = |value: &Value| {
                let text = value.as_str().filter(|text| text.starts_with(OPENINGS[1]))?;
                let template = Template::try_from(text.to_owned()).ok()?;
                Some(filling.known(template.whole_account()?).is_none())
            };
            members.retain(|_, member| !unknown(member).unwrap_or(false));
            let full = |member: &Value| !member.as_object().is_some_and(Map::is_empty);
            let before: Vec<String> =
                members.iter().filter(|(_, member)| full(member)).map(|(key, _)| key.clone()).collect();
            members.values_mut().try_for_each(|member| render_strings(member, filling))?;
            // One that was full, and of which nothing is known.
            members.retain(|key, member| full(member) || !before.contains(key));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Template, TemplateError> {
        Template::try_from(text.to_owned())
    }

    #[test]
    fn stand_ins_and_their_ends_are_put_in() {
        for (text, rendered) in [
            ("{stand-in}", "sk-0123456789"),
            ("a{stand-in}b{stand-in:last-4}c", "ask-0123456789b6789c"),
            ("{stand-in:last-100}", "sk-0123456789"),
            ("{\"a\": {}}", "{\"a\": {}}"),
            ("", ""),
        ] {
            assert_eq!(template(text).unwrap().render(Filling::of("sk-0123456789")), rendered, "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for text in [
            "{stand-in",
            "{stand-in:first-3}",
            "{account:}",
            "{account:A b}",
            "{account:x",
            "{stand-in:last-0}",
            "{stand-in:last-}",
            "{stand-ins}",
        ] {
            assert!(matches!(template(text), Err(TemplateError::Unknown(_))), "{text}");
        }
    }

    #[test]
    fn a_stand_in_cannot_change_the_structure_of_json() {
        let json =
            template("{\"a\": [\"{stand-in}\"]}").unwrap().render_json(Filling::of("\"],\"b\":[\"")).unwrap();
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed, serde_json::json!({"a": ["\"],\"b\":[\""]}));
        assert!(template("[]").unwrap().render_json(Filling::of("x")).is_err());
        assert!(template("{stand-in}").unwrap().render_json(Filling::of("x")).is_err());
    }

    #[test]
    fn an_account_fills_in_its_tokens_and_what_is_known_of_it() {
        let account = serde_json::json!({"id": "a-1", "scopes": ["x", "y"], "expires": 5});
        let filling =
            Filling { stand_in: "at-1", refresh: "rt-1", id: "h.c.s", account: account.as_object() };
        let text =
            "{stand-in} {stand-in:refresh} {stand-in:id} {account:id} {account:expires} {account:gone}|";
        assert_eq!(template(text).unwrap().render(filling), "at-1 rt-1 h.c.s a-1 5 |");
        let json = r#"{"a":"{account:scopes}","b":"{account:gone}","c":["{account:gone}"],"d":"<{account:id}>","e":{"f":"{account:gone}"},"g":{}}"#;
        let rendered: Value =
            serde_json::from_str(&template(json).unwrap().render_json(filling).unwrap()).unwrap();
        assert_eq!(rendered, serde_json::json!({"a": ["x", "y"], "c": [null], "d": "<a-1>", "g": {}}));
        assert!(template(text).unwrap().needs_account() && !template("{stand-in}").unwrap().needs_account());
    }
}
