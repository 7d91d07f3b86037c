//! What OpenSSH and git make of it: `ssh` and `git` as a container has them, with the files that are placed there, and a
//! real `sshd` as the server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use understudy::credentials::ssh::files;
use understudy::proxy::Limits;

use crate::world::{HOST, Options, TO_HOST, World};

pub(crate) struct Bed {
    pub(crate) world: World,
    directory: tempfile::TempDir,
    sshd: Child,
    /// Where the container's `ssh` arrives.
    way: SocketAddr,
}

/// What is not the same in every test.
pub(crate) struct Made {
    /// The type of the real key.
    pub(crate) real: &'static str,
    /// The public key by which the server is known; its own is `host.pub`.
    pub(crate) known_by: &'static str,
    /// The socket of the agent that keeps the real key; without one the sidecar has it.
    pub(crate) agent: Option<PathBuf>,
    pub(crate) limits: Limits,
}

impl Default for Made {
    fn default() -> Self {
        Self { real: "ed25519", known_by: "host.pub", agent: None, limits: Limits::default() }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.sshd.kill());
        drop(self.sshd.wait());
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    output
}

impl Bed {
    async fn new() -> Self {
        Self::made(Made::default()).await
    }

    pub(crate) async fn made(made: Made) -> Self {
        let directory = tempfile::Builder::new().prefix("openssh").tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        for (key, kind) in [("host", "ed25519"), ("real", made.real)] {
            run("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", &at(key)]);
        }
        for repository in ["read", "write", "other"] {
            run(
                "git",
                &["init", "--quiet", "--bare", "--initial-branch=main", &at(&format!("{repository}.git"))],
            );
        }
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n",
            at("host"),
            at("real.pub")
        );
        std::fs::write(at("sshd_config"), configuration).unwrap();
        // The Debian package makes it at boot.
        drop(std::fs::create_dir("/run/sshd"));
        let log = std::fs::File::create(at("sshd.log")).unwrap();
        let sshd =
            Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f", &at("sshd_config")]).stderr(log).spawn();
        let sshd = sshd.expect("/usr/sbin/sshd (package openssh-server)");
        let user = String::from_utf8(run("id", &["-un"]).stdout).unwrap();
        let written = |name: &str| std::fs::read_to_string(at(name)).unwrap().trim().to_owned();
        let mut provider = format!(
            "kind = \"ssh-key\"\nuser = \"{}\"\nhost-keys = \"{}\"",
            user.trim(),
            written(made.known_by)
        );
        if let Some(socket) = made.agent {
            provider += &format!("\nagent = {socket:?}\npublic-key = {:?}", written("real.pub"));
        }
        let rule = |git: &str, repository: &str| {
            let path = at(repository);
            format!(
                "[[allow]]\nhost = \"{HOST}\"\nport = 22\ngit = \"{git}\"\nrepos = [\"{}\"]\n",
                &path[1..]
            )
        };
        let options = Options {
            provider: provider.leak(),
            value: std::fs::read_to_string(at("real")).unwrap().leak(),
            rules: (rule("read", "read") + &rule("write", "write")).leak(),
            limits: made.limits,
            dialled: Some(port),
            ..Options::default()
        };
        let world = World::with(options).await;
        let vault = world.vault.current();
        for file in files(&vault, vault.secrets().iter()).unwrap().files {
            let name = file.path.rsplit('/').next().unwrap();
            std::fs::write(at(name), file.content).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(file.mode);
            std::fs::set_permissions(at(name), mode).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = listener.local_addr().unwrap();
        for _ in 0..500 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let bed = Self { world, directory, sshd, way };
        bed.lead(listener);
        bed
    }

    /// From where `ssh` connects to where the container's connections arrive.
    fn lead(&self, listener: TcpListener) {
        let (stated, relay) = (self.world.stated(), self.world.listener);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let stated = stated.clone();
                tokio::spawn(async move {
                    let mut inner = stated.connect(relay, (TO_HOST, 22).into()).await;
                    drop(tokio::io::copy_bidirectional(&mut client, &mut inner).await);
                });
            }
        });
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ssh(&self) -> String {
        let (key, known) = (self.at("id_ed25519"), self.at("known_hosts"));
        format!(
            "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -o \
             GlobalKnownHostsFile=none -o IdentitiesOnly=yes -i {} -o HostKeyAlias={HOST} -o HostName=127.0.0.1 -p {}",
            known.display(),
            key.display(),
            self.way.port()
        )
    }

    pub(crate) fn url(&self, repository: &str) -> String {
        let user = String::from_utf8(run("id", &["-un"]).stdout).unwrap();
        format!("{}@{HOST}:{}", user.trim(), self.at(repository).display())
    }

    async fn git(&self, arguments: &[&str]) -> Output {
        self.command("git", arguments).await
    }

    async fn command(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env("GIT_SSH_COMMAND", self.ssh()).stdin(Stdio::null());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    pub(crate) async fn fine(&self, arguments: &[&str]) {
        let output = self.git(arguments).await;
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
    }

    pub(crate) async fn refused(&self, arguments: &[&str], said: &str) {
        let output = self.git(arguments).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "git {arguments:?}: {told}");
    }
}

fn commit(work: &Path, name: &str, content: &[u8]) {
    std::fs::write(work.join(name), content).unwrap();
    let work = work.to_str().unwrap();
    run("git", &["-C", work, "add", name]);
    let author = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"];
    run("git", &[&["-C", work], &author[..], &["commit", "--quiet", "-m", name]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd (package openssh-server); make test-all"]
async fn git_clones_and_pushes_what_policy_allows_and_is_told_what_it_does_not() {
    let bed = Bed::new().await;
    let (work, again) = (bed.at("work"), bed.at("again"));
    let (work_path, again_path) = (work.to_str().unwrap(), again.to_str().unwrap());
    bed.fine(&["clone", "--quiet", &bed.url("write.git"), work_path]).await;
    commit(&work, "README", b"hello\n");
    // Random, so that it stays as large.
    let mut large = vec![0_u8; 100 << 20];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut large).unwrap();
    commit(&work, "large", &large);
    let begun = Instant::now();
    bed.fine(&["-C", work_path, "push", "--quiet", "origin", "HEAD:main"]).await;
    let pushed = begun.elapsed();
    bed.fine(&["clone", "--quiet", &bed.url("write.git"), again_path]).await;
    eprintln!("100 MiB: push {pushed:?}, clone {:?}", begun.elapsed() - pushed);
    assert!(std::fs::read(again.join("large")).unwrap() == large);

    bed.fine(&["ls-remote", &bed.url("read.git")]).await;
    bed.refused(
        &["-C", work_path, "push", &bed.url("read.git"), "HEAD:main"],
        "understudy: path-not-allowed: git-receive-pack of",
    )
    .await;
    bed.refused(&["ls-remote", &bed.url("other.git")], "understudy: path-not-allowed: git-upload-pack of")
        .await;

    let ssh = bed.ssh();
    let words: Vec<&str> = ssh.split(' ').skip(1).collect();
    let to = bed.url("x").split(':').next().unwrap().to_owned();
    // Who insists on a terminal gets nothing at all.
    for (more, status, said) in [
        (&["-T"][..], 1, "understudy: protocol-not-allowed: a shell is not allowed"),
        (&["-A", "-X"], 1, "understudy: protocol-not-allowed: a shell is not allowed"),
        (&["-s"], 1, "understudy: protocol-not-allowed: sftp and other subsystems are not allowed"),
        (&["-tt"], 255, "PTY allocation request failed"),
    ] {
        let subsystem = more == ["-s"];
        let arguments = [&words[..], more, &[&to], if subsystem { &["sftp"] } else { &[] }].concat();
        let output = bed.command("ssh", &arguments).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{more:?}: {told}");
        assert!(told.contains(said), "{more:?}: {told}");
    }
    let output = bed.command("ssh", &[&words[..], &[&to, "id"]].concat()).await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("no other command") && output.stdout.is_empty());
    for forward in ["127.0.0.1:9:127.0.0.1:9", "9:127.0.0.1:9"] {
        let arguments = [&words[..], &["-o", "ExitOnForwardFailure=yes", "-R", forward, "-N", &to]].concat();
        assert!(!bed.command("ssh", &arguments).await.status.success(), "{forward}");
    }
    // The real key is in nothing that the container has.
    let real = std::fs::read_to_string(bed.at("real")).unwrap();
    let line = real.lines().nth(4).unwrap();
    for placed in ["id_ed25519", "known_hosts"] {
        assert!(!std::fs::read_to_string(bed.at(placed)).unwrap().contains(line));
    }
    assert!(!bed.world.audit_text().contains(line));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd (package openssh-server); make test-all"]
async fn the_real_server_does_not_know_the_stand_in() {
    let bed = Bed::new().await;
    let configuration = std::fs::read_to_string(bed.at("sshd_config")).unwrap();
    let port = configuration.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let ssh = bed.ssh().replace(&format!("-p {}", bed.way.port()), &format!("-p {port}"));
    // Its host key is not the one that the container knows it by, and without that it would not let it in.
    let words: Vec<&str> = ssh.split(' ').skip(1).collect();
    let to = bed.url("x").split(':').next().unwrap().to_owned();
    for (checked, said) in
        [(true, "HOST IDENTIFICATION HAS CHANGED"), (false, "Permission denied (publickey")]
    {
        // The first value of an option counts.
        let mut options = vec!["-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no"];
        if checked {
            options.clear();
        }
        let output = bed.command("ssh", &[&options[..], &words, &[&to, "id"]].concat()).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_key_of_any_type_logs_in() {
    for real in ["rsa", "ecdsa"] {
        let bed = Bed::made(Made { real, ..Made::default() }).await;
        let clone = bed.at("cloned");
        bed.fine(&["clone", "--quiet", &bed.url("read.git"), clone.to_str().unwrap()]).await;
        let line = bed.world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["secrets"][0]),
            (&"allowed".into(), &"provider".into()),
            "{real}"
        );
    }
}
