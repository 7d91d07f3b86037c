//! Login and settings files of an image or a volume: no string that is not a stand-in passes where a credential could be,
//! an error tells none, and merging ours in changes nothing the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use understudy_hook::fuzzed::{login, merged};

const OURS: &str = r#"{"a":{"b":1},"c":[2]}"#;
const STAND_IN: &str = "stand-in";

fuzz_target!(|bytes: &[u8]| {
    let stand_ins = [STAND_IN.to_owned()];
    let verdict = login(bytes, &["/*/token".to_owned(), "env:KEY".to_owned(), "yaml:KEY".to_owned(), "url".to_owned(), String::new()], &stand_ins);
    let json: Option<Value> = serde_json::from_slice(bytes).ok();
    let found = json.as_ref().map(strings).unwrap_or_default();
    match verdict {
        Ok(()) => assert!(found.iter().all(|text| text.is_empty() || *text == STAND_IN), "{found:?}"),
        // what is longer than a word of the message can be there only by being copied
        Err(error) => assert!(found.iter().all(|text| text.len() < 12 || !error.contains(*text)), "{error}"),
    }
    if let Some(merged_once) = merged(bytes, OURS) {
        assert_eq!(merged(&merged_once, OURS).as_ref(), Some(&merged_once));
        let json: Value = serde_json::from_slice(&merged_once).unwrap_or_default();
        assert!(json["a"]["b"] == 1 && json["c"][0] == 2);
    }
});

fn strings(json: &Value) -> Vec<&str> {
    match json {
        Value::String(text) => vec![text],
        Value::Array(array) => array.iter().flat_map(strings).collect(),
        Value::Object(object) => object.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}
