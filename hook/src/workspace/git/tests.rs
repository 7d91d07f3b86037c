//! With repositories that git itself makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::folder::{Folder, Make};
use super::super::plan::{Plan, Unguardable, Users};
use super::super::protected::Relaxed;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new(script: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.run(script);
        tree
    }

    fn run(&self, script: &str) {
        let mut sh = Command::new("sh");
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            sh.env(format!("{who}_NAME"), "x").env(format!("{who}_EMAIL"), "x@example.invalid");
        }
        sh.args(["-euc", script]).current_dir(self.0.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        sh.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "protocol.file.allow");
        sh.env("GIT_CONFIG_VALUE_0", "always");
        let output = sh.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    /// Of the directory `at` of it.
    fn tried(&self, at: &str) -> Result<Plan, Unguardable> {
        let at = self.path().join(at);
        let homes = [self.path().join("home")];
        Plan::of(&Folder::open(&at).unwrap(), &at, &Relaxed::default(), &Users::at(&homes))
    }

    fn plan(&self, at: &str) -> Plan {
        self.tried(at).unwrap()
    }
}

fn assert_guarded(plan: &Plan, paths: &[&str]) {
    for path in paths {
        assert!(plan.read_only.contains(Path::new(path)), "{path} in {:#?}", plan.read_only);
    }
}

/// `work` with a submodule in `vendor/lib`, which has one in `a/b/c/d/inner`.
const SUBMODULES: &str = "
    git init -q inner && git -C inner commit -q --allow-empty -m x
    git init -q lib && cd lib && git submodule --quiet add ../inner a/b/c/d/inner && git commit -qm x && cd ..
    git init -q work && cd work && git submodule --quiet add ../lib vendor/lib && git commit -qm x
    git submodule --quiet update --init --recursive && touch vendor/lib/.envrc && cd ..
    rm -rf inner lib";

#[test]
fn submodules_are_guarded_wherever_they_are() {
    let tree = Tree::new(SUBMODULES);
    let plan = tree.plan("work");
    let inner = "vendor/lib/a/b/c/d/inner/.git";
    let guarded = [
        "vendor/lib/.git",
        inner,
        "vendor/lib/.envrc",
        ".git/modules/vendor/lib/config",
        ".git/modules/vendor/lib/hooks",
        ".git/modules/vendor/lib/modules/a/b/c/d/inner/config",
        ".git/modules/vendor/lib/modules/a/b/c/d/inner/hooks",
    ];
    assert_guarded(&plan, &guarded);
    for pinned in ["vendor", "vendor/lib", "vendor/lib/a/b/c/d", ".git/modules/vendor/lib/modules"] {
        assert!(plan.pinned.contains(Path::new(pinned)), "{pinned}");
    }
    // out of the index, the submodule's own configuration names them
    tree.run("cd work && git rm -qf --cached vendor/lib");
    assert_guarded(&tree.plan("work"), &guarded);
}

#[test]
fn a_repository_in_the_index_needs_no_module() {
    let tree = Tree::new(
        "git init -q work && cd work && for at in vendor/lib a/b/c/d/lib; do
         git init -q $at && git -C $at commit -q --allow-empty -m x && git -c advice.addEmbeddedRepo=false add $at; done",
    );
    let guarded = ["vendor/lib/.git/config", "vendor/lib/.git/hooks", "a/b/c/d/lib/.git/config"];
    assert_guarded(&tree.plan("work"), &guarded);
    tree.run("cd work && git update-index --split-index");
    assert_guarded(&tree.plan("work"), &guarded);
    tree.run("cd work && git update-index --no-split-index && git rm -qf --cached vendor/lib");
    assert!(!tree.plan("work").read_only.contains(Path::new("vendor/lib/.git/config")));
}

#[test]
fn an_index_that_is_not_understood_is_refused() {
    let tree = Tree::new("git init -q work && printf 'DIRC\\0\\0\\0\\011\\0\\0\\0\\0' >work/.git/index");
    let error = tree.tried("work").unwrap_err().to_string();
    assert!(error.contains("work/.git/index"), "{error}");
}

#[test]
fn a_submodule_that_is_not_fetched_stays_empty_and_can_be() {
    let tree = Tree::new(SUBMODULES);
    tree.run("git clone -q work copy");
    let plan = tree.plan("copy");
    assert!(!plan.read_only.contains(Path::new("vendor/lib")), "{plan:?}");
}

#[test]
fn linked_worktrees_and_their_submodules_are_found_by_the_main_repository() {
    let tree = Tree::new(SUBMODULES);
    tree.run("mv work main && cd main && git worktree add -q ../x/target/a/b/linked");
    tree.run("cd x/target/a/b/linked && git submodule --quiet update --init || git -C vendor/lib init -q");
    let plan = tree.plan("");
    assert_guarded(
        &plan,
        &[
            "x/target/a/b/linked/.git",
            "main/.git/worktrees/linked/commondir",
            "main/.git/worktrees/linked/gitdir",
        ],
    );
    // the other way: the main repository is where nobody looks
    tree.run("mkdir target && mv main target/main && cd target/main && git worktree repair ../../x/target/a/b/linked");
    tree.run("mv x/target/a/b/linked linked && git -C target/main worktree repair ../../linked");
    assert_guarded(&tree.plan(""), &["linked/.git", "target/main/.git/config", "target/main/.git/hooks"]);
}

#[test]
fn a_linked_worktrees_submodules_are_in_a_place_of_their_own() {
    let tree = Tree::new(
        "git init -q lib && git -C lib commit -q --allow-empty -m x && git init -q main && cd main
         git submodule --quiet add ../lib vendor/lib && git commit -qm x && git worktree add -q ../linked
         cd ../linked && git submodule --quiet update --init",
    );
    let guarded = [
        "linked/vendor/lib/.git",
        "main/.git/worktrees/linked/modules/vendor/lib/config",
        "main/.git/worktrees/linked/modules/vendor/lib/hooks",
    ];
    assert_guarded(&tree.plan(""), &guarded);
    // by its own index, too
    tree.run("rm -r main/.git/worktrees/linked/modules/vendor/lib/config");
    assert_guarded(&tree.plan(""), &guarded[..1]);
}

#[test]
fn a_worktrees_own_configuration_is_made_where_git_reads_it() {
    let tree = Tree::new(SUBMODULES);
    tree.run(
        "git -C work worktree add -q ../linked && git -C work/vendor/lib worktree add -q ../../../other",
    );
    // Whether it is read by now or not.
    let all = tree.plan("work").to_make;
    let own: Vec<_> = all.iter().filter(|(path, _)| path.ends_with("config.worktree")).collect();
    let module = ".git/modules/vendor/lib";
    let expected = [
        ".git/config.worktree".to_owned(),
        format!("{module}/config.worktree"),
        format!("{module}/modules/a/b/c/d/inner/config.worktree"),
        format!("{module}/worktrees/other/config.worktree"),
        ".git/worktrees/linked/config.worktree".to_owned(),
    ];
    let expected: Vec<_> = expected.into_iter().map(PathBuf::from).collect();
    assert_eq!(own, expected.iter().map(|path| (path, &Make::File(""))).collect::<Vec<_>>());
}

#[test]
fn a_git_directory_that_leads_elsewhere_is_refused() {
    for script in [
        "mkdir -p .git/modules/evil && cp .git/HEAD .git/modules/evil && echo /tmp/evil >.git/modules/evil/commondir",
        "git worktree add -q ../linked && echo /tmp/evil >.git/worktrees/linked/commondir",
        "git worktree add -q ../linked && echo ../../x >.git/worktrees/linked/commondir",
    ] {
        let tree = Tree::new("git init -q work && git -C work commit -q --allow-empty -m x");
        tree.run(&format!("cd work && {script}"));
        for at in ["work", "work/.git"] {
            let error = tree.tried(at).unwrap_err().to_string();
            assert!(error.contains("commondir"), "{at}: {script}: {error}");
        }
    }
}

#[test]
fn what_a_git_file_names_and_is_not_there_cannot_be_made() {
    let tree =
        Tree::new("git init -q work && mkdir work/lib && echo 'gitdir: ../.git/modules/a/b' >work/lib/.git");
    let plan = tree.plan("work");
    assert_guarded(&plan, &["lib/.git", ".git/modules/a/b"]);
    let made: Vec<_> = plan.to_make.keys().map(|path| path.to_str().unwrap()).collect();
    let order: Vec<_> = made.into_iter().filter(|path| path.contains("modules")).collect();
    assert_eq!(order, [".git/modules", ".git/modules/a", ".git/modules/a/b"]);
}

/// The paths that are to be made, in order.
fn made(plan: &Plan) -> Vec<&str> {
    plan.to_make.keys().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn hooks_and_includes_that_are_not_there_are_made() {
    let tree = Tree::new(
        "git init -q work && cd work && git config core.hooksPath .husky/_ && git config include.path ../conf/git",
    );
    let plan = tree.plan("work");
    assert_guarded(&plan, &[".husky/_", ".git/.husky/_", "conf/git"]);
    for (path, what) in
        [(".husky/_", Make::Directory), (".husky", Make::Directory), ("conf/git", Make::File(""))]
    {
        assert_eq!(plan.to_make.get(Path::new(path)), Some(&what), "{path} in {:?}", plan.to_make);
    }
    // what has a file on its way cannot be made while that stays
    tree.run("touch work/.husky");
    let plan = tree.plan("work");
    assert_guarded(&plan, &[".husky"]);
    assert!(!made(&plan).contains(&".husky/_"));
}

#[test]
fn a_submodules_hooks_are_run_in_its_work_tree_and_for_pushes_in_its_git_directory() {
    let tree = Tree::new(SUBMODULES);
    tree.run(
        "git -C work/vendor/lib config core.hooksPath hk && git -C work worktree add -q ../x && mv x work/x",
    );
    tree.run("git -C work worktree repair x && git -C work config core.hooksPath of-main");
    assert_guarded(
        &tree.plan("work"),
        &["vendor/lib/hk", ".git/modules/vendor/lib/hk", "of-main", ".git/of-main", "x/of-main"],
    );
}

#[test]
fn a_worktrees_own_and_included_configuration_is_followed() {
    let tree = Tree::new(SUBMODULES);
    tree.run(
        "cd work && git config extensions.worktreeConfig true && git config --worktree core.hooksPath own
         git config include.path ../../outside && printf '[core]\\nhooksPath = by-outside\\n' >../outside
         printf '[include]\\npath = a\\n' >>../outside && printf '[include]\\npath = work/b\\n' >../a",
    );
    assert_guarded(&tree.plan("work"), &["own", "by-outside", "b"]);
}

#[test]
fn what_the_users_configuration_names_in_the_mount_is_guarded() {
    let tree = Tree::new(SUBMODULES);
    tree.run(
        "mkdir -p home/.config/git && ln -s ../work home/link && touch work/monitor
         printf '[core]\\nhooksPath = .githooks\\n' >home/.gitconfig
         printf '[includeIf \"gitdir:x\"]\\npath = ~/link/included\\n[core]\\nfsmonitor = ./monitor\\n' >home/.config/git/config",
    );
    let plan = tree.plan("work");
    assert_guarded(&plan, &[".githooks", "vendor/lib/.githooks", "included", "monitor"]);
    assert!(!plan.read_only.contains(Path::new("vendor/lib/monitor")));
    // What is the user's own by a link, there or not.
    tree.run(
        "mkdir work/dotfiles && mv home/.gitconfig work/dotfiles/gitconfig
         rm home/.config/git/config && ln -s ../work/dotfiles/gitconfig home/.gitconfig
         ln -s ../../../work/dotfiles/absent home/.config/git/config",
    );
    assert_guarded(&tree.plan("work"), &["dotfiles/gitconfig", ".githooks"]);
    // Nobody else's mistake keeps a container from starting; a repository's own does.
    tree.run("rm home/.gitconfig && printf '[core]\\nhooksPath = /\\n' >home/.gitconfig");
    tree.tried("work").unwrap();
}

#[test]
fn a_configuration_that_is_too_long_is_refused_before_anything_is_made() {
    let tree = Tree::new("mkdir -p work/n && cd work/n && git init -q --bare");
    tree.run("{ echo '[include]'; seq -f 'path = made-%g' 9000; } >work/n/config");
    let error = tree.tried("work").unwrap_err().to_string();
    assert!(error.contains("too many repositories, or too much"), "{error}");
    tree.run("{ echo '[x]'; seq -f 'k%g' 20001; } >work/n/config");
    let error = tree.tried("work").unwrap_err().to_string();
    assert!(error.contains("more than 20000 settings"), "{error}");
}

#[test]
fn files_that_commands_name_are_guarded_and_others_are_not() {
    let tree = Tree::new(
        "git init -q work && mkdir work/tools work/docs && cd work/tools && touch ssh clean.js note x y",
    );
    tree.run(
        "cd work && git config core.sshCommand 'tools/ssh -v' && git config filter.f.clean 'node \"./tools/clean.js\" docs'
         git config alias.a '!tools/x && tools/absent' && git config alias.b 'log tools/y' && git config user.name tools/note",
    );
    let plan = tree.plan("work");
    assert_guarded(&plan, &["tools/ssh", "tools/clean.js", "tools/x"]);
    for free in ["tools/y", "tools/note", "docs", "tools/absent", "tools"] {
        assert!(!plan.read_only.contains(Path::new(free)), "{free}");
    }
}

#[test]
fn a_link_where_the_configuration_leads_is_refused() {
    for configure in ["core.hooksPath hooks/x", "include.path ../hooks"] {
        let tree = Tree::new("git init -q work && ln -s /etc work/hooks");
        tree.run(&format!("git -C work config {configure} 2>/dev/null"));
        let error = tree.tried("work").unwrap_err().to_string();
        assert!(error.contains("work/hooks") && error.contains("symbolic link"), "{configure}: {error}");
    }
}

#[test]
fn hooks_among_all_other_files_are_refused() {
    let tree = Tree::new("git init -q work");
    for value in [".", "..", "/", "../work/x/.."] {
        tree.run(&format!("git -C work config core.hooksPath {value}"));
        let error = tree.tried("work").unwrap_err().to_string();
        assert!(error.contains("core.hooksPath is"), "{value}: {error}");
    }
    tree.run("mkdir hooks && git -C work config core.hooksPath ../hooks");
    tree.tried("work").unwrap();
}
