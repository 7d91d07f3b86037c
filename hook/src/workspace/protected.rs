//! The table of what programs of the host run, or take orders from, in a project.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use understudy_control::Refusal;
use understudy_control::annotation::{self, WORKSPACE};

/// Names in the annotation. The first two are git's own (`git`), the others files of the work tree.
pub(crate) const HOOKS: &str = "git-hooks";
pub(crate) const CONFIG: &str = "git-config";
const OFF: &str = "off";

#[derive(Debug)]
pub(crate) struct Protected {
    pub(crate) name: &'static str,
    /// In the uppermost directory of a work tree or a mount; a `*` in the last part stands for anything. A directory is
    /// meant with all that is in it.
    pub(crate) paths: &'static [&'static str],
}

pub(crate) const ALL: [Protected; 11] = [
    Protected { name: "direnv", paths: &[".envrc"] },
    Protected { name: "vscode", paths: &[".vscode"] },
    Protected { name: "idea", paths: &[".idea"] },
    Protected { name: "mcp", paths: &[".mcp.json"] },
    Protected { name: "claude", paths: &[".claude/settings*.json", ".claude/hooks"] },
    Protected { name: "cursor", paths: &[".cursor"] },
    Protected { name: "devcontainer", paths: &[".devcontainer", ".devcontainer.json"] },
    Protected {
        name: "hook-managers",
        paths: &[
            ".husky",
            ".pre-commit-config.yaml",
            ".pre-commit-config.yml",
            "lefthook*.yml",
            ".lefthook*.yml",
        ],
    },
    Protected {
        name: "compose",
        paths: &[
            "compose*.yaml",
            "compose*.yml",
            "*-compose.yaml",
            "*-compose.yml",
            "docker-compose*.yaml",
            "docker-compose*.yml",
        ],
    },
    Protected {
        name: "quadlet",
        paths: &["*.container", "*.pod", "*.kube", "*.network", "*.volume", "*.image", "*.build"],
    },
    Protected { name: "containerfile", paths: &["Containerfile*", "Dockerfile*"] },
];

/// What the annotation lets the container write all the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Relaxed {
    names: Vec<&'static str>,
    all: bool,
}

impl Relaxed {
    pub(crate) fn asked(value: Option<&str>) -> Result<Self, Refusal> {
        let mut relaxed = Self::default();
        for item in annotation::list(value.unwrap_or_default()) {
            match names().find(|name| *name == item) {
                Some(name) => relaxed.names.push(name),
                None if item == OFF => relaxed.all = true,
                None => {
                    let known: Vec<_> = names().chain([OFF]).collect();
                    return Err(Refusal::new(
                        format!("annotation {WORKSPACE}: {item:?} is not known"),
                        format!(
                            "it names what the container may write in a project, of: {}",
                            known.join(", ")
                        ),
                    ));
                }
            }
        }
        Ok(relaxed)
    }

    pub(crate) fn everything(&self) -> bool {
        self.all
    }

    pub(crate) fn allows(&self, name: &str) -> bool {
        self.all || self.names.contains(&name)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    [HOOKS, CONFIG].into_iter().chain(ALL.iter().map(|protected| protected.name))
}

/// At most one `*`.
pub(crate) fn matches(pattern: &str, name: &OsStr) -> bool {
    let name = name.as_bytes();
    match pattern.split_once('*') {
        None => name == pattern.as_bytes(),
        Some((start, end)) => {
            name.len() >= start.len() + end.len()
                && name.starts_with(start.as_bytes())
                && name.ends_with(end.as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything() {
        for (pattern, name, expected) in [
            ("Dockerfile*", "Dockerfile.dev", true),
            ("*.container", "agent.container", true),
            ("settings*.json", "settings.local.json", true),
            ("settings*.json", "settings.js", false),
            ("aba*aba", "aba", false),
            (".envrc", ".envrc.example", false),
        ] {
            assert_eq!(matches(pattern, OsStr::new(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_are_known_or_refused() {
        let relaxed = Relaxed::asked(Some("vscode, git-hooks")).unwrap();
        assert!(relaxed.allows("vscode") && relaxed.allows(HOOKS) && !relaxed.allows(CONFIG));
        assert!(Relaxed::asked(Some("off")).unwrap().everything());
        let refusal = Relaxed::asked(Some("vscod")).unwrap_err();
        assert!(refusal.remedy.contains("git-hooks, git-config, direnv, vscode"), "{refusal:?}");
        assert!(!Relaxed::asked(None).unwrap().allows("vscode"));
    }
}
