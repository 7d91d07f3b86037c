//! Files of one `key = value` a line.

use super::found::Found;

/// Key, value and line (from 1) of an INI file; sections are passed over, comments start with `#` or `;`. A line that is
/// indented goes on with the value before it.
pub(super) fn ini(text: &str) -> Vec<(String, String, usize)> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';', '[']) {
            continue;
        }
        let goes_on = line.starts_with([' ', '\t']);
        match (content.split_once('='), found.last()) {
            (_, Some((key, _, _))) if goes_on && !content.contains(" = ") => {
                found.push((key.clone(), content.to_owned(), at + 1));
            }
            (Some((key, value)), _) => {
                found.push((key.trim().to_owned(), unquoted(value.trim()).to_owned(), at + 1));
            }
            (None, _) => {}
        }
    }
    found
}

pub(super) fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// Variables that package managers take their configuration from. The others of the file are none of our business.
pub(super) fn environment(found: &mut Found, text: &str) {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = unquoted(value.trim());
        match key.trim() {
            "GOPROXY" => found.proxy(at + 1, value),
            "NPM_CONFIG_REGISTRY"
            | "npm_config_registry"
            | "YARN_NPM_REGISTRY_SERVER"
            | "PIP_INDEX_URL"
            | "PIP_EXTRA_INDEX_URL"
            | "UV_INDEX_URL"
            | "UV_DEFAULT_INDEX"
            | "UV_EXTRA_INDEX_URL"
            | "UV_INDEX" => {
                for url in value.split_whitespace() {
                    // uv: `name=https://…`
                    let url =
                        url.split_once("=http").map_or(url.to_owned(), |(_, rest)| format!("http{rest}"));
                    found.index(at + 1, &url);
                }
            }
            _ => {}
        }
    }
}
