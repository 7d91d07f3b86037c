//! A real key that a real `ssh-agent` keeps: `git` as a container has it, and a real `sshd` as the server.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use understudy::proxy::Limits;

use crate::openssh::{Bed, Made};

struct Agent {
    child: Child,
    directory: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_file(socket(&self.directory)));
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("agent")
}

impl Agent {
    fn start(directory: &Path) -> Self {
        let socket = socket(directory);
        let mut command = Command::new("ssh-agent");
        command.arg("-D").arg("-a").arg(&socket).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("SSH_ASKPASS", directory.join("ask")).env("SSH_ASKPASS_REQUIRE", "force");
        let child = command.spawn().expect("ssh-agent (package openssh-client)");
        for _ in 0..500 {
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let agent = Self { child, directory: directory.to_owned() };
        agent.answers("exit 1");
        agent
    }

    /// What is done when it asks somebody.
    fn answers(&self, script: &str) {
        let ask = self.directory.join("ask");
        std::fs::write(&ask, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&ask, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    fn add(&self, arguments: &[&str]) {
        let mut command = Command::new("ssh-add");
        command.args(arguments).env("SSH_AUTH_SOCK", socket(&self.directory)).stdin(Stdio::null());
        command.env("SSH_ASKPASS", self.directory.join("ask")).env("SSH_ASKPASS_REQUIRE", "force");
        let output = command.output().unwrap();
        assert!(output.status.success(), "ssh-add {arguments:?}: {output:?}");
    }
}

async fn bed(directory: &Path, real: &'static str, known_by: &'static str) -> Bed {
    let limits = Limits { agent: Duration::from_secs(2), ..Limits::default() };
    Bed::made(Made { real, known_by, agent: Some(socket(directory)), limits }).await
}

fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("agent").tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_any_type_that_an_agent_keeps_logs_in() {
    for real in ["ed25519", "ecdsa", "rsa"] {
        let directory = directory();
        let agent = Agent::start(directory.path());
        let bed = bed(directory.path(), real, "host.pub").await;
        agent.add(&["-q", bed.at("real").to_str().unwrap()]);
        bed.fine(&["clone", "--quiet", &bed.url("read.git"), bed.at("cloned").to_str().unwrap()]).await;
        let line = bed.world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["secrets"][0]),
            (&"allowed".into(), &"provider".into()),
            "{real}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_does_not_sign_is_refused_in_words_until_it_does() {
    let directory = directory();
    let mut agent = Agent::start(directory.path());
    let bed = bed(directory.path(), "ed25519", "host.pub").await;
    let (url, at) = (bed.url("read.git"), |name: &str| bed.at(name).to_str().unwrap().to_owned());
    let (real, other) = (at("real"), at("host"));
    let fetch = ["ls-remote", &url];
    let said = |what: &str| {
        format!("understudy: credential-unavailable: secret `provider` (secrets.toml:1): {what}")
    };
    let refused = async |what: &str| bed.refused(&fetch, &said(what)).await;
    let socket = socket(directory.path());
    let shown = socket.display();

    refused(&format!("the ssh-agent at {shown} shows no keys; on the host: ssh-add FILE")).await;
    agent.add(&["-q", &other]);
    refused(&format!("the ssh-agent at {shown} does not have the key SHA256:")).await;
    agent.add(&["-q", &real]);
    bed.fine(&fetch).await;
    agent.answers("echo word");
    agent.add(&["-q", "-x"]);
    refused(&format!(
        "the ssh-agent at {shown} shows no keys; on the host: ssh-add FILE, or, if it is locked"
    ))
    .await;
    agent.add(&["-q", "-X"]);
    bed.fine(&fetch).await;

    // It asks somebody, who says no, yes, and nothing.
    agent.add(&["-q", "-D"]);
    agent.add(&["-q", "-c", &real]);
    agent.answers("exit 1");
    refused(&format!("the ssh-agent at {shown} refuses to sign: somebody whom it asked said no")).await;
    agent.answers("exit 0");
    bed.fine(&fetch).await;
    agent.answers("exec sleep 4");
    refused(&format!("the ssh-agent at {shown} has not answered in time")).await;

    // It may be used for the server that was shown to it, or for another one.
    let known = |key: &str| {
        let key = std::fs::read_to_string(at(key)).unwrap();
        std::fs::write(at("known"), format!("git.example {key}")).unwrap();
        agent.add(&["-q", "-D"]);
        agent.add(&["-q", "-H", &at("known"), "-h", "git.example", &real]);
    };
    known("real.pub");
    refused(&format!("the ssh-agent at {shown} shows no keys")).await;
    known("host.pub");
    bed.fine(&fetch).await;

    drop(agent);
    refused(&format!("no ssh-agent answers at {shown} (")).await;
    let problems = bed.world.vault.current().problems(understudy::credentials::expiry::Day::today());
    assert!(problems[0].contains(&format!("no ssh-agent is at {shown}")), "{problems:?}");
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
            let (mut stream, _) = listener.accept().unwrap();
            // What is asked is read first, or asking could fail in its place.
            assert_ne!(stream.read(&mut [0; 1024]).unwrap(), 0);
            stream.write_all(answer).unwrap();
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    refused(&format!("what answers at {shown} is no ssh-agent")).await;
    refused(&format!("the ssh-agent at {shown} has not answered in time")).await;
    answer.join().unwrap();
    std::fs::remove_file(&socket).unwrap();

    agent = Agent::start(directory.path());
    agent.add(&["-q", &real]);
    bed.fine(&fetch).await;
    let lines = bed.world.audit(14).await;
    let denied = lines.iter().filter(|line| line["decision"] == "denied");
    assert!(denied.clone().all(|line| line["reason"] == "credential-unavailable"), "{lines:#?}");
    assert_eq!((denied.count(), lines.len()), (9, 14));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_asked_for_nothing_that_is_not_to_be_signed() {
    let directory = directory();
    let listener = UnixListener::bind(socket(directory.path())).unwrap();
    listener.set_nonblocking(true).unwrap();
    for (known_by, repository, said) in [
        ("real.pub", "read.git", "understudy: upstream-untrusted: "),
        ("host.pub", "other.git", "understudy: path-not-allowed: "),
    ] {
        let bed = bed(directory.path(), "ed25519", known_by).await;
        bed.refused(&["ls-remote", &bed.url(repository)], said).await;
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{said}");
    }
}
