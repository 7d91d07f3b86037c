//! The host goes on with git and editors while a container has the project: what it replaces stays guarded, and a container that
//! uses the moment is ended.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use understudy_integration_tests::podman::{Container, run, until};

use super::Project;
use crate::stand;

/// Renames of the host's that a container races for. More of them if it is asked for.
const RENAMES: usize = 200;

pub(super) fn runs(container: &Container) -> bool {
    container.inspect("{{.State.Running}}").unwrap() == "true"
}

pub(super) fn why(container: &Container) -> String {
    let mut why = Command::new(stand().paths.program("understudy-hook"));
    run(why.args(["why", &container.name]), b"").unwrap().text()
}

pub(super) fn ended(container: &Container) -> String {
    let end = until("its end", || Ok(!runs(container)));
    assert!(end.is_ok(), "it was not ended: {:?} {}", container.logs(), why(container));
    let mut told = String::new();
    until("the reason", || {
        told = why(container);
        Ok(told.contains("was ended"))
    })
    .unwrap();
    told
}

/// Processes on the host that are in the container's mount namespace and are not the container's: the hook's.
fn watchers(container: &Container) -> Vec<PathBuf> {
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let theirs = of(&container.pid().unwrap().to_string()).unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|at| {
        let command = fs::read(at.join("cmdline")).unwrap_or_default();
        let pid = at.file_name().unwrap().to_string_lossy().into_owned();
        command.starts_with(b"/proc/self/exe\0watch\0") && of(&pid).as_ref() == Some(&theirs)
    })
    .collect()
}

#[test]
fn what_the_host_replaces_stays_guarded() {
    stand();
    let project = Project::new();
    project.host(
        "cd work && git init -q --bare ../another.git && echo 'FROM x' >Containerfile && git worktree add -q ../linked other",
    );
    let container = project.agent().start(&["sleep", "1000"]).unwrap();
    let watchers = watchers(&container);
    assert_eq!(watchers.len(), 1, "{watchers:?}");
    for (host, file) in [
        ("git -C work config user.name other", ".git/config"),
        ("git -C work remote add another ../another.git", ".git/config"),
        ("git -C work push -q -u another main", ".git/config"),
        ("for i in 1 2 3 4 5 6 7 8 9; do git -C work config a.b$i c; done", ".git/config"),
        ("git -C linked config of.all worktrees", ".git/config"),
        ("git -C work sparse-checkout set --no-cone '/*'", ".git/config.worktree"),
        ("git -C linked sparse-checkout set --no-cone '/*'", ".git/worktrees/linked/config.worktree"),
        (
            "git -C work status; git -C linked status; git -C work sparse-checkout disable",
            ".git/config.worktree",
        ),
        ("git -C work worktree add -q ../more && git -C work worktree remove ../more", ".git/config"),
        ("sed -i s/flake/other/ work/.envrc", ".envrc"),
        ("rm work/.envrc; echo new >work/.envrc", ".envrc"),
        ("echo FROM y >work/Containerfile", "Containerfile"),
        ("sed -i s/}/}/ work/.claude/settings.json", ".claude/settings.json"),
    ] {
        project.host(host);
        let before = fs::read(project.work().join(file)).unwrap();
        sleep(Duration::from_millis(100));
        assert!(runs(&container), "{host}: {}", why(&container));
        let script = format!(
            "{{ echo evil >>{file}; }} 2>/dev/null && echo written; mv {file} gone 2>/dev/null && echo moved; \
             rm -f {file} 2>/dev/null && echo removed; cat {file}"
        );
        let outcome = container.exec(&["sh", "-c", &script]).unwrap();
        assert_eq!(outcome.stdout.as_bytes(), before, "{host}: {}", outcome.text());
        assert_eq!(fs::read(project.work().join(file)).unwrap(), before, "{host}");
    }
    let works = "echo x >>file && git commit -qam more && git switch -qc another";
    assert_eq!(container.exec(&["sh", "-c", works]).unwrap().success().unwrap(), "");
    drop(container);
    until("the end of what watched", || Ok(!watchers.iter().any(|at| at.exists()))).unwrap();
}

#[test]
fn a_container_that_prepares_what_the_host_renames_is_ended() {
    stand();
    for (attempt, reason) in [
        ("exec 3>>.git/config.lock", "open for writing"),
        ("ln .git/config.lock .git/other", "another name"),
        ("printf '[core]\\n\\tfsmonitor = ./evil\\n' >>.git/config.lock", "core.fsmonitor"),
    ] {
        let project = Project::new();
        project.host("cp work/.git/config work/.git/config.lock");
        let script = format!("{attempt}; touch /tmp/done; while :; do sleep 1; done");
        let container = project.agent().start(&["sh", "-c", &script]).unwrap();
        until("the attempt", || Ok(container.exec(&["test", "-e", "/tmp/done"])?.code == Some(0))).unwrap();
        project.host("mv work/.git/config.lock work/.git/config");
        let told = ended(&container);
        assert!(
            told.contains(reason) && told.contains("/work/.git/config was replaced"),
            "{attempt}: {told}"
        );
    }
}

/// What the container does all the time; the mark is in what it writes.
const RACERS: [&str; 2] = [
    "while :; do { echo '#evil' >>.git/config; } 2>/dev/null; done",
    "printf '[core]\\n\\tfsmonitor = ./evil\\n' >.git/evil; while :; do cp .git/evil .git/next; mv -f .git/next .git/config; done 2>/dev/null",
];

#[test]
fn a_container_that_races_the_host_never_wins() {
    stand();
    let project = Project::new();
    let config = project.work().join(".git/config");
    let clean = fs::read(&config).unwrap();
    let lock = project.work().join(".git/config.lock");
    let mut ends = 0;
    for racer in RACERS {
        let start = || project.agent().start(&["sh", "-c", racer]).unwrap();
        let mut container = start();
        for _ in 0..RENAMES / RACERS.len() {
            // As git does it.
            fs::write(&lock, &clean).unwrap();
            fs::rename(&lock, &config).unwrap();
            sleep(Duration::from_millis(20));
            if fs::read_to_string(&config).unwrap().contains("evil") {
                let told = ended(&container);
                assert!(told.contains(".git/config was replaced"), "{told}");
                ends += 1;
                drop(container);
                fs::write(&config, &clean).unwrap();
                container = start();
            }
        }
        sleep(Duration::from_millis(200));
        // Nothing that it does now changes the file, if it lives.
        assert!(!fs::read_to_string(&config).unwrap().contains("evil") || !runs(&container), "it won");
    }
    println!("{ends} of {RENAMES} times the container was ended");
}

#[test]
fn a_container_with_guards_makes_no_mount_namespace_in_which_they_would_be_lost() {
    stand();
    let project = Project::new();
    let attempt =
        "unshare --map-root-user --mount true && echo made; (echo forked); git log --format=%s | head -n1";
    for profile in ["--label=profile=podmans", "--security-opt=seccomp=unconfined"] {
        let outcome = project.agent().option(profile).shell(attempt).unwrap();
        assert_eq!(outcome.stdout, "forked\none\n", "{profile}: {}", outcome.text());
        let without = project.agent().option(profile).annotation("understudy.workspace", "off");
        let outcome = without.shell(attempt).unwrap();
        assert_eq!(outcome.stdout, "made\nforked\none\n", "{profile}: {}", outcome.text());
    }
}
