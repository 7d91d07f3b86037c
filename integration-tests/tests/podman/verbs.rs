//! What people do to a container with Podman, and the options that they start it with: none of it takes its protection away.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use understudy_integration_tests::podman::{Container, Outcome, podman, run, unique, until};
use understudy_integration_tests::search::Needles;
use understudy_integration_tests::stand::{AGENT_IMAGE, Agent, GENERIC, is_root};

use crate::stand;

/// The status of what is allowed, that of what is not, and every interface that there is.
const LOOK: &str = r#"
for host in other.example denied.example; do
    curl -sS -o /dev/null -w '%{http_code} ' --max-time 20 https://$host/status/200 || printf 'failed '
done
echo $(ls /sys/class/net 2>/dev/null || tail -n +3 /proc/net/dev | cut -d: -f1)
"#;
const PROTECTED: &str = "200 403 lo";
/// Sealed, and nobody answers.
const UNSERVED: &str = "000 failed 000 failed lo";

fn agent() -> Agent {
    Agent::generic().annotation("understudy.secrets", GENERIC)
}

fn assert_protected(what: &str, outcome: &Outcome) {
    assert_eq!(outcome.stdout.trim(), PROTECTED, "{what}: {}", outcome.text());
}

fn look(what: &str, container: &Container) {
    assert_protected(what, &container.exec(&["sh", "-c", LOOK]).unwrap());
}

fn is_running(name: &str) -> anyhow::Result<bool> {
    Ok(podman(["inspect", "--format", "{{.State.Running}}", name])?.stdout.trim() == "true")
}

fn succeed(arguments: &[&str]) -> String {
    podman(arguments).unwrap().success().unwrap_or_else(|error| panic!("{arguments:?}: {error:#}"))
}

#[test]
fn options_of_run_leave_it_protected() {
    stand();
    let volume = format!("{}:/data:U", unique("volume"));
    let mut rows: Vec<(&str, Vec<&str>)> = vec![
        ("an init", vec!["--init"]),
        ("for systemd", vec!["--systemd=always"]),
        ("a read-only root", vec!["--read-only"]),
        (
            "a read-only root without its file systems in memory",
            vec!["--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp"],
        ),
        ("another user", vec!["--user=1000:1000"]),
        ("a user without a name", vec!["--user=4242:4242", "--env=HOME=/tmp"]),
        ("keep-id", vec!["--userns=keep-id"]),
        ("a home in memory", vec!["--tmpfs=/root"]),
        ("a volume with its owner changed", vec!["--volume", &volume]),
        ("no capabilities", vec!["--cap-drop=all", "--security-opt=no-new-privileges"]),
        ("no label", vec!["--security-opt=label=disable"]),
        ("no hosts file", vec!["--no-hosts"]),
        ("another name", vec!["--hostname=elsewhere", "--entrypoint=[]"]),
        ("a stop signal", vec!["--stop-signal=INT", "--stop-timeout=1"]),
        ("a log elsewhere", vec!["--log-driver=k8s-file", "--log-opt=max-size=1mb"]),
    ];
    if !is_root() {
        // of the subordinate ids that a user of the tests has
        rows.push(("written-out maps", vec!["--uidmap=0:1:1000", "--gidmap=0:1:1000"]));
    }
    for (what, options) in rows {
        let with = options.iter().fold(agent(), |agent, option| agent.option(option));
        assert_protected(what, &with.shell(LOOK).unwrap());
    }
}

#[test]
fn what_is_done_to_a_running_container_leaves_it_protected() {
    stand();
    let mut container = agent().start(&["sleep", "infinity"]).unwrap();
    look("run", &container);
    let key = |container: &Container| {
        container.exec(&["bash", "-lc", "printenv EXAMPLE_API_KEY"]).unwrap().success().unwrap()
    };
    let first = key(&container);
    let name = container.name.clone();
    let other = unique("renamed");
    let verbs: [(&str, &[&[&str]]); 6] = [
        ("paused and resumed", &[&["pause", &name], &["unpause", &name]]),
        ("restarted", &[&["restart", "--time=0", &name]]),
        ("stopped and started", &[&["stop", "--time=0", &name], &["start", &name]]),
        ("killed and started", &[&["kill", "--signal=KILL", &name], &["wait", &name], &["start", &name]]),
        ("initialised and started", &[&["stop", "--time=0", &name], &["init", &name], &["start", &name]]),
        ("renamed", &[&["rename", &name, &other]]),
    ];
    for (what, commands) in verbs {
        for command in commands {
            if command[0] == "pause" && !can_pause() {
                continue;
            }
            if command[0] == "unpause" && !can_pause() {
                continue;
            }
            succeed(command);
        }
        if what == "renamed" {
            container.name.clone_from(&other);
        }
        look(what, &container);
        assert_eq!(key(&container), first, "{what}: another stand-in");
    }
    succeed(&["restart", "--time=0", &other]);
    look("renamed and restarted", &container);
}

/// A cgroup that can be frozen is not given to every user.
fn can_pause() -> bool {
    let info = succeed(&["info", "--format", "{{.Host.CgroupControllers}} {{.Host.CgroupManager}}"]);
    is_root() || info.contains("systemd")
}

#[test]
fn a_container_that_is_created_and_started_later_is_protected() {
    stand();
    let name = unique("created");
    let tail =
        ["--network=none", "--annotation=understudy.harness=generic", "--annotation=understudy.policy=world"];
    let command = ["create", "--name", &name];
    succeed(&[&command[..], &tail, &[AGENT_IMAGE, "sleep", "infinity"]].concat());
    let container = Container { name };
    succeed(&["start", &container.name]);
    look("created", &container);
}

/// Podman 4.3 copies neither annotations nor the network, so no hook sees the copy: it is a container that asks for nothing.
#[test]
fn a_clone_is_protected_or_has_nothing() {
    stand();
    let container = agent().start(&["sleep", "infinity"]).unwrap();
    let key = container.exec(&["bash", "-lc", "printenv EXAMPLE_API_KEY"]).unwrap().success().unwrap();
    let clone = Container { name: unique("clone") };
    succeed(&["container", "clone", "--run", &container.name, &clone.name]);
    if clone.inspect("{{json .Config.Annotations}}").unwrap().contains("understudy.harness") {
        return look("cloned", &clone);
    }
    let script = "env; find / -xdev -type f -size -64k -newer /proc/1/cmdline -exec cat {} + 2>/dev/null; ls /run/understudy";
    let seen = clone.exec(&["bash", "-lc", script]).unwrap();
    assert!(!seen.stdout.contains(key.trim()), "{}", seen.text());
    assert!(seen.stderr.contains("/run/understudy"), "{}", seen.text());
}

#[test]
fn a_container_that_podman_starts_again_by_itself_is_protected_each_time() {
    stand();
    let container = agent().option("--restart=always").start(&["sleep", "infinity"]).unwrap();
    for time in 1..=2 {
        let before = container.pid().unwrap();
        // as an out-of-memory kill would
        run(Command::new("kill").args(["-KILL", &before.to_string()]), b"").unwrap().success().unwrap();
        until("the next start", || {
            Ok(is_running(&container.name)? && container.pid().is_ok_and(|pid| pid != before))
        })
        .unwrap();
        look(&format!("restart {time}"), &container);
    }
}

#[test]
fn a_container_that_is_started_without_the_hooks_has_no_network_and_doctor_names_it() {
    stand();
    let container = agent().start(&["sleep", "infinity"]).unwrap();
    succeed(&["stop", "--time=0", &container.name]);
    let empty = tempfile::tempdir().unwrap();
    let without = format!("--hooks-dir={}", empty.path().display());
    succeed(&[&without, "start", &container.name]);
    let outcome = container.exec(&["sh", "-c", LOOK]).unwrap();
    assert_eq!(outcome.stdout.trim(), UNSERVED, "{}", outcome.text());
    let doctor = || {
        run(Command::new(stand().paths.program("understudy-hook")).args(["doctor", "--no-probe"]), b"")
            .unwrap()
    };
    let said = doctor();
    assert_ne!(said.code, Some(0));
    assert!(
        said.stdout.lines().any(|line| line.starts_with("FAIL") && line.contains(&container.name)),
        "{}",
        said.text()
    );
    succeed(&["stop", "--time=0", &container.name]);
    succeed(&["start", &container.name]);
    look("started with them again", &container);
    let said = doctor();
    assert!(!said.text().contains(&container.name), "{}", said.text());
}

/// What is mounted is not in it. A login that was placed in the home is, and a stand-in in it is worth nothing elsewhere.
#[test]
fn what_is_committed_or_exported_has_no_trust_no_variable_and_nothing_real() {
    stand();
    let container = agent().start(&["sleep", "infinity"]).unwrap();
    let key = container.exec(&["bash", "-lc", "printenv EXAMPLE_API_KEY"]).unwrap().success().unwrap();
    let authority =
        container.exec(&["sed", "-n", "2p", "/run/understudy/ca.crt"]).unwrap().success().unwrap();
    assert!(key.len() > 8 && authority.len() > 32, "{key:?} {authority:?}");
    let searched = [key.trim(), authority.trim(), &stand().secrets.generic];
    let files = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let exported = files.path().join("exported.tar");
    succeed(&["export", "--output", exported.to_str().unwrap(), &container.name]);

    let image = format!("localhost/{}", unique("committed"));
    succeed(&["commit", "--quiet", "--pause=false", &container.name, &image]);
    let configuration = succeed(&["image", "inspect", &image]);
    let saved = files.path().join("saved.tar");
    succeed(&["save", "--quiet", "--output", saved.to_str().unwrap(), &image]);
    let plain = Agent::plain().image(&image).option("--network=none");
    let left =
        plain.run(&["sh", "-c", "ls -A /run/understudy /run/understudy-bin; ls -l /etc/profile.d"]).unwrap();
    succeed(&["rmi", "--force", &image]);

    assert!(
        !left.stdout.lines().any(|line| line.ends_with(".crt") || line.ends_with("understudy-hook")),
        "{}",
        left.text()
    );
    for text in searched {
        assert!(!configuration.contains(text), "in the image's configuration");
        for archive in [&exported, &saved] {
            let needle = Needles::new([text]).unwrap();
            assert!(!needle.find(&std::fs::read(archive).unwrap()), "in {}", archive.display());
        }
    }
}

#[test]
fn a_checkpoint_is_refused() {
    stand();
    let container = agent().start(&["sleep", "infinity"]).unwrap();
    let outcome = podman(["container", "checkpoint", &container.name]).unwrap();
    assert_ne!(outcome.code, Some(0), "{}", outcome.text());
    look("not checkpointed", &container);
}

/// Podman's service on a socket of its own; it ends with this value.
struct Service {
    process: Child,
    directory: tempfile::TempDir,
}

impl Service {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("unix://{}/podman.sock", directory.path().display());
        let mut command = Command::new("podman");
        command.args(["system", "service", "--time=0", &url]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let service = Self { process, directory };
        until("the service", || Ok(service.socket().exists())).unwrap();
        service
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("podman.sock")
    }

    /// A call of the interface that Docker's clients speak.
    fn docker(&self, method: &str, path: &str, body: &serde_json::Value) -> Outcome {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--fail-with-body",
            "-X",
            method,
            "-H",
            "Content-Type: application/json",
            "--data",
            &body.to_string(),
        ]);
        curl.arg("--unix-socket").arg(self.socket()).arg(format!("http://docker/v1.41{path}"));
        run(&mut curl, b"").unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_a_client_of_the_socket_starts_is_protected() {
    stand();
    let service = Service::start();
    let url = format!("unix://{}", service.socket().display());
    let container = Container { name: unique("remote") };
    let command = ["--remote", "--url", &url, "run", "--detach", "--network=none", "--name", &container.name];
    let annotations = ["--annotation=understudy.harness=generic", "--annotation=understudy.policy=world"];
    succeed(&[&command[..], &annotations, &[AGENT_IMAGE, "sleep", "infinity"]].concat());
    look("podman --remote", &container);

    // as `docker run --network none --annotation …` sends it
    let container = Container { name: unique("docker") };
    let asked = json!({
        "Image": AGENT_IMAGE,
        "Cmd": ["sleep", "infinity"],
        "HostConfig": {
            "NetworkMode": "none",
            "Annotations": {"understudy.harness": "generic", "understudy.policy": "world"},
        },
    });
    service.docker("POST", &format!("/containers/create?name={}", container.name), &asked).success().unwrap();
    service.docker("POST", &format!("/containers/{}/start", container.name), &json!({})).success().unwrap();
    if container.inspect("{{json .Config.Annotations}}").unwrap().contains("understudy.harness") {
        look("Docker's interface", &container);
    } else {
        // A Podman that drops annotations there: the container is sealed by its network, and nothing serves it.
        let outcome = container.exec(&["sh", "-c", LOOK]).unwrap();
        assert!(!outcome.stdout.contains("200"), "{}", outcome.text());
    }
}
