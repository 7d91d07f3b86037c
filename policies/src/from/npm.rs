//! npm: `package-lock.json` and `npm-shrinkwrap.json` (lockfileVersion 1 to 3), `.npmrc`.

use super::found::Found;
use super::json::{JsonError, members};
use super::lines::ini;

const HOW_TO_TELL: &str = "what `npm config get registry` says is asked";

pub(super) fn lock(found: &mut Found, text: &str) {
    let members = match members(text) {
        Ok(members) => members,
        Err(JsonError { line, message }) => return found.problem(Some(line), &message),
    };
    let (mut packages, mut named, mut first) = (0, 0, None);
    for member in members {
        match member.key.as_str() {
            "integrity" => {
                packages += 1;
                first.get_or_insert(member.line);
            }
            "resolved" => {
                named += 1;
                found.download_or_repository(member.line, &member.value);
            }
            // lockfileVersion 1 says it here for what is not from a registry.
            "version" if member.value.contains("://") => {
                found.download_or_repository(member.line, &member.value);
            }
            _ => {}
        }
    }
    if let Some(line) = first.filter(|_| packages > named) {
        found.names_no_host(line, HOW_TO_TELL);
    }
}

/// Tokens in it are not looked at.
pub(super) fn configuration(found: &mut Found, text: &str) {
    for (key, value, line) in ini(text) {
        if key == "registry" || key.starts_with('@') && key.ends_with(":registry") {
            found.index(line, &value);
        }
    }
}
