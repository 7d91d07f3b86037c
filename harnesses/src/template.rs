//! Text with the stand-in of a secret in it: `{stand-in}`, or `{stand-in:last-20}` for its last 20 characters. Every
//! other brace means itself, so that JSON can be written as it is.

use serde::Deserialize;
use serde_json::Value;

const OPEN: &str = "{stand-in";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    StandIn,
    /// The last characters of it, this many.
    Last(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("unknown template `{0}`; known are `{{stand-in}}` and `{{stand-in:last-N}}`")]
    Unknown(String),
    #[error("not a JSON object: {0}")]
    Json(String),
}

impl Template {
    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn needs_stand_in(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Text(_)))
    }

    /// As plain text.
    pub fn render(&self, stand_in: &str) -> String {
        self.parts.iter().map(|part| part.render(stand_in)).collect()
    }

    /// As JSON: the text is parsed first and its strings are rendered then, so that no character of a stand-in can
    /// change the structure.
    pub fn render_json(&self, stand_in: &str) -> Result<String, TemplateError> {
        let mut object = self.json_object()?;
        render_strings(&mut object, stand_in)?;
        Ok(object.to_string())
    }

    pub(crate) fn json_object(&self) -> Result<Value, TemplateError> {
        match serde_json::from_str(&self.source) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) => Err(TemplateError::Json("another kind of value".to_owned())),
            Err(error) => Err(TemplateError::Json(error.to_string())),
        }
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(source: String) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = source.as_str();
        while let Some((text, after)) = rest.split_once(OPEN) {
            parts.push(Part::Text(text.to_owned()));
            let (argument, after) =
                after.split_once('}').ok_or_else(|| TemplateError::Unknown(OPEN.to_owned()))?;
            parts.push(Part::parse(argument)?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { source, parts })
    }
}

impl Part {
    fn parse(argument: &str) -> Result<Self, TemplateError> {
        if argument.is_empty() {
            return Ok(Self::StandIn);
        }
        let count = argument.strip_prefix(":last-").and_then(|count| count.parse().ok()).filter(|n| *n > 0);
        count.map(Self::Last).ok_or_else(|| TemplateError::Unknown(format!("{OPEN}{argument}}}")))
    }

    fn render<'a>(&'a self, stand_in: &'a str) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::StandIn => stand_in,
            // A stand-in is ASCII, so bytes are characters; one that is not is used whole.
            Self::Last(count) => stand_in.get(stand_in.len().saturating_sub(*count)..).unwrap_or(stand_in),
        }
    }
}

fn render_strings(value: &mut Value, stand_in: &str) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => *text = Template::try_from(std::mem::take(text))?.render(stand_in),
        Value::Array(items) => items.iter_mut().try_for_each(|item| render_strings(item, stand_in))?,
        Value::Object(members) => {
            members.values_mut().try_for_each(|member| render_strings(member, stand_in))?;
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
            assert_eq!(template(text).unwrap().render("sk-0123456789"), rendered, "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for text in
            ["{stand-in", "{stand-in:first-3}", "{stand-in:last-0}", "{stand-in:last-}", "{stand-ins}"]
        {
            assert!(matches!(template(text), Err(TemplateError::Unknown(_))), "{text}");
        }
    }

    #[test]
    fn a_stand_in_cannot_change_the_structure_of_json() {
        let json = template("{\"a\": [\"{stand-in}\"]}").unwrap().render_json("\"],\"b\":[\"").unwrap();
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed, serde_json::json!({"a": ["\"],\"b\":[\""]}));
        assert!(template("[]").unwrap().render_json("x").is_err());
        assert!(template("{stand-in}").unwrap().render_json("x").is_err());
    }
}
