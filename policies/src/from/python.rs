//! Poetry, uv and Pipenv: their TOML.

use super::found::Found;
use super::pip::{OTHER_HOSTS, direct};
use super::toml_values::{Value, values};

const ASK_POETRY: &str = "what `poetry source show` says is asked, or the index that is Poetry's default";

fn each(found: &mut Found, text: &str, mut see: impl FnMut(&mut Found, &Value)) {
    match values(text) {
        Ok(values) => values.iter().for_each(|value| see(found, value)),
        Err((line, message)) => found.problem(Some(line), &message),
    }
}

pub(super) fn pipfile(found: &mut Found, text: &str) {
    each(found, text, |found, value| {
        if value.is_at(&["source", "url"]) {
            found.index(value.line, &value.value);
        } else if value.is_at(&["packages", "*", "git"]) || value.is_at(&["dev-packages", "*", "git"]) {
            found.repository(value.line, &value.value);
        }
    });
}

/// A package has a `source` table only where it is not from the default index.
pub(super) fn poetry_lock(found: &mut Found, text: &str) {
    let (mut packages, mut sources, mut first) = (0, 0, 1);
    let mut git = false;
    each(found, text, |found, value| {
        if value.is_at(&["package", "name"]) {
            if packages == 0 {
                first = value.line;
            }
            packages += 1;
        } else if value.is_at(&["package", "source", "type"]) {
            sources += 1;
            git = value.value == "git";
        } else if value.is_at(&["package", "source", "url"]) {
            // `type` stands before `url`.
            if git {
                found.repository(value.line, &value.value);
            } else {
                found.index(value.line, &value.value);
            }
        }
    });
    if packages > sources {
        found.names_no_host(first, ASK_POETRY);
    }
}

pub(super) fn project(found: &mut Found, text: &str) {
    each(found, text, |found, value| {
        let keys: Vec<&str> = value.keys.iter().map(String::as_str).collect();
        match keys.as_slice() {
            ["tool", "poetry", "source", "url"] => index(found, value),
            ["tool", "poetry", "dependencies", _, "git"]
            | ["tool", "poetry", "group", _, "dependencies", _, "git"]
            | ["tool", "uv", "sources", _, "git"] => found.repository(value.line, &value.value),
            ["tool", "uv", "sources", _, "url"] | ["tool", "poetry", "dependencies", _, "url"] => {
                found.download(value.line, &value.value);
            }
            ["project" | "build-system", "dependencies" | "requires"]
            | ["project", "optional-dependencies", _]
            | ["dependency-groups", _]
            | ["tool", "uv", "dev-dependencies" | "constraint-dependencies" | "override-dependencies"] => {
                if let Some(url) = direct(&value.value) {
                    found.download_or_repository(value.line, url);
                }
            }
            ["tool", "uv", rest @ ..] => uv_setting(found, rest, value),
            _ => {}
        }
    });
}

pub(super) fn uv_configuration(found: &mut Found, text: &str) {
    each(found, text, |found, value| {
        let keys: Vec<&str> = value.keys.iter().map(String::as_str).collect();
        uv_setting(found, &keys, value);
    });
}

fn uv_setting(found: &mut Found, keys: &[&str], value: &Value) {
    if let ["index-url" | "extra-index-url" | "find-links"]
    | ["index", "url"]
    | ["pip", "index-url" | "extra-index-url"] = keys
    {
        index(found, value);
    }
}

fn index(found: &mut Found, value: &Value) {
    found.index(value.line, &value.value);
    found.note(format!("{}: {OTHER_HOSTS}", found.file()));
}

pub(super) fn uv_lock(found: &mut Found, text: &str) {
    each(found, text, |found, value| {
        if value.is_at(&["package", "source", "registry"]) {
            found.index(value.line, &value.value);
        } else if value.is_at(&["package", "source", "git"]) {
            found.repository(value.line, &value.value);
        } else if value.is_at(&["package", "source", "url"])
            || value.is_at(&["package", "sdist", "url"])
            || value.is_at(&["package", "wheels", "url"])
        {
            found.download(value.line, &value.value);
        }
    });
}
