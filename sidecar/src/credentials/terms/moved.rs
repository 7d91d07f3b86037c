//! Files of a program that a variable of the container's environment moves: looked for, and placed, where they are then. Pure.

use std::collections::BTreeMap;

use understudy_control::{LoginFile, PlacedFile, Placement, Refusal};
use understudy_harnesses::{Descriptor, Moved};

/// What a login file may end in: what `login import --write-back` leaves beside it.
const PREVIOUS: &str = ".previous";

/// Logins are looked for where they usually are as well: only the program itself knows for certain which it reads.
///
/// # Errors
/// A variable of which it cannot be told what it means.
pub fn moved(
    placement: &mut Placement,
    harnesses: &[&Descriptor],
    env: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let mut moves = Vec::new();
    for moved in harnesses.iter().flat_map(|harness| &harness.moved) {
        if let Some(value) = env.get(&moved.by).filter(|value| !value.is_empty()) {
            moves.push((moved, directory(&moved.by, value)?));
        }
    }
    let places = |path: &str| -> Vec<String> {
        moves.iter().filter_map(|(moved, directory)| place(moved, directory, path)).collect()
    };
    let login_file = |file: &LoginFile| {
        let moved = places(&file.path).into_iter().map(|path| LoginFile { path, ..file.clone() });
        moved.collect::<Vec<_>>()
    };
    let more: Vec<_> = placement.login_files.iter().flat_map(login_file).collect();
    placement.login_files.extend(more);
    let files = std::mem::take(&mut placement.files);
    placement.files = files
        .into_iter()
        .flat_map(|file| match places(&file.path) {
            places if places.is_empty() => vec![file],
            places => places.into_iter().map(|path| PlacedFile { path, ..file.clone() }).collect(),
        })
        .collect();
    Ok(())
}

/// Programs differ in what they make of another one, and it must be the same for all that run in the container.
fn directory<'v>(name: &str, value: &'v str) -> Result<&'v str, Refusal> {
    let directory = value.trim_end_matches('/');
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    match directory.strip_prefix('/') {
        Some(below) if below.split('/').all(plain) => Ok(directory),
        _ => Err(Refusal::new(
            format!(
                "environment variable `{name}` moves a program's files, and does not tell plainly where to"
            ),
            "give it an absolute path without `.` and `..`, or leave it out (an image can set it, too)",
        )),
    }
}

fn place(moved: &Moved, directory: &str, path: &str) -> Option<String> {
    let below = path.strip_prefix(&moved.from)?;
    let to = if moved.to.is_empty() { String::new() } else { format!("/{}", moved.to) };
    let is_below = below.starts_with('/') || (!to.is_empty() && matches!(below, "" | PREVIOUS));
    is_below.then(|| format!("{directory}{to}{below}"))
}

#[cfg(test)]
mod tests {
    use understudy_control::Write;
    use understudy_harnesses::Harnesses;

    use super::*;

    fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Where the files of a harness are with these variables: logins that are looked for, and what is placed.
    fn places(
        harness: &str,
        path: &str,
        variables: &[(&str, &str)],
    ) -> Result<(Vec<String>, Vec<String>), Refusal> {
        let (mode, write, content) = (0o600, Write::Create, String::new());
        let file = PlacedFile { path: path.to_owned(), mode, write, content };
        let login_file = LoginFile { path: path.to_owned(), pointers: Vec::new() };
        let mut placement =
            Placement { files: vec![file], login_files: vec![login_file], ..Placement::default() };
        let harnesses = Harnesses::default();
        moved(&mut placement, &[harnesses.harness(harness).unwrap()], &env(variables))?;
        let Placement { files, login_files, .. } = placement;
        Ok((
            login_files.into_iter().map(|file| file.path).collect(),
            files.into_iter().map(|file| file.path).collect(),
        ))
    }

    #[test]
    fn every_variable_that_moves_a_login_is_known() {
        for (harness, path, variable, expected) in [
            ("codex", "~/.codex/auth.json", "CODEX_HOME", "/x/auth.json"),
            ("claude-code", "~/.claude/.credentials.json", "CLAUDE_CONFIG_DIR", "/x/.credentials.json"),
            ("claude-code", "~/.claude.json", "CLAUDE_CONFIG_DIR", "/x/.claude.json"),
            ("claude-code", "~/.claude.json.previous", "CLAUDE_CONFIG_DIR", "/x/.claude.json.previous"),
            ("mistral-vibe", "~/.vibe/.env", "VIBE_HOME", "/x/.env"),
            ("gemini-cli", "~/.gemini/oauth_creds.json", "GEMINI_CLI_HOME", "/x/.gemini/oauth_creds.json"),
            ("copilot", "~/.copilot/config.json", "COPILOT_HOME", "/x/config.json"),
            ("gh", "~/.config/gh/hosts.yml", "GH_CONFIG_DIR", "/x/hosts.yml"),
            ("gh", "~/.config/gh/hosts.yml", "XDG_CONFIG_HOME", "/x/gh/hosts.yml"),
            ("git", "~/.config/git/credentials", "XDG_CONFIG_HOME", "/x/git/credentials"),
            ("pi", "~/.pi/agent/auth.json", "PI_CODING_AGENT_DIR", "/x/auth.json"),
            ("opencode", "~/.local/share/opencode/auth.json", "XDG_DATA_HOME", "/x/opencode/auth.json"),
            ("crush", "~/.local/share/crush/crush.json", "CRUSH_GLOBAL_DATA", "/x/crush.json"),
            ("crush", "~/.local/share/crush/crush.json", "XDG_DATA_HOME", "/x/crush/crush.json"),
            ("crush", "~/.config/crush/crush.json", "CRUSH_GLOBAL_CONFIG", "/x/crush.json"),
            ("qwen-code", "~/.qwen/oauth_creds.json", "QWEN_HOME", "/x/oauth_creds.json"),
            ("goose", "~/.config/goose/secrets.yaml", "GOOSE_PATH_ROOT", "/x/config/secrets.yaml"),
            ("goose", "~/.config/goose/secrets.yaml", "XDG_CONFIG_HOME", "/x/goose/secrets.yaml"),
        ] {
            let (logins, placed) = places(harness, path, &[(variable, "/x/")]).unwrap();
            assert_eq!(logins, [path, expected], "{harness} {variable}");
            assert_eq!(placed, [expected], "{harness} {variable}");
            let (logins, placed) = places(harness, path, &[(variable, "")]).unwrap();
            assert_eq!(
                (logins.as_slice(), placed.as_slice()),
                ([path.to_owned()].as_slice(), [path.to_owned()].as_slice())
            );
        }
    }

    #[test]
    fn each_of_several_counts_and_nothing_else_moves() {
        let both = [("GH_CONFIG_DIR", "/a"), ("XDG_CONFIG_HOME", "/b"), ("CODEX_HOME", "/c")];
        let (logins, placed) = places("gh", "~/.config/gh/hosts.yml", &both).unwrap();
        assert_eq!(logins[1..], ["/a/hosts.yml", "/b/gh/hosts.yml"]);
        assert_eq!(placed, logins[1..]);
        for path in ["~/.config/ghost/x", "~/.config/gh.json", "~/.ssh/id", "/etc/x"] {
            assert_eq!(places("gh", path, &both).unwrap().1, [path]);
        }
    }

    #[test]
    fn what_is_no_plain_place_keeps_the_container_from_starting() {
        for value in ["x", "~/x", "/x/../y", "/./x", "//x", "/", ".", "/x/\0"] {
            let refusal = places("codex", "~/.codex/auth.json", &[("CODEX_HOME", value)]).unwrap_err();
            assert!(refusal.reason.contains("`CODEX_HOME`"), "{value:?}: {refusal}");
        }
    }
}
