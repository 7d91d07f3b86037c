//! A JSON object in which no member is named twice, at any depth: of two, programs differ in which they take.

use serde_json::{Map, Value};
use understudy_policies::unique;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Members(pub(in crate::credentials) Map<String, Value>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnique {
    #[error("not a JSON object")]
    NotAnObject,
    #[error("a member is named twice")]
    Twice,
}

impl Members {
    pub fn parse(bytes: &[u8]) -> Result<Self, NotUnique> {
        match unique::parse(bytes) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Err(unique::NotUnique::Twice(_)) => Err(NotUnique::Twice),
            _ => Err(NotUnique::NotAnObject),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_named_twice_is_found_at_any_depth() {
        let members = Members::parse(br#" {"a":1,"b":[{"c":"x\u0079"},null,1.5,true],"d":-2} "#).unwrap();
        assert_eq!(members.get("b").unwrap().to_string(), r#"[{"c":"xy"},null,1.5,true]"#);
        for twice in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"{"b":[[{"a":1,"a":2}]]}"#,
        ] {
            assert_eq!(Members::parse(twice.as_bytes()), Err(NotUnique::Twice), "{twice}");
        }
        for other in
            ["", "[]", "1", "{", "{}x", "{\"a\":1e999}", "\u{feff}{}", "{'a':1}", "{\"a\":\"\u{1}\"}"]
        {
            assert_eq!(Members::parse(other.as_bytes()), Err(NotUnique::NotAnObject), "{other}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500));
        assert_eq!(Members::parse(deep.as_bytes()), Err(NotUnique::NotAnObject));
    }
}
