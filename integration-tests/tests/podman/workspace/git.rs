//! The repositories to which one leads: submodules and linked worktrees, wherever they are, stay whose they are.

use super::Project;
use crate::stand;

/// `work` with a submodule in `vendor/lib`, which has one in `a/b/c/d/inner`; `linked`, a worktree; configuration for each
/// worktree of `work` and of the submodule.
fn project() -> Project {
    let project = Project::new();
    project.host(
        r"
        export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
        export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
        git init -q inner && git -C inner commit -q --allow-empty -m x
        git init -q lib && cd lib && git submodule --quiet add ../inner a/b/c/d/inner && git commit -qm x && cd ..
        cd work && git submodule --quiet add ../lib vendor/lib && git commit -qm x
        git submodule --quiet update --init --recursive && git worktree add -q ../linked
        git config extensions.worktreeConfig true && git -C vendor/lib config extensions.worktreeConfig true
        rm -f .git/modules/vendor/lib/config.worktree
        ",
    );
    project
}

/// Whether git on the host runs what the container left.
fn runs(project: &Project, attempt: &str, relaxed: &str) -> bool {
    let at = project.0.path().display();
    // `git` on the host calls it in the repository that it is led to
    let ran = project.0.path().join("ran");
    let script = format!(
        "set +e; monitor='touch {ran}; false'; evil='gitdir: {at}/evil/.git'
         program() {{ mkdir -p $(dirname $1); printf '#!/bin/sh\ntouch {ran}\n' >$1; chmod +x $1; }}
         git init -q ../evil; git -C ../evil config core.fsmonitor \"$monitor\"
         {{ {attempt}; }} 2>/dev/null; exit 0",
        ran = ran.display()
    );
    let agent = project.agent().annotation("understudy.workspace", relaxed);
    agent.shell(&script).unwrap().success().unwrap();
    project.host(
        "for at in work linked work/vendor/lib work/vendor/lib/a/b/c/d/inner; do git -C $at status || true; done
         for at in work linked; do git -C $at checkout --quiet -b of-$at || true; done",
    );
    ran.exists()
}

#[test]
fn no_submodule_or_worktree_is_made_to_run_something() {
    stand();
    for attempt in [
        "echo $evil >vendor/lib/.git",
        "mv vendor gone; mkdir -p vendor/lib; echo $evil >vendor/lib/.git",
        "echo $evil >vendor/lib/a/b/c/d/inner/.git",
        "mv vendor/lib/a gone; mkdir -p vendor/lib/a/b/c/d/inner; echo $evil >vendor/lib/a/b/c/d/inner/.git",
        "git config -f .git/modules/vendor/lib/config core.fsmonitor \"$monitor\"",
        "git config -f .git/modules/vendor/lib/modules/a/b/c/d/inner/config core.fsmonitor \"$monitor\"",
        "git config -f .git/config.worktree core.fsmonitor \"$monitor\"",
        "git config -f .git/worktrees/linked/config.worktree core.fsmonitor \"$monitor\"",
        "git config -f .git/modules/vendor/lib/config.worktree core.fsmonitor \"$monitor\"",
    ] {
        assert!(!runs(&project(), attempt, ""), "{attempt}");
        assert!(runs(&project(), attempt, "off"), "nothing is shown by: {attempt}");
    }
}

#[test]
fn what_the_configuration_leads_to_is_not_made_or_changed() {
    stand();
    let project = || {
        let project = Project::new();
        project.host(
            r"
            cd work && mkdir tools && printf '#!/bin/sh\nfalse\n' >tools/monitor && chmod +x tools/monitor
            git config core.fsmonitor ./tools/monitor && git config core.hooksPath hooks/own
            git config include.path ../conf/git && git worktree add -q ../linked
            ",
        );
        project
    };
    for attempt in [
        "program hooks/own/post-checkout",
        "program ../linked/hooks/own/post-checkout",
        "mkdir conf; git config -f conf/git core.fsmonitor \"$monitor\"",
        "program tools/monitor",
        "mv tools gone; program tools/monitor",
    ] {
        assert!(!runs(&project(), attempt, ""), "{attempt}");
        assert!(runs(&project(), attempt, "off"), "nothing is shown by: {attempt}");
    }
}

/// git reads it only once the host has switched that on.
#[test]
fn a_worktrees_own_configuration_cannot_be_prepared_for_the_day_that_it_is_read() {
    stand();
    let ran = |git: &str, work_tree: &str, relaxed: &str| {
        let project = project();
        project.host(
            "for at in work work/vendor/lib; do git -C $at config --unset extensions.worktreeConfig; done
             find work/.git -name config.worktree -delete",
        );
        let ran = project.0.path().join("ran");
        let attempt =
            format!("git config -f {git}/config.worktree core.fsmonitor 'touch {}; false'", ran.display());
        let agent = project.agent().annotation("understudy.workspace", relaxed);
        agent.shell(&format!("{attempt}; git status >/dev/null")).unwrap().success().unwrap();
        project.host(&format!("git -C {work_tree} status"));
        assert!(!ran.exists(), "{git}: it is read in any case");
        project.host(&format!(
            "git -C {work_tree} sparse-checkout set --no-cone '/*'; git -C {work_tree} status"
        ));
        ran.exists()
    };
    for (git, work_tree) in [
        (".git", "work"),
        (".git/worktrees/linked", "linked"),
        (".git/modules/vendor/lib", "work/vendor/lib"),
    ] {
        assert!(!ran(git, work_tree, ""), "{git}");
        assert!(ran(git, work_tree, "off"), "nothing is shown by: {git}");
    }
}
