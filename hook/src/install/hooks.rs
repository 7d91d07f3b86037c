//! The hook files (oci-hooks(5)).

use std::path::Path;

use serde_json::{Value, json};

/// In any case and also without the dot: a key that is misspelt must reach `precreate`, which refuses it.
const ANY_OF_OURS: &str = "(?i)^understudy";

/// A name of its own: the hook files of a user's installation must not replace the machine's.
pub(crate) const REQUIRED: &str = "40-understudy-required.json";

/// What `install --required` adds.
pub(super) fn required(hook: &Path, state: &Path) -> (String, String) {
    let every = json!({"always": true});
    (REQUIRED.to_owned(), one(hook, state, "required", "precreate", 10, &every))
}

/// File names and contents. A file that is not valid stops every container, so they are made by a serialiser.
pub(super) fn all(hook: &Path, state: &Path) -> Vec<(String, String)> {
    let agents = json!({"annotations": {ANY_OF_OURS: ".*"}});
    // `podman kube generate` writes `KEY/NAME`.
    let sidecar = json!({"annotations": {"^understudy\\.role(/.*)?$": "^sidecar$"}});
    [
        ("precreate", "precreate", 10, &agents),
        ("create-runtime", "createRuntime", 10, &agents),
        ("poststop", "poststop", 10, &agents),
        ("reattach", "poststart", 30, &sidecar),
    ]
    .into_iter()
    .map(|(command, stage, timeout, when)| {
        (format!("50-understudy-{command}.json"), one(hook, state, command, stage, timeout, when))
    })
    .collect()
}

fn one(hook: &Path, state: &Path, command: &str, stage: &str, timeout: u32, when: &Value) -> String {
    let file = json!({
        "version": "1.0.0",
        "hook": {
            "path": hook,
            // Podman shows the arguments when a stage fails, and nothing else.
            "args": ["understudy-hook", command, "--state", state, "see:", "understudy-hook", "why"],
            "timeout": timeout,
        },
        "when": when,
        "stages": [stage],
    });
    format!("{file:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_timeout_a_state_and_a_hint() {
        let all = all(Path::new("/s/bin/understudy-hook"), Path::new("/s"));
        let stages: Vec<String> = all
            .iter()
            .map(|(_, text)| {
                let file: Value = serde_json::from_str(text).unwrap();
                assert!(file["hook"]["timeout"].as_u64().unwrap() >= 10);
                assert_eq!(file["hook"]["args"][3], "/s");
                assert!(file["hook"]["args"].to_string().contains("why"));
                file["stages"][0].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(stages, ["precreate", "createRuntime", "poststop", "poststart"]);
    }

    #[test]
    fn what_is_required_is_asked_of_every_container() {
        let (_, text) = required(Path::new("/s/bin/understudy-hook"), Path::new("/s"));
        let file: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&file["when"], &file["stages"]), (&json!({"always": true}), &json!(["precreate"])));
        assert!(file["hook"]["timeout"].as_u64().unwrap() >= 10);
    }

    #[test]
    fn the_arguments_are_what_the_program_takes() {
        use clap::Parser as _;
        let (hook, state) = (Path::new("/s/bin/understudy-hook"), Path::new("/s"));
        for (_, text) in all(hook, state).into_iter().chain([required(hook, state)]) {
            let file: Value = serde_json::from_str(&text).unwrap();
            let args: Vec<String> = serde_json::from_value(file["hook"]["args"].clone()).unwrap();
            crate::Arguments::try_parse_from(&args).unwrap();
        }
    }
}
