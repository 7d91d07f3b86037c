//! Containers that would undo the promise do not start, and say why, however they are run.

use std::fs;
use std::process::Command;

use understudy_integration_tests::podman::{Container, podman, run, run_waiting, unique, until};
use understudy_integration_tests::stand::{AGENT_IMAGE, Agent, GENERIC};

use crate::{assert_refused, stand};

/// Options that must be refused, with a word of the reason.
const REFUSED: &[(&str, &str)] = &[
    ("--privileged", "--privileged"),
    ("--cap-add=NET_ADMIN", "NET_ADMIN"),
    ("--cap-add=SYS_ADMIN", "SYS_ADMIN"),
    ("--cap-add=SYS_PTRACE", "SYS_PTRACE"),
    ("--pid=host", "pid"),
    ("--ipc=host", "ipc"),
    ("--device=/dev/net/tun", "/dev/net/tun"),
    ("--volume=/:/host", "/"),
    ("--volume=/proc:/hostproc", "/proc"),
    ("--annotation=understudy.harnes=x", "understudy.harness"),
    ("--annotation=Understudy.policy=x", "understudy"),
    ("--annotation=understudy.network=open", "understudy.network"),
    ("--annotation=understudy.inbound=3000", "understudy.inbound"),
    ("--annotation=understudy.workspace=everything", "understudy.workspace"),
    ("--annotation=understudy.role=sidecar", "understudy.role"),
    ("--annotation=understudy.policy=no-such-policy", "no-such-policy"),
];

#[test]
fn what_would_undo_the_promise_is_refused() {
    stand();
    for (option, reason) in REFUSED {
        let outcome = Agent::new("generic").option(option).run(&["echo", "it ran"]).unwrap();
        assert!(!outcome.stdout.contains("it ran"), "{option}");
        assert_refused(&outcome, reason);
    }
}

#[test]
fn a_network_of_its_own_is_refused() {
    stand();
    for network in ["host", "slirp4netns"] {
        let agent = Agent::plain()
            .annotation("understudy.harness", "generic")
            .option(&format!("--network={network}"));
        assert_refused(&agent.run(&["echo", "it ran"]).unwrap(), "--network=none");
    }
}

#[test]
fn a_network_that_comes_late_and_hides_is_refused() {
    stand();
    // With a user namespace Podman makes the network after createRuntime, and these leave no trace of it in the
    // configuration.
    let resolver = tempfile::NamedTempFile::new_in(std::env::var("HOME").unwrap()).unwrap();
    let own = format!("--volume={}:/etc/resolv.conf", resolver.path().display());
    for option in ["--dns=none", &own] {
        let agent = Agent::plain()
            .annotation("understudy.harness", "generic")
            .option("--userns=keep-id")
            .option("--network=slirp4netns")
            .option(option);
        let outcome = agent.run(&["echo", "it ran"]).unwrap();
        assert!(!outcome.stdout.contains("it ran"), "{option}: {}", outcome.text());
        assert_ne!(outcome.code, Some(0), "{option}");
    }
}

#[test]
fn another_containers_namespaces_are_refused() {
    stand();
    let other =
        Container::start(&unique("other"), ["--network=none", AGENT_IMAGE, "sleep", "infinity"]).unwrap();
    for kind in ["network", "pid", "ipc"] {
        let agent = Agent::plain().annotation("understudy.harness", "generic");
        let agent = if kind == "network" { agent } else { agent.option("--network=none") };
        let outcome = agent.option(&format!("--{kind}=container:{}", other.name)).run(&["true"]).unwrap();
        assert_refused(&outcome, kind);
    }
}

#[test]
fn mounts_of_what_protects_or_of_credentials_are_refused() {
    let stand = stand();
    let home = std::env::var("HOME").unwrap();
    fs::create_dir_all(format!("{home}/.ssh")).unwrap();
    std::os::unix::fs::symlink(&stand.paths.control, format!("{home}/innocent")).unwrap();
    let runtime = stand.paths.control.parent().unwrap().display().to_string();
    for source in [
        stand.paths.control.display().to_string(),
        runtime,
        stand.paths.configuration.display().to_string(),
        format!("{home}/.ssh"),
        format!("{home}/innocent"),
        stand.paths.state.display().to_string(),
        stand.paths.storage.display().to_string(),
        home.clone(),
    ] {
        let outcome =
            Agent::generic().option(&format!("--volume={source}:/mnt/x")).run(&["ls", "/mnt/x"]).unwrap();
        assert!(outcome.text().contains("understudy: refused: "), "{source}: {}", outcome.text());
        assert_eq!(outcome.code, Some(126), "{source}");
    }
    fs::remove_file(format!("{home}/innocent")).unwrap();
}

#[test]
fn a_volume_that_is_a_directory_of_the_hosts_is_judged_by_what_it_is() {
    let stand = stand();
    let home = std::env::var("HOME").unwrap();
    fs::create_dir_all(format!("{home}/.ssh/keys")).unwrap();
    fs::create_dir_all(format!("{home}/bound-project")).unwrap();
    let try_volume = |device: &str| {
        let name = unique("bound");
        let device = format!("device={device}");
        podman(["volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", &device, &name])
            .unwrap()
            .success()
            .unwrap();
        Agent::generic().option(&format!("--volume={name}:/mnt/x")).run(&["echo", "it ran"]).unwrap()
    };
    let inner = stand.paths.configuration.join("policies").display().to_string();
    for device in [format!("{home}/.ssh"), format!("{home}/.ssh/keys"), inner, home.clone()] {
        let outcome = try_volume(&device);
        assert!(!outcome.stdout.contains("it ran"), "{device}: {}", outcome.text());
        assert_refused(&outcome, "remove the mount");
    }
    assert_eq!(try_volume(&format!("{home}/bound-project")).stdout, "it ran\n");
}

#[test]
fn a_real_value_in_a_mounted_file_or_an_annotation_is_refused_by_its_name() {
    let stand = stand();
    let value = &stand.secrets.generic;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir_all(path("project/deep")).unwrap();
    fs::write(path("file"), format!("first line\nKEY={value}\n")).unwrap();
    let said = format!("holds the real value of secret `{GENERIC}`");
    let refused = |agent: Agent, where_: &str| {
        let outcome = agent.run(&["echo", "it ran"]).unwrap();
        assert_refused(&outcome, &format!("{where_} {said}"));
        assert!(!outcome.text().contains(value), "{where_}");
    };
    let mounted = |source: &str, at: &str| Agent::generic().option(&format!("-v={source}:{at}"));
    refused(mounted(&path("file"), "/etc/conf:ro"), &format!("file {} (mounted at /etc/conf)", path("file")));
    refused(Agent::generic().annotation("org.example.note", value), "annotation org.example.note");
    // What is beside it and deeper is not looked at, and a stand-in is none.
    let ran = || {
        mounted(&path("project"), "/work").shell("echo it ran: $UNDERSTUDY_NOTES; env -0 >/work/.stand-ins")
    };
    let project = mounted(&path("project"), "/work").annotation("understudy.secrets", GENERIC);
    fs::write(path("project/deep/.env"), value).unwrap();
    project.shell("echo it ran; env >/work/.stand-ins").unwrap().success().unwrap();
    assert!(fs::read_to_string(path("project/.stand-ins")).unwrap().contains("EXAMPLE_API_KEY="));
    let text = ran().unwrap().success().unwrap();
    assert!(text.contains("it ran") && !text.contains("what looks like"), "{text}");
    // One that the sidecar does not know is told of, where it is.
    let foreign = format!("sk-ant-api03-{}AA", "x1Y-".repeat(24).get(..93).unwrap());
    fs::write(path("project/.env"), format!("KEY={foreign}\n")).unwrap();
    let text = ran().unwrap().success().unwrap();
    let told = format!(
        "file {} (mounted at /work/.env) holds what looks like a real credential",
        path("project/.env")
    );
    assert!(text.contains(&told) && !text.contains(&foreign), "{text}");
    fs::write(path("project/.env"), format!("KEY={value}\n")).unwrap();
    refused(
        mounted(&path("project"), "/work"),
        &format!("file {} (mounted at /work/.env)", path("project/.env")),
    );
    // A volume that an earlier container filled.
    let volume = unique("volume");
    podman([
        "run",
        "--rm",
        "-v",
        &format!("{volume}:/data"),
        "-v",
        &format!("{}:/from:ro", path("file")),
        AGENT_IMAGE,
        "cp",
        "/from",
        "/data/key",
    ])
    .unwrap()
    .success()
    .unwrap();
    let outcome = mounted(&volume, "/data").run(&["echo", "it ran"]).unwrap();
    assert_refused(&outcome, &format!("/key (mounted at /data/key) {said}"));
    let _ = podman(["volume", "rm", "--force", &volume]);
}

#[test]
fn a_podman_secret_in_the_environment_is_refused() {
    let stand = stand();
    for target in ["FOO", "EXAMPLE_API_KEY"] {
        let option = format!("--secret={GENERIC},type=env,target={target}");
        let agent = Agent::generic().annotation("understudy.secrets", GENERIC).option(&option);
        let outcome = agent.run(&["env"]).unwrap();
        assert_ne!(outcome.code, Some(0), "{target}");
        assert!(!outcome.text().contains(&stand.secrets.generic), "{target}");
        let why = run(Command::new(stand.paths.program("understudy-hook")).arg("why"), b"").unwrap();
        // runc lets Podman print what the hook says, crun keeps it
        let told = format!("{}{}", outcome.text(), why.text());
        assert!(told.contains(target) && told.contains("type=env"), "{told}");
    }
}

#[test]
fn an_ordinary_project_directory_is_not() {
    stand();
    let project = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    fs::write(project.path().join("file"), "mine").unwrap();
    let volume = format!("--volume={}:/work", project.path().display());
    let text = Agent::generic().option(&volume).option("--workdir=/work").run(&["cat", "file"]).unwrap();
    assert_eq!(text.success().unwrap(), "mine");
}

#[test]
fn a_named_volume_is_not() {
    stand();
    let outcome =
        Agent::generic().option(&format!("--volume={}:/data", unique("volume"))).run(&["touch", "/data/x"]);
    outcome.unwrap().success().unwrap();
}

#[test]
fn a_refusal_is_read_on_a_terminal() {
    stand();
    // script(1) gives Podman a terminal, and ends early if its own input does
    let command = format!(
        "podman run --rm -it --network=none --annotation=understudy.harness=generic --cap-add=NET_ADMIN {AGENT_IMAGE} true"
    );
    let mut script = Command::new("script");
    let outcome =
        run_waiting(script.args(["--quiet", "--return", "--command", &command, "/dev/null"])).unwrap();
    assert!(
        outcome.text().contains("understudy: refused: ") && outcome.text().contains("NET_ADMIN"),
        "{}",
        outcome.text()
    );
    assert_eq!(outcome.code, Some(126));
}

#[test]
fn a_refusal_is_in_the_log_of_a_detached_container() {
    stand();
    let container =
        Agent::new("generic").option("--cap-add=NET_ADMIN").start(&["sleep", "infinity"]).unwrap();
    until("its end", || Ok(container.inspect("{{.State.Running}}")? == "false")).unwrap();
    assert_eq!(container.inspect("{{.State.ExitCode}}").unwrap(), "126");
    assert!(container.logs().unwrap().contains("NET_ADMIN"), "{}", container.logs().unwrap());
}

#[test]
fn why_shows_it_again() {
    let stand = stand();
    Agent::new("generic").option("--cap-add=SYS_MODULE").run(&["true"]).unwrap();
    let outcome = run(Command::new(stand.paths.program("understudy-hook")).arg("why"), b"").unwrap();
    assert!(outcome.text().contains("SYS_MODULE"), "{}", outcome.text());
}

#[test]
fn annotations_that_come_from_the_image_are_refused() {
    stand();
    let image = unique("localhost/annotated");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("Containerfile"), format!("FROM {AGENT_IMAGE}\n")).unwrap();
    let context = directory.path().display().to_string();
    let build = [
        "build",
        "--quiet",
        "--format=oci",
        "--annotation=understudy.allow=evil.example",
        "--tag",
        &image,
        &context,
    ];
    podman(build).unwrap().success().unwrap();
    let outcome = Agent::generic().image(&image).run(&["echo", "it ran"]).unwrap();
    assert!(!outcome.stdout.contains("it ran"), "{}", outcome.text());
    assert_refused(&outcome, "image");
}

#[test]
fn an_unknown_harness_is_refused_with_a_suggestion() {
    stand();
    assert_refused(&Agent::new("claude-cod").run(&["true"]).unwrap(), "claude-code");
}

#[test]
fn a_container_without_annotations_is_left_alone() {
    stand();
    let text = Agent::plain().option("--network=none").shell("ls /run; cat /proc/net/tcp | wc -l").unwrap();
    let text = text.success().unwrap();
    assert!(!text.contains("understudy") && text.trim().ends_with('1'), "{text}");
}
