//! The program as it is run: what it gives up, and how it takes over what changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod audit;
mod flood;
mod json;
mod names;
mod notify;
mod policies;
mod watch;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Not root, so that what root could do does not count.
const USER: u32 = 61_234;

struct Sidecar {
    root: tempfile::TempDir,
    process: Option<Child>,
}

impl Sidecar {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let sidecar = Self { root, process: None };
        for name in ["config", "config/policies", "state", "control", "project"] {
            fs::DirBuilder::new().mode(0o700).create(sidecar.path(name)).unwrap();
            sidecar.own(name);
        }
        fs::set_permissions(sidecar.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        sidecar.write("config/sidecar.toml", "resolvers = [\"127.0.0.1:1\"]\n");
        sidecar
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn own(&self, name: &str) {
        if rustix::process::geteuid().is_root() {
            chown(self.path(name), Some(USER), Some(USER)).unwrap();
        }
    }

    /// By a rename, as editors and deployments do it.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::set_permissions(self.path("new"), fs::Permissions::from_mode(0o600)).unwrap();
        self.own("new");
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn declare(&self, name: &str, source: &str) {
        let text = format!(
            "[{name}]\nkind = \"bearer\"\n{source}\nhosts = [\"api.example.com\"]\n\
             grant-to = {{ harnesses = [\"generic\"] }}\n"
        );
        self.write("config/secrets.toml", &text);
    }

    fn file(&self, name: &str) -> String {
        format!("file = \"{}\"", self.path(name).display())
    }

    fn program(&self, command: &str, directories: &[&str]) -> Command {
        self.program_of(&[command], directories)
    }

    fn program_of(&self, words: &[&str], directories: &[&str]) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_understudy"));
        program.args(words).env_remove("container").env_remove("NOTIFY_SOCKET");
        for name in directories {
            program.arg(format!("--{name}")).arg(self.path(name));
        }
        if rustix::process::geteuid().is_root() {
            program.uid(USER).gid(USER);
        }
        program
    }

    fn start(&mut self, variables: &[(&str, &str)]) {
        let mut serve = self.program("serve", &["config", "state", "control"]);
        let log = fs::File::create(self.path("log")).unwrap();
        let serve =
            serve.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(serve.spawn().unwrap());
        self.until("it answers", || self.output("health", &["control"]).status.success());
    }

    fn output(&self, command: &str, directories: &[&str]) -> Output {
        self.program(command, directories).output().unwrap()
    }

    fn problems(&self) -> Vec<String> {
        let output = self.program("status", &["control"]).arg("--json").output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["problems"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    fn secrets(&self) -> serde_json::Value {
        let output = self.program("secrets", &["control"]).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.process.as_ref().unwrap())
    }

    fn proc(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.pid().as_raw_nonzero()).into()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < deadline, "not within 30 s: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

const VALUE: &str = "tok_0123456789abcdefghij";

#[test]
fn its_memory_is_closed_to_others_and_to_core_dumps() {
    let mut sidecar = Sidecar::new();
    sidecar.write("value", VALUE);
    sidecar.declare("token", &sidecar.file("value"));
    sidecar.start(&[]);
    let limits = fs::read_to_string(sidecar.proc("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
    // proc(5): the files of a process that is not dumpable belong to root, whoever it runs as.
    assert_eq!(fs::metadata(sidecar.proc("mem")).unwrap().uid(), 0);
    let status = fs::read_to_string(sidecar.proc("status")).unwrap();
    let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    assert!(!uid.split_whitespace().any(|uid| uid == "0"), "{uid}");
    assert!(status.contains("NoNewPrivs:\t1"));
    // Nothing of it is said, either.
    assert!(!sidecar.log().contains("0123456789abcdefghij"));
}

#[test]
fn a_changed_file_is_taken_over_and_a_bad_one_leaves_what_was_good() {
    let mut sidecar = Sidecar::new();
    sidecar.write("value", VALUE);
    sidecar.declare("token", &sidecar.file("value"));
    sidecar.start(&[]);
    assert_eq!(sidecar.problems(), Vec::<String>::new());

    for (name, bad, good) in [
        ("config/policies/web.toml", "[[alow]]", "[[allow]]\nhost = \"a.example\"\n"),
        ("config/sidecar.toml", "resolver = 1", "resolvers = [\"127.0.0.1:2\"]\n"),
        ("value", "short", VALUE),
        ("value", "tok_0123456789\nabcdefghij", "tok_9876543210abcdefghij"),
    ] {
        sidecar.write(name, bad);
        let file = name.rsplit('/').next().unwrap();
        sidecar.until("status names it", || sidecar.problems().iter().any(|line| line.contains(file)));
        // The status has it a moment before.
        sidecar.until("the log has it", || sidecar.log().contains(&sidecar.problems()[0]));
        sidecar.write(name, good);
        sidecar.until("it is good again", || sidecar.problems().is_empty());
    }

    let declared = fs::read_to_string(sidecar.path("config/secrets.toml")).unwrap();
    sidecar.write("config/secrets.toml", "[token]\nkid = 1");
    sidecar.until("status names it", || {
        sidecar
            .problems()
            .iter()
            .any(|line| line.starts_with("secrets.toml:2:1") && line.contains("stays in force"))
    });
    sidecar.write("config/secrets.toml", &declared);
    sidecar.until("it is good again", || sidecar.problems().is_empty());
    let log = sidecar.log();
    assert!(!log.contains("0123456789abc") && !log.contains("9876543210abc"), "{log}");
}

#[test]
fn a_signal_is_obeyed_at_once_and_asks_commands_again() {
    let mut sidecar = Sidecar::new();
    let count = sidecar.path("state/count");
    let script = format!("echo >> {0} && echo tok_0123456789abcdefghij$(wc -l < {0})", count.display());
    sidecar.declare("token", &format!("command = [\"sh\", \"-c\", '{script}']"));
    sidecar.start(&[]);
    let runs = || fs::read_to_string(&count).unwrap().len();
    assert_eq!((runs(), sidecar.problems()), (1, vec![]));
    sidecar.write("config/policies/web.toml", "[[alow]]");
    sidecar.until("the policy is looked at", || sidecar.problems().len() == 1);
    assert_eq!(runs(), 1, "the program was asked though only a policy changed");
    kill_process(sidecar.pid(), Signal::HUP).unwrap();
    sidecar.until("the program is asked again", || runs() == 2);
}

#[test]
fn a_variable_is_read_once_and_only_on_the_host() {
    let mut sidecar = Sidecar::new();
    sidecar.declare("token", "variable = \"THE_TOKEN\"");
    assert!(!sidecar.output("check", &["config", "state", "control"]).status.success());
    sidecar.start(&[("THE_TOKEN", VALUE)]);
    assert_eq!(sidecar.problems(), Vec::<String>::new());
    // It cannot be read again, and is still there after a reload.
    kill_process(sidecar.pid(), Signal::HUP).unwrap();
    sidecar.until("it reloads", || sidecar.log().contains("read again"));
    assert_eq!(sidecar.problems(), Vec::<String>::new());

    let mut contained = sidecar.program("check", &["config", "state", "control"]);
    let output = contained.env("container", "podman").env("THE_TOKEN", VALUE).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("runs in a container"), "{said}");
}

#[test]
fn secrets_are_listed_with_their_bindings_and_without_their_values() {
    let mut sidecar = Sidecar::new();
    sidecar.write("value", VALUE);
    sidecar.declare("token", &sidecar.file("value"));
    sidecar.start(&[]);
    let secrets = sidecar.secrets();
    let token = &secrets[0];
    assert_eq!(
        (&token["name"], &token["kind"], &token["usable"]),
        (&"token".into(), &"bearer".into(), &true.into())
    );
    assert_eq!(token["hosts"], serde_json::json!(["api.example.com"]));
    assert_eq!(token["source"], sidecar.file("value").replace(" = ", " ").replace('"', ""));
    let output = sidecar.output("secrets", &["control"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("token\n") && text.contains("last use        never"), "{text}");
    assert!(!text.contains("0123456789") && !secrets.to_string().contains("0123456789"));
    sidecar.write("config/secrets.toml", "");
    sidecar.until("it is gone", || sidecar.secrets() == serde_json::json!([]));
}

#[test]
fn an_expiry_is_told_by_check_and_status_and_ends_nothing() {
    let mut sidecar = Sidecar::new();
    sidecar.write("value", VALUE);
    let source = sidecar.file("value");
    sidecar.declare("token", &format!("{source}\nexpires = 2020-01-31"));
    let output = sidecar.output("check", &["config", "state", "control"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("`token`") && said.contains("EXPIRED"), "{said}");
    // It is a look, also of somebody whose files the sidecar could not read.
    assert_eq!(fs::read_dir(sidecar.path("state")).unwrap().count(), 0);
    sidecar.start(&[]);
    assert!(sidecar.problems()[0].contains("EXPIRED on 2020-01-31"), "{:?}", sidecar.problems());
    assert!(sidecar.log().contains("EXPIRED on 2020-01-31"));
    sidecar.declare("token", &format!("{source}\nexpires = 9000-01-31"));
    sidecar.until("it is not told any more", || sidecar.problems().is_empty());
    assert!(sidecar.output("check", &["config", "state", "control"]).status.success());
}

#[test]
fn two_of_them_never_share_a_state_directory_or_a_control_directory() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[]);
    fs::DirBuilder::new().mode(0o700).create(sidecar.path("other")).unwrap();
    sidecar.own("other");
    for (shared, option, name) in
        [("state", "--control", "state directory"), ("control", "--state", "control directory")]
    {
        let mut second = sidecar.program("serve", &["config", shared]);
        let second = second.arg(option).arg(sidecar.path("other")).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(second.stderr).unwrap();
        assert!(!second.status.success());
        assert!(said.contains(&format!("another sidecar is running with the {name}")), "{said}");
    }
    assert!(sidecar.output("health", &["control"]).status.success());
    // However it ends, the next one starts.
    let mut process = sidecar.process.take().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    sidecar.start(&[]);
}

impl Sidecar {
    fn told(&self, command: &[&str]) -> String {
        let mut program = self.program(command[0], &["control"]);
        let output = program.args(&command[1..]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    }

    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn what_the_operator_decided_outlives_a_restart_is_listed_and_is_taken_back() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[]);
    sidecar.told(&["allow", "docs.example.com", "--always"]);
    sidecar.told(&["deny", "*.paste.example.com", "--for", "1h"]);
    sidecar.end();
    sidecar.start(&[]);
    let status = sidecar.told(&["status"]);
    for line in [
        "decision: 1: allow docs.example.com:443 in every container until it is taken back\n",
        "decision: 2: deny *.paste.example.com in every container for 3",
    ] {
        assert!(status.contains(line), "{status}");
    }
    assert!(sidecar.told(&["withdraw", "1"]).starts_with("taken back: 1: allow docs.example.com:443"));
    sidecar.end();
    sidecar.start(&[]);
    let status = sidecar.told(&["status"]);
    assert!(!status.contains("docs.example.com") && status.contains("decision: 2: deny"), "{status}");
    assert!(sidecar.told(&["withdraw", "1"]).contains("there is no decision 1"));
    // Numbers are never used twice.
    assert!(
        sidecar.told(&["allow", "new.example.com", "--always"]).starts_with("3: allow new.example.com:443")
    );
}

#[test]
fn counts_are_read_over_http_where_the_operator_says_and_nowhere_else() {
    let mut sidecar = Sidecar::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let read = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    sidecar.write("value", VALUE);
    sidecar.declare("token", &sidecar.file("value"));
    sidecar.start(&[]);
    assert!(read().is_err());
    // A port is nothing that a reload opens.
    sidecar.write("config/sidecar.toml", &format!("resolvers = [\"127.0.0.1:1\"]\nmetrics = {port}\n"));
    sidecar.until("status says that it takes a restart", || {
        sidecar.problems().iter().any(|line| line.contains("`metrics` was changed"))
    });
    assert!(read().is_err());
    sidecar.end();
    sidecar.start(&[]);
    let text = read().unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("# EOF\n"), "{text}");
    assert!(
        text.contains("understudy_containers 0\n") && !text.contains("token") && !text.contains(VALUE),
        "{text}"
    );
    // The same as over the socket.
    assert_eq!(text.split_once("\r\n\r\n").unwrap().1, sidecar.told(&["metrics"]));
    // One that it cannot have is an error that says so.
    sidecar.end();
    let held = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let output = sidecar.output("serve", &["config", "state", "control"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("sidecar.toml: metrics: 127.0.0.1"), "{said}");
    drop(held);
}

#[test]
fn a_command_that_needs_a_sidecar_says_what_is_wrong_without_one() {
    let sidecar = Sidecar::new();
    for command in [&["explain", "a.example", "--container", "agent"][..], &["revoke", "--all"], &["status"]]
    {
        let mut program = sidecar.program(command[0], &["control"]);
        let output = program.args(&command[1..]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("the sidecar cannot be reached"), "{said}");
    }
    let both = sidecar.program("revoke", &["control"]).args(["agent", "--all"]).output().unwrap();
    assert!(!both.status.success());
    assert!(!sidecar.output("revoke", &["control"]).status.success());
}
