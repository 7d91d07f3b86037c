//! Merges JSON objects: an agent's settings that are there stay, ours win.

use serde_json::{Map, Value};

#[derive(Debug, thiserror::Error)]
pub(crate) enum MergeError {
    #[error("what is there is not JSON: {0} (mend or remove the file)")]
    NotJson(serde_json::Error),
    #[error("what is there is not a JSON object (mend or remove the file)")]
    NotObject,
    #[error("what is to be merged is not a JSON object: a mistake in the harness descriptor")]
    Ours,
}

/// An empty `existing` counts as an empty object. Depth is bounded by what serde_json parses (128).
pub(crate) fn merge(existing: &[u8], ours: &str) -> Result<Vec<u8>, MergeError> {
    let Ok(Value::Object(ours)) = serde_json::from_str(ours) else { return Err(MergeError::Ours) };
    let mut merged = match existing.trim_ascii() {
        b"" => Map::new(),
        text => match serde_json::from_slice(text).map_err(MergeError::NotJson)? {
            Value::Object(object) => object,
            _ => return Err(MergeError::NotObject),
        },
    };
    let before = merged.clone();
    merge_object(&mut merged, ours);
    if merged == before && !existing.is_empty() {
        // Nothing to change: byte for byte what was there.
        return Ok(existing.to_vec());
    }
    let mut text = serde_json::to_vec_pretty(&merged).map_err(MergeError::NotJson)?;
    text.push(b'\n');
    Ok(text)
}

fn merge_object(into: &mut Map<String, Value>, ours: Map<String, Value>) {
    for (key, value) in ours {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(ours)) => merge_object(there, ours),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(existing: &str, ours: &str) -> Value {
        serde_json::from_slice(&merge(existing.as_bytes(), ours).unwrap()).unwrap()
    }

    #[test]
    fn ours_win_and_theirs_stay() {
        assert_eq!(
            merged(r#"{"a":1,"b":{"c":[1],"d":2},"e":{}}"#, r#"{"b":{"c":3,"f":{}},"e":4,"g":5}"#),
            serde_json::json!({"a":1,"b":{"c":3,"d":2,"f":{}},"e":4,"g":5})
        );
        assert_eq!(merged(" \n", r#"{"a":1}"#), serde_json::json!({"a":1}));
    }

    #[test]
    fn what_has_it_all_is_left_byte_for_byte() {
        let there = "{ \"a\" : 1,\"z\":0 }";
        assert_eq!(merge(there.as_bytes(), r#"{"a":1}"#).unwrap(), there.as_bytes());
    }

    #[test]
    fn what_is_not_an_object_is_an_error() {
        for there in ["[]", "1", "null", "{", "{\"a\":1} x", "// {}\n{}"] {
            assert!(merge(there.as_bytes(), "{}").is_err(), "{there}");
        }
        assert!(matches!(merge(b"{}", "[]"), Err(MergeError::Ours)));
        let deep = "{\"a\":".repeat(10_000);
        assert!(merge(deep.as_bytes(), "{}").is_err());
    }
}
