//! Yarn (classic and berry) and pnpm, whose YAML is written by programs, one member a line: it is read by lines.

use super::found::Found;
use super::lines::unquoted;
use crate::request::decoded;

const ASK_YARN: &str =
    "what `yarn config get npmRegistryServer` (Yarn 1: `yarn config get registry`) says is asked";
const ASK_PNPM: &str = "what `pnpm config get registry` says is asked";

pub(super) fn lock(found: &mut Found, text: &str) {
    let mut unnamed = None;
    for (at, line) in text.lines().enumerate() {
        let (at, line) = (at + 1, line.trim());
        if let Some(url) = line.strip_prefix("resolved ") {
            found.download_or_repository(at, unquoted(url.trim()));
        } else if let Some(resolution) = line.strip_prefix("resolution:") {
            // `name@npm:1.0.0`, `name@npm:1.0.0::__archiveUrl=https%3A…`, `name@https://…`; a name may begin with `@`.
            let resolution = unquoted(resolution.trim());
            let source =
                resolution.get(1..).and_then(|rest| Some(rest.split_once('@')?.1)).unwrap_or_default();
            match source.split_once("__archiveUrl=") {
                Some((_, url)) => match decoded(url.split('&').next().unwrap_or_default()) {
                    Some(url) => found.download(at, &url),
                    None => found.problem(Some(at), "an archiveUrl that is not percent-encoded text"),
                },
                None if source.starts_with("npm:") => {
                    unnamed.get_or_insert(at);
                }
                None if source.contains("://") => {
                    let git = source.contains("#commit=") && !source.starts_with("git+");
                    let source = if git { format!("git+{source}") } else { source.to_owned() };
                    found.download_or_repository(at, &source);
                }
                None if source.starts_with("git@") => found.repository(at, source),
                None => {}
            }
        }
    }
    if let Some(line) = unnamed {
        found.names_no_host(line, ASK_YARN);
    }
}

/// `.yarnrc`: `registry "https://…"`, `"@scope:registry" "https://…"`.
pub(super) fn classic_configuration(found: &mut Found, text: &str) {
    for (at, line) in text.lines().enumerate() {
        let Some((key, value)) = line.trim().split_once(char::is_whitespace) else { continue };
        let key = unquoted(key);
        if key == "registry" || key.ends_with(":registry") {
            found.index(at + 1, unquoted(value.trim()));
        }
    }
}

/// `.yarnrc.yml`: `npmRegistryServer` at the root, in `npmScopes` and `npmRegistries`' keys.
pub(super) fn configuration(found: &mut Found, text: &str) {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(value) = line.strip_prefix("npmRegistryServer:") {
            found.index(at + 1, unquoted(value.trim()));
        }
    }
}

/// `pnpm-lock.yaml`: `resolution: {integrity: …, tarball: …}`, or one of them a line.
pub(super) fn pnpm_lock(found: &mut Found, text: &str) {
    let mut unnamed = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let content = line.strip_prefix("resolution:").unwrap_or(line).trim();
        let resolution = content.len() < line.len();
        let members = content.trim_matches(['{', '}']).split(", ");
        let mut named = !resolution || content.is_empty();
        for (key, value) in members.filter_map(|member| member.split_once(": ")) {
            let value = unquoted(value.trim());
            match key.trim() {
                "tarball" => {
                    named = true;
                    found.download(at + 1, value);
                }
                "repo" => {
                    named = true;
                    found.repository(at + 1, value);
                }
                "directory" => named = true,
                _ => {}
            }
        }
        if !named {
            unnamed.get_or_insert(at + 1);
        }
    }
    if let Some(line) = unnamed {
        found.names_no_host(line, ASK_PNPM);
    }
}
