//! pip and Pipenv: requirements files, `pip.conf`, `Pipfile.lock`.

use super::found::Found;
use super::json::{JsonError, members};
use super::lines::{ini, unquoted};

const HOW_TO_TELL: &str = "pip asks what `pip config list` says, or the index that `pip download -v` shows";

/// Options that name an index, or pages with links.
const INDEXES: [&str; 6] = ["--index-url", "--extra-index-url", "--find-links", "--pypi-url", "-i", "-f"];

pub(super) fn requirements(found: &mut Found, text: &str) {
    let (mut index, mut unnamed) = (false, None);
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        let line = line.trim();
        let line = line.split_once(" #").map_or(line, |(line, _)| line).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(url) = INDEXES.iter().find_map(|option| value_of(line, option)) {
            index |= !line.starts_with("-f") && !line.starts_with("--find-links");
            found.index(at, url);
            continue;
        }
        let editable = value_of(line, "--editable").or_else(|| value_of(line, "-e"));
        let requirement = editable.unwrap_or(line);
        match direct(requirement) {
            Some(url) => found.download_or_repository(at, url),
            None if line.starts_with('-') || requirement.starts_with(['.', '/']) => {}
            None => {
                unnamed.get_or_insert(at);
            }
        }
    }
    if let Some(line) = unnamed.filter(|_| !index) {
        found.names_no_host(line, HOW_TO_TELL);
    }
    if index {
        found.note(format!("{}: {OTHER_HOSTS}", found.file()));
    }
}

/// The URL of `name @ URL ; marker` (PEP 508), or of what is one.
pub(super) fn direct(requirement: &str) -> Option<&str> {
    let (before, _) = requirement.split_once("://")?;
    let start = before.rfind('@').map_or(0, |at| at + 1);
    requirement.get(start..)?.split_whitespace().next()
}

pub(super) const OTHER_HOSTS: &str = "an index can send clients to other hosts for its files, which no file here names; \
                                      `understudy log --denied` shows them";

/// `--option value` or `--option=value`; a short option may touch its value.
fn value_of<'t>(line: &'t str, option: &str) -> Option<&'t str> {
    let rest = line.strip_prefix(option)?;
    let touches = !option.starts_with("--") && rest.contains("://");
    let value = match rest.strip_prefix(['=', ' ', '\t']) {
        Some(value) => value,
        None if touches => rest,
        None => return None,
    };
    Some(unquoted(value.split_whitespace().next()?))
}

pub(super) fn configuration(found: &mut Found, text: &str) {
    for (key, value, line) in ini(text) {
        if matches!(
            key.as_str(),
            "index-url" | "extra-index-url" | "find-links" | "index" | "index_url" | "extra_index_url"
        ) {
            for url in value.split_whitespace() {
                found.index(line, url);
            }
        }
    }
}

pub(super) fn pipfile_lock(found: &mut Found, text: &str) {
    match members(text) {
        Ok(members) => {
            for member in members {
                match member.key.as_str() {
                    "url" => found.index(member.line, &member.value),
                    "git" => found.repository(member.line, &member.value),
                    "file" => found.download(member.line, &member.value),
                    _ => {}
                }
            }
        }
        Err(JsonError { line, message }) => found.problem(Some(line), &message),
    }
}
