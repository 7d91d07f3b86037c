//! `understudy-hook scan DIR`: what an agent may have left behind for programs of the host. Reads, and runs nothing.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use super::config;
use super::folder::{Folder, Kind};
use super::git;
use super::run::runs;

/// Names at the most: beyond them the answer would be none.
const MOST_NAMES: usize = 4_000_000;
const DEEPEST: usize = 128;

/// Keys by whose value editors and agents run something on the host, as they are written in JSON: file, key, what it does.
const ORDERS: [(&str, &str, &str); 9] = [
    (".vscode/tasks.json", "\"runOn\"", "a task that the editor runs when the folder is opened"),
    (".devcontainer/devcontainer.json", "\"initializeCommand\"", "a command that runs on the host"),
    (".devcontainer.json", "\"initializeCommand\"", "a command that runs on the host"),
    (".claude/settings.json", "\"hooks\"", "commands that an agent on the host would run"),
    (".claude/settings.local.json", "\"hooks\"", "commands that an agent on the host would run"),
    (".claude/settings.json", "\"apiKeyHelper\"", "a command that an agent on the host would run"),
    (".claude/settings.local.json", "\"apiKeyHelper\"", "a command that an agent on the host would run"),
    (".mcp.json", "\"command\"", "a server that an agent on the host would start"),
    (".cursor/mcp.json", "\"command\"", "a server that an editor on the host would start"),
];

/// Directories of tools' own, in which programs are out of place.
const NO_PROGRAMS: [&str; 5] = [".vscode", ".idea", ".cursor", ".devcontainer", ".claude"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory that the agent had
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Exit status 1 if anything was found, or could not be looked at.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let found = scan(&arguments.directory)?;
    for line in &found {
        println!("{}", line.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>());
    }
    if found.is_empty() {
        eprintln!("nothing was found that programs of the host would run unasked");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn scan(directory: &Path) -> Result<Vec<String>> {
    let shown = || directory.display().to_string();
    let real = fs::canonicalize(directory).with_context(shown)?;
    let folder = Folder::open(&real).with_context(shown)?;
    let mut scan = Scan { folder, root: directory, found: Vec::new(), left: MOST_NAMES };
    scan.directory(Path::new(""), None, 0);
    Ok(scan.found)
}

struct Scan<'a> {
    folder: Folder,
    root: &'a Path,
    found: Vec<String>,
    left: usize,
}

impl Scan<'_> {
    fn tell(&mut self, path: &Path, what: impl std::fmt::Display) {
        self.found.push(format!("{}: {what}", self.root.join(path).display()));
    }

    fn unread(&mut self, path: &Path, error: &io::Error) {
        self.tell(path, format!("could not be looked at: {error}"));
    }

    /// `work_tree` is the one that it lies in.
    fn directory(&mut self, at: &Path, work_tree: Option<&Path>, depth: usize) {
        let names = match self.folder.list(at, self.left) {
            Ok(names) => names,
            Err(error) => return self.unread(at, &error),
        };
        self.left = self.left.saturating_sub(names.len());
        if self.left == 0 || depth == DEEPEST {
            return self.tell(at, "too much to be looked at");
        }
        let has = |name: &str| names.iter().any(|(other, _)| other == name);
        if has("HEAD") && has("objects") && has("refs") {
            self.tell(at, "a repository without a work tree: git goes by its configuration in here");
            return self.git_directory(at, false);
        }
        let own = has(".git");
        if own {
            self.repository(at, work_tree);
        }
        for (file, key, what) in ORDERS {
            self.order(&at.join(file), key, what);
        }
        let work_tree = if own { Some(at) } else { work_tree };
        for (name, is_directory) in names {
            if !is_directory || name == ".git" {
                continue;
            }
            let below = at.join(&name);
            if NO_PROGRAMS.iter().any(|tool| name == *tool) {
                self.programs(&below, 0);
            }
            self.directory(&below, work_tree, depth + 1);
        }
    }

    fn repository(&mut self, at: &Path, around: Option<&Path>) {
        let git = at.join(".git");
        match self.folder.kind(&git) {
            Ok(Some(Kind::Folder)) => {
                if let Some(around) = around {
                    let around = self.root.join(around).display().to_string();
                    self.tell(
                        &git,
                        format!("a repository within the one of {around}: git goes by it in here"),
                    );
                }
                self.git_directory(&git, false);
            }
            Ok(Some(Kind::File | Kind::Program)) => self.git_file(at, &git),
            Ok(Some(Kind::Link | Kind::Other)) => self.tell(&git, "is neither a directory nor a file"),
            Ok(None) => {}
            Err(error) => self.unread(&git, &error),
        }
    }

    /// A submodule's is in `modules`, a linked worktree's in `worktrees` of a `.git`.
    fn git_file(&mut self, at: &Path, git: &Path) {
        let Some(named) = git::git_file(&self.folder, git) else {
            return self.tell(git, "names no repository");
        };
        let parts: Vec<_> = named.components().map(|part| part.as_os_str().to_owned()).collect();
        let usual = parts.windows(2).any(|pair| {
            pair.first().is_some_and(|first| first == ".git")
                && pair.get(1).is_some_and(|second| second == "modules" || second == "worktrees")
        });
        if !usual {
            let named = at.join(named).display().to_string();
            self.tell(git, format!("makes git go by the repository {named}"));
        }
    }

    /// Of a linked worktree only some files are there.
    fn git_directory(&mut self, at: &Path, linked: bool) {
        for name in ["config", "config.worktree"] {
            self.configuration(&at.join(name));
        }
        self.hooks(&at.join("hooks"));
        let common = at.join(git::COMMON);
        if !linked && !matches!(self.folder.kind(&common), Ok(None)) && !git::is_own(&self.folder, &common) {
            self.tell(&common, "makes git read its configuration and hooks elsewhere");
        }
        for todo in ["rebase-merge/git-rebase-todo", "rebase-apply/git-rebase-todo"] {
            let runs = self.folder.read(&at.join(todo)).is_ok_and(|text| {
                String::from_utf8_lossy(&text).lines().any(|line| {
                    let line = line.trim_start();
                    line.starts_with("exec ") || line.starts_with("x ")
                })
            });
            if runs {
                self.tell(&at.join(todo), "`git rebase --continue` would run commands");
            }
        }
        self.linked(&at.join("worktrees"));
        self.modules(&at.join("modules"), 0);
    }

    fn linked(&mut self, all: &Path) {
        for name in self.directories(all) {
            let at = all.join(name);
            let common = self.folder.read(&at.join("commondir"));
            if common.is_ok_and(|text| text.trim_ascii() != b"../..") {
                self.tell(&at.join("commondir"), "makes git read its configuration and hooks elsewhere");
            }
            self.git_directory(&at, true);
        }
    }

    fn modules(&mut self, at: &Path, depth: usize) {
        for name in self.directories(at) {
            let below = at.join(name);
            if git::passes_for_one(&self.folder, &below).unwrap_or(false) {
                self.git_directory(&below, false);
            } else if depth < DEEPEST {
                self.modules(&below, depth + 1);
            }
        }
    }

    fn directories(&self, at: &Path) -> Vec<std::ffi::OsString> {
        let names = self.folder.list(at, self.left).unwrap_or_default();
        names.into_iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| name).collect()
    }

    fn configuration(&mut self, path: &Path) {
        match self.folder.kind(path) {
            Ok(None) => return,
            Ok(Some(Kind::File | Kind::Program)) => {}
            Ok(_) => return self.tell(path, "is not a file of its own"),
            Err(error) => return self.unread(path, &error),
        }
        match self.folder.read(path).and_then(|text| config::parse(&text)) {
            Ok(entries) => {
                for entry in entries.iter().filter(|entry| runs(entry)) {
                    self.tell(path, format!("{} = {}", entry.name(), entry.value));
                }
            }
            Err(error) => self.unread(path, &error),
        }
    }

    fn hooks(&mut self, at: &Path) {
        match self.folder.kind(at) {
            Ok(Some(Kind::Folder)) => {}
            Ok(None) => return,
            _ => return self.tell(at, "is not a directory of its own"),
        }
        for (name, _) in self.folder.list(at, self.left).unwrap_or_default() {
            let path = at.join(&name);
            let sample = Path::new(&name).extension() == Some(OsStr::new("sample"));
            if !sample && matches!(self.folder.kind(&path), Ok(Some(Kind::Program | Kind::Link))) {
                self.tell(&path, "git runs this hook");
            }
        }
    }

    fn order(&mut self, path: &Path, key: &str, what: &str) {
        let found = self.folder.read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(key));
        if found {
            self.tell(path, format!("{key}: {what}"));
        }
    }

    fn programs(&mut self, at: &Path, depth: usize) {
        for (name, is_directory) in self.folder.list(at, self.left).unwrap_or_default() {
            let path = at.join(name);
            if is_directory && depth < DEEPEST {
                self.programs(&path, depth + 1);
            } else if matches!(self.folder.kind(&path), Ok(Some(Kind::Program))) {
                self.tell(&path, "a program in a directory of settings");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn repository(root: &Path, at: &str) {
        for path in ["HEAD", "config"] {
            write(root, &format!("{at}/{path}"), "");
        }
        for path in ["objects", "refs", "hooks"] {
            fs::create_dir_all(root.join(at).join(path)).unwrap();
        }
    }

    fn found(root: &Path) -> Vec<String> {
        let prefix = format!("{}/", root.display());
        scan(root).unwrap().iter().map(|line| line.replacen(&prefix, "", 1)).collect()
    }

    #[test]
    fn an_ordinary_project_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        repository(root.path(), ".git");
        write(root.path(), ".git/hooks/pre-commit.sample", "#!/bin/sh\n");
        write(
            root.path(),
            ".git/config",
            "[core]\nfsmonitor = true\n[remote \"origin\"]\nurl = x\n[filter \"lfs\"]\nclean = git-lfs clean -- %f\n",
        );
        repository(root.path(), ".git/modules/lib");
        write(root.path(), "lib/.git", "gitdir: ../.git/modules/lib\n");
        write(root.path(), ".git/worktrees/w/commondir", "../..\n");
        write(root.path(), ".git/commondir", ".\n");
        write(root.path(), ".vscode/tasks.json", "{}");
        symlink("/etc", root.path().join("etc")).unwrap();
        assert_eq!(found(root.path()), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_runs_is_one_line() {
        let root = tempfile::tempdir().unwrap();
        let r = root.path();
        repository(r, ".git");
        repository(r, "src/deep/.git");
        write(r, "src/deep/.git/config", "[core]\n fsmonitor = ./x\n[alias]\n s = !sh\n c = commit\n");
        repository(r, "bare");
        write(r, "bare/config", "[filter \"f\"]\nsmudge = sh -c x\n");
        write(r, "linked/.git", "gitdir: ../elsewhere\n");
        write(r, ".git/commondir", "/tmp\n");
        write(r, ".git/worktrees/w/commondir", "/tmp\n");
        write(r, ".git/modules/m/HEAD", "");
        write(r, ".git/modules/m/commondir", "/tmp\n");
        write(r, ".git/rebase-merge/git-rebase-todo", "pick a\nexec sh\n");
        write(r, ".git/hooks/post-checkout", "#!/bin/sh\n");
        fs::set_permissions(r.join(".git/hooks/post-checkout"), fs::Permissions::from_mode(0o755)).unwrap();
        repository(r, ".git/modules/a/b");
        write(r, ".git/modules/a/b/config", "[core]\nsshCommand = x\n");
        write(r, ".vscode/tasks.json", "{\"runOptions\": {\"runOn\": \"folderOpen\"}}");
        write(r, ".idea/run", "");
        fs::set_permissions(r.join(".idea/run"), fs::Permissions::from_mode(0o755)).unwrap();
        let found = found(r);
        for line in [
            ".git/commondir: makes git read",
            ".git/worktrees/w/commondir: makes git read",
            ".git/modules/m/commondir: makes git read",
            ".git/rebase-merge/git-rebase-todo: `git rebase --continue`",
            ".git/hooks/post-checkout: git runs this hook",
            ".git/modules/a/b/config: core.sshcommand = x",
            ".vscode/tasks.json: \"runOn\"",
            ".idea/run: a program",
            "bare: a repository without",
            "bare/config: filter.f.smudge = sh -c x",
            "src/deep/.git: a repository within",
            "src/deep/.git/config: core.fsmonitor = ./x",
            "src/deep/.git/config: alias.s = !sh",
            "linked/.git: makes git go by",
        ] {
            assert_eq!(
                found.iter().filter(|found| found.starts_with(line)).count(),
                1,
                "{line} in {found:#?}"
            );
        }
        assert_eq!(found.len(), 14, "{found:#?}");
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_told_and_not_followed() {
        let root = tempfile::tempdir().unwrap();
        repository(root.path(), ".git");
        fs::remove_file(root.path().join(".git/config")).unwrap();
        symlink("/etc/passwd", root.path().join(".git/config")).unwrap();
        assert_eq!(found(root.path()), [".git/config: is not a file of its own"]);
        assert!(scan(&root.path().join("absent")).is_err());
    }
}
