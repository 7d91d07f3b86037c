//! What a container opened before it was guarded again it holds on to: to write it later by that descriptor ends it, and writes nothing.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use understudy_integration_tests::podman::{Container, podman, until};

use super::Project;
use super::host::{ended, runs, why};
use crate::stand;

/// Opens `OPENED` as `HOW` before the host renames it, and writes by that descriptor once it is told to.
const HOLDER: &str = "
import os, time
held = os.open('OPENED', HOW)
by = f'/proc/self/fd/{held}'
open('/tmp/held', 'w').close()
while not os.path.exists('/tmp/go'): time.sleep(.01)
try:
    WRITE
    open('/tmp/written', 'w').close()
except OSError as error: print(error, flush=True)
time.sleep(1000)
";

fn holder(project: &Project, opened: &str, how: &str, write: &str) -> Container {
    let program = HOLDER.replace("OPENED", opened).replace("HOW", how).replace("WRITE", write);
    started(project, &["python3", "-c", &program])
}

/// Once its program runs: what is replaced before that has the start refused.
fn started(project: &Project, program: &[&str]) -> Container {
    let container = project.agent().start(program).unwrap();
    until("its program", || Ok(container.exec(&["test", "-e", "/tmp/held"])?.code == Some(0))).unwrap();
    container
}

/// Time for the hook's process to do what it has to, and for the container to live on if it does not.
fn stays(container: &Container) {
    sleep(Duration::from_millis(300));
    assert!(runs(container), "{:?} {}", container.logs(), why(container));
}

fn go(container: &Container) {
    // It can be gone before this ends.
    let _ = container.exec(&["touch", "/tmp/go"]);
}

#[test]
fn a_descriptor_from_before_the_guard_writes_nothing() {
    stand();
    let append = "os.write(os.open(by, os.O_WRONLY | os.O_APPEND), b'evil')";
    let link = "os.link(by, 'other', src_dir_fd=held, follow_symlinks=True); os.write(os.open('other', os.O_RDWR), b'evil')";
    for (host, opened, how, write, file) in [
        ("cp work/.git/config work/.git/config.lock", ".git/config.lock", "os.O_PATH", append, ".git/config"),
        (
            "cp work/.git/config work/.git/config.lock",
            ".git/config.lock",
            "os.O_RDONLY",
            append,
            ".git/config",
        ),
        ("cp work/.envrc work/.envrc.new", ".envrc.new", "os.O_PATH", "os.truncate(by, 1)", ".envrc"),
        ("cp work/.envrc work/.envrc.new", ".envrc.new", "os.O_PATH", link, ".envrc"),
        // of a subordinate uid
        (
            "cp work/.envrc work/.envrc.new; podman unshare chown 7:7 work/.envrc.new",
            ".envrc.new",
            "os.O_PATH",
            append,
            ".envrc",
        ),
    ] {
        let project = Project::new();
        project.host(host);
        let container = holder(&project, opened, how, write);
        project.host(&format!("mv -f work/{opened} work/{file}"));
        let before = fs::read(project.work().join(file)).unwrap();
        stays(&container);
        go(&container);
        let told = ended(&container);
        assert!(
            told.contains("opened it for writing") && told.contains(&format!("/work/{file} was")),
            "{told}"
        );
        // Nor does anything of it that would be left now.
        sleep(Duration::from_millis(100));
        assert_eq!(fs::read(project.work().join(file)).unwrap(), before, "{opened}, {write}");
    }
}

/// By then nothing holds it any more.
#[test]
fn another_name_of_what_was_held_is_told_when_the_container_ends() {
    stand();
    let project = Project::new();
    project.host("cp work/.envrc work/.envrc.new; mkdir work/sub");
    let link = "os.link(by, 'sub/other', src_dir_fd=held, follow_symlinks=True)";
    let container = holder(&project, ".envrc.new", "os.O_PATH", link);
    project.host("mv -f work/.envrc.new work/.envrc");
    stays(&container);
    go(&container);
    let linked = || Ok(project.work().join("sub/other").exists());
    until("the link", linked).unwrap();
    podman(["kill", &container.name]).unwrap();
    let told = ended(&container);
    assert!(told.contains("another name") && told.contains("/work/.envrc was"), "{told}");
}

#[test]
fn to_cut_off_what_is_held_ends_the_container() {
    stand();
    let project = Project::new();
    project.host("cp work/.envrc work/.envrc.new");
    let cut = "os.open(by, os.O_RDONLY | os.O_TRUNC)";
    let container = holder(&project, ".envrc.new", "os.O_PATH", cut);
    project.host("mv -f work/.envrc.new work/.envrc");
    stays(&container);
    go(&container);
    let told = ended(&container);
    assert!(told.contains("cut it off") && told.contains("/work/.envrc was"), "{told}");
}

#[test]
fn what_the_host_replaces_again_is_held_anew_and_the_old_one_let_go() {
    stand();
    let project = Project::new();
    project.host("cp work/.envrc work/.envrc.first; cp work/.envrc work/.envrc.next");
    let write = "os.write(os.open(by, os.O_WRONLY | os.O_APPEND), b'evil')";
    let container = holder(&project, ".envrc.first", "os.O_PATH", write);
    project.host("mv work/.envrc.first work/.envrc");
    stays(&container);
    project.host("ln work/.envrc old; mv work/.envrc.next work/.envrc");
    stays(&container);
    // The first one is nobody's now, and the container's to write.
    go(&container);
    until("the writing", || Ok(container.exec(&["test", "-e", "/tmp/written"])?.code == Some(0))).unwrap();
    stays(&container);
    // Who saves in place is not held up for long, and told what to do.
    project.host("echo more >>work/.envrc");
    let told = ended(&container);
    assert!(told.contains("saves in place") && told.contains("/work/.envrc was"), "{told}");
    assert_eq!(fs::read_to_string(project.work().join(".envrc")).unwrap(), "use flake\nmore\n");
}

#[test]
fn a_directory_that_was_entered_before_it_was_guarded_holds_nothing_of_the_containers() {
    stand();
    let plant = "os.close(os.open('post-checkout', os.O_CREAT | os.O_WRONLY, 0o755, dir_fd=held))";
    let config = "os.write(os.open('config', os.O_WRONLY | os.O_APPEND, dir_fd=held), b'evil')";
    for (host, rename, write) in [
        ("mkdir work/next", "rm -rf work/.git/hooks; mv -T work/next work/.git/hooks", plant),
        ("mkdir work/next", "rm -rf work/.vscode; mv -T work/next work/.vscode", plant),
        ("cp -a work/.git work/next", "mv work/.git old; mv work/next work/.git", config),
        (
            "cp -a work/.git work/next",
            "mv -T --exchange work/.git work/next || { mv work/.git old; mv work/next work/.git; }",
            config,
        ),
    ] {
        let project = Project::new();
        project.host(host);
        let container = holder(&project, "next", "os.O_PATH", write);
        project.host(&format!("cp -a work/next copy; {rename}"));
        go(&container);
        let told = ended(&container);
        assert!(told.contains("entered the new directory"), "{rename}: {told}");
    }
}

#[test]
fn a_directory_that_is_made_anew_ends_the_container_and_one_that_only_goes_does_not() {
    stand();
    for (host, ends) in [
        ("rm -rf work/.git/hooks; mkdir work/.git/hooks", true),
        ("mv work/.claude old; mkdir work/.claude", true),
        ("rm -rf work/.vscode; sleep 0.2; mkdir work/.vscode", true),
        ("rm -rf work/.vscode", false),
        ("mv work/.claude old; sleep 0.2; mv old work/.claude", false),
        ("rm -rf work/.claude", false),
    ] {
        let project = Project::new();
        let container = started(&project, &["sh", "-c", "touch /tmp/held; sleep 1000"]);
        project.host(host);
        if ends {
            assert!(ended(&container).contains("entered the new directory"), "{host}");
        } else {
            stays(&container);
            let outcome = container.exec(&["sh", "-c", "echo x 2>/dev/null >>.git/config"]).unwrap();
            assert_ne!(outcome.code, Some(0), "{host}");
        }
    }
}
