//! A mounted project stays its owner's: git works in it, and what programs of the host run cannot be changed.

mod git;
mod given;
mod held;
mod host;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use understudy_integration_tests::podman::{Outcome, run};
use understudy_integration_tests::stand::Agent;

use crate::{assert_refused, stand};

struct Project(tempfile::TempDir);

impl Project {
    /// One commit on `main`, a branch `other`, a remote with one commit more, a submodule's place, and files of tools.
    fn new() -> Self {
        let project = Self(tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap());
        project.host(
            r#"
            git init --quiet --initial-branch=main work && cd work
            git config user.name test && git config user.email test@example.invalid
            mkdir .vscode .claude && echo '{}' >.vscode/tasks.json && echo '{}' >.claude/settings.json
            echo one >file && echo 'use flake' >.envrc && git add -A && git commit --quiet -m one
            git branch other && git clone --quiet --bare . ../remote.git
            git clone --quiet ../remote.git ../second && cd ../second
            git -c user.name=x -c user.email=x@example.invalid commit --quiet --allow-empty -m two
            git push --quiet origin main && cd ../work && git remote add origin ../remote.git
            "#,
        );
        project
    }

    fn host(&self, script: &str) -> String {
        let mut sh = Command::new("sh");
        sh.args(["-euc", script]).current_dir(self.0.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        run(&mut sh, b"").unwrap().success().unwrap()
    }

    fn work(&self) -> std::path::PathBuf {
        self.0.path().join("work")
    }

    fn agent(&self) -> Agent {
        Agent::generic()
            .option(&format!("--volume={}:/p", self.0.path().display()))
            .option("--workdir=/p/work")
            .option("--env=HOME=/tmp")
    }

    fn shell(&self, script: &str) -> Outcome {
        self.agent().shell(script).unwrap()
    }

    fn files(&self) -> BTreeSet<String> {
        fn walk(at: &Path, all: &mut BTreeSet<String>) {
            for entry in fs::read_dir(at).unwrap().flatten() {
                all.insert(entry.path().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), all);
                }
            }
        }
        let mut all = BTreeSet::new();
        walk(self.0.path(), &mut all);
        all
    }
}

#[test]
fn git_works_in_a_guarded_project_and_leaves_it_as_it_would() {
    stand();
    let project = Project::new();
    let outcome = project.shell(
        r#"set -eux
        git status --short
        echo two >>file; git add file; git commit -m change
        git switch -c feature; echo three >new; git add new; git commit -m feature
        git switch main; git merge --no-edit feature
        git fetch origin; git merge --no-edit origin/main
        git stash list; git tag v1; git gc --quiet
        git worktree add ../linked other; git -C ../linked log --oneline; git worktree remove ../linked
        git rebase --quiet origin/main; git push origin main
        "#,
    );
    assert_eq!(outcome.code, Some(0), "{}", outcome.text());
    let log = project.host("git -C work log --format=%s; git -C work status --short");
    for subject in ["change", "feature", "two", "one"] {
        assert!(log.lines().any(|line| line == subject), "{log}");
    }
    assert!(!log.contains("??"), "{log}");
}

#[test]
fn what_programs_of_the_host_run_cannot_be_changed() {
    stand();
    let project = Project::new();
    let before = project.files();
    for attempt in [
        "echo x >.git/hooks/post-checkout",
        "touch .git/hooks/x",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/gone",
        "echo x >>.git/config",
        "git config core.fsmonitor ./x",
        "mv .git/config .git/gone",
        "ln -sf /tmp/x .git/config",
        "mv .git gone",
        "rm -rf .git 2>/dev/null",
        "echo /p/evil >.git/commondir",
        "rm -f .git/commondir",
        "mv ../work ../gone",
        "echo x >.envrc",
        "rm -f .envrc",
        "mv .envrc gone",
        "echo x >.vscode/tasks.json",
        "touch .vscode/settings.json",
        "mv .vscode gone",
        "echo x >.claude/settings.json",
        "mv .claude gone",
        "umount .git/hooks",
    ] {
        let outcome = project.shell(&format!("cp -a .git /tmp/git; {{ {attempt}; }} && echo it worked"));
        assert!(!outcome.stdout.contains("it worked"), "{attempt}: {}", outcome.text());
        if attempt.starts_with("rm -rf .git 2") {
            // what is not guarded goes: the repository's content is the agent's to change
            project.host("rm -rf work/.git; git init --quiet work; git -C work config user.name x");
        }
    }
    let made: Vec<_> =
        project.files().difference(&before).filter(|path| path.contains("remote.git")).cloned().collect();
    let stays = ["commondir", "config.worktree"]
        .map(|name| format!("{}/remote.git/{name}", project.0.path().display()));
    assert_eq!(made, stays);
    let tools = |files: &BTreeSet<String>| -> BTreeSet<String> {
        let of_tools = |path: &&String| !path.contains("/.git/") && !path.contains("/remote.git/");
        files.iter().filter(of_tools).cloned().collect()
    };
    assert_eq!(tools(&project.files()), tools(&before), "nothing is left on the host, and nothing gone");
    assert_eq!(fs::read_to_string(project.work().join(".envrc")).unwrap(), "use flake\n");
}

#[test]
fn it_holds_with_a_user_namespace_and_a_read_only_root() {
    stand();
    let project = Project::new();
    for option in ["--userns=keep-id", "--read-only"] {
        let agent = project.agent().option(option);
        let outcome = agent.shell(
            "echo x >>file; git commit -qam more && echo committed; touch .git/hooks/x && echo worked",
        );
        let outcome = outcome.unwrap();
        assert_eq!(outcome.stdout, "committed\n", "{option}: {}", outcome.text());
    }
}

#[test]
fn a_folder_without_a_repository_gets_nothing() {
    stand();
    let directory = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let volume = format!("--volume={}:/work", directory.path().display());
    Agent::generic().option(&volume).run(&["true"]).unwrap().success().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_named_may_be_written_and_a_read_only_mount_stays_one() {
    stand();
    let project = Project::new();
    let relaxed = project.agent().annotation("understudy.workspace", "direnv git-config");
    relaxed.shell("echo mine >.envrc && git config x.y z").unwrap().success().unwrap();
    assert_eq!(fs::read_to_string(project.work().join(".envrc")).unwrap(), "mine\n");
    let refused = relaxed.shell("echo x >.git/hooks/post-merge && echo it worked").unwrap();
    assert!(!refused.stdout.contains("it worked"), "{}", refused.text());
    let off = project.agent().annotation("understudy.workspace", "off");
    off.shell("touch .git/hooks/post-merge").unwrap().success().unwrap();

    let inner = format!("--volume={}/.git:/p/work/.git:ro", project.work().display());
    let outcome = project.agent().option(&inner).shell("touch .git/x && echo it worked").unwrap();
    assert!(
        !outcome.stdout.contains("it worked") && outcome.stderr.contains("ead-only"),
        "{}",
        outcome.text()
    );
    let outcome = project.shell("env | grep UNDERSTUDY_NOTES -A9");
    assert!(outcome.stdout.contains("/p/second/.git/hooks"), "{}", outcome.text());
}

#[test]
fn links_in_the_place_of_what_is_guarded_are_refused() {
    stand();
    let project = Project::new();
    let home = std::env::var("HOME").unwrap();
    fs::create_dir_all(format!("{home}/.ssh")).unwrap();
    fs::remove_dir_all(project.work().join(".git/hooks")).unwrap();
    std::os::unix::fs::symlink(format!("{home}/.ssh"), project.work().join(".git/hooks")).unwrap();
    assert_refused(&project.shell("echo it ran"), "symbolic link");
}

#[test]
fn scan_finds_what_was_left_behind() {
    let stand = stand();
    let project = Project::new();
    let scan = || {
        let mut scan = Command::new(stand.paths.program("understudy-hook"));
        run(scan.arg("scan").arg(project.work()), b"").unwrap()
    };
    assert_eq!(scan().code, Some(0), "{}", scan().text());
    project
        .shell("git init -q nested && git -C nested config core.fsmonitor ./evil && echo /p/evil >nested/.git/commondir")
        .success()
        .unwrap();
    let found = scan();
    assert_eq!(found.code, Some(1), "{}", found.text());
    for line in ["nested/.git/config: core.fsmonitor = ./evil", "nested/.git/commondir: makes git read"] {
        assert!(found.stdout.contains(line), "{}", found.stdout);
    }
    // and the next start says so as well
    assert_refused(&project.shell("echo it ran"), ".git/commondir");
}

#[test]
fn scan_finds_what_git_status_would_enter() {
    let stand = stand();
    let project = Project::new();
    let ran = project.0.path().join("ran");
    // one of these is what a submodule that was not fetched becomes, and the index can be made to name any directory
    let planted = format!(
        "git init -q lib; git -C lib config core.fsmonitor 'touch {}; false'; \
         git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),lib",
        ran.display()
    );
    project.shell(&planted).success().unwrap();
    let mut scan = Command::new(stand.paths.program("understudy-hook"));
    let found = run(scan.arg("scan").arg(project.work()), b"").unwrap();
    assert!(found.stdout.contains("lib/.git: a repository within"), "{}", found.text());
    assert!(found.stdout.contains("lib/.git/config: core.fsmonitor"), "{}", found.text());
    assert!(!ran.exists(), "scan ran it");
    project.host("git -C work status");
    assert!(ran.exists(), "git does not enter it: the documentation is not true");
}
