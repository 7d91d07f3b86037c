//! JSON in which no member of an object is named twice, at any depth: of two, programs differ in which they take.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

const TWICE: &str = "a member is named twice";

/// In which line, from 1 on. Nothing of the text is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnique {
    #[error("{TWICE} (line {0})")]
    Twice(usize),
    #[error("it breaks off (line {0})")]
    Truncated(usize),
    #[error("not JSON (line {0})")]
    NotJson(usize),
}

/// # Errors
/// What is not JSON, or names a member twice.
pub fn parse(bytes: &[u8]) -> Result<Value, NotUnique> {
    serde_json::from_slice(bytes).map(|Unique(value)| value).map_err(|error| match error.line() {
        line if error.is_eof() => NotUnique::Truncated(line),
        line if error.to_string().starts_with(TWICE) => NotUnique::Twice(line),
        line => NotUnique::NotJson(line),
    })
}

/// Depth is bounded by serde_json.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any).map(Self)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is none"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Value, S::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Value, M::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let Unique(value) = members.next_value()?;
            if all.insert(name, value).is_some() {
                return Err(M::Error::custom(TWICE));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_named_twice_is_found_at_any_depth() {
        let value = parse(br#" {"a":1,"b":[{"c":"x\u0079"},null,1.5,true],"d":-2} "#).unwrap();
        assert_eq!(value["b"].to_string(), r#"[{"c":"xy"},null,1.5,true]"#);
        for twice in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"[{"b":[[{"a":1,"a":2}]]}]"#,
        ] {
            assert_eq!(parse(twice.as_bytes()), Err(NotUnique::Twice(1)), "{twice}");
        }
        assert_eq!(parse(b"{\n\"a\":"), Err(NotUnique::Truncated(2)));
        for other in ["{}x", "{\"a\":1e999}", "\u{feff}{}", "{'a':1}", "{\"a\":\"\u{1}\"}"] {
            assert_eq!(parse(other.as_bytes()), Err(NotUnique::NotJson(1)), "{other}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500));
        assert_eq!(parse(deep.as_bytes()), Err(NotUnique::NotJson(1)));
    }
}
