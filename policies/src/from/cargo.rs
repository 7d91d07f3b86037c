//! Cargo: `Cargo.lock` and `.cargo/config.toml`.

use super::found::Found;
use super::toml_values::values;

const INDEX: &str = "a registry's index says where its crates are downloaded (`dl` in its config.json), and Cargo asks the \
                     registry that it knows by default at another address than it writes; `understudy log --denied` \
                     shows the hosts";

pub(super) fn lock(found: &mut Found, text: &str) {
    read(found, text, |keys| matches!(keys, ["package", "source"]));
}

pub(super) fn configuration(found: &mut Found, text: &str) {
    read(found, text, |keys| {
        matches!(keys, ["registries", _, "index"] | ["registry", "index"] | ["source", _, "registry" | "git"])
    });
}

fn read(found: &mut Found, text: &str, meant: impl Fn(&[&str]) -> bool) {
    let values = match values(text) {
        Ok(values) => values,
        Err((line, message)) => return found.problem(Some(line), &message),
    };
    for value in values {
        let keys: Vec<&str> = value.keys.iter().map(String::as_str).collect();
        if !meant(&keys) {
            continue;
        }
        let git = value.value.starts_with("git+") || keys.last() == Some(&"git");
        if git {
            found.repository(value.line, &value.value);
            continue;
        }
        if value.value.starts_with("sparse+") {
            found.index(value.line, &value.value);
        } else {
            // A registry whose index is a repository.
            found.repository(value.line, &value.value);
        }
        found.note(format!("{}: {INDEX}", found.file()));
    }
}
