//! Git over SSH: `git` and `ssh` of their packages in a sealed container, with what that was given, and a real `sshd` in the
//! world (`images/ssh`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use understudy_integration_tests::podman::{Container, podman, run, unique, until};
use understudy_integration_tests::stand::{Agent, import};

use crate::stand;

const IMAGE: &str = "localhost/understudy-ssh";

const POLICY: &str = "[[allow]]\nhost = \"git.example\"\nport = [22, 2222]\ngit = \"write\"\nrepos = [\"srv/work\"]\n\
                      [[allow]]\nhost = \"git.example\"\nport = 22\ngit = \"read\"\nrepos = [\"srv/read\"]\n";

/// With host keys and a key that it lets in, made where nobody else is.
const SERVE: &str = r#"
set -eu
mkdir -p /run/sshd /keys /root/.ssh
for key in host other real; do ssh-keygen -q -t ed25519 -N '' -f /keys/$key; done
cp /keys/real.pub /root/.ssh/authorized_keys
chmod 700 /root/.ssh
for repository in work read other; do git init -q --bare --initial-branch=main /srv/$repository.git; done
echo ready
exec /usr/sbin/sshd -D -e -o Port=22 -o Port=2222 -o ListenAddress=127.0.0.1 -o HostKey=/keys/host -o UsePAM=no \
    -o PermitRootLogin=yes -o PasswordAuthentication=no -o StrictModes=no -o AcceptEnv=GIT_PROTOCOL
"#;

fn declared(name: &str, port: u16, host_key: &str) -> String {
    format!(
        "[{name}]\nkind = \"ssh-key\"\nfile = \"/etc/understudy/{name}\"\nhosts = \"git.example\"\nport = {port}\n\
         user = \"root\"\nhost-keys = {:?}\ngrant-to = {{ harnesses = [\"generic\"] }}\n",
        host_key.trim()
    )
}

/// As `declared`, and with an agent that keeps the key.
fn kept(name: &str, host_key: &str, public_key: &str) -> String {
    let file = format!("file = \"/etc/understudy/{name}\"");
    let agent = format!("agent = \"/etc/understudy/agent\"\npublic-key = {:?}", public_key.trim());
    let table = declared(name, 22, host_key).replace(&file, &agent);
    table.split_once('\n').unwrap().1.to_owned()
}

/// An ssh-agent whose socket is in a directory that the sidecar sees.
struct KeyAgent {
    child: Child,
    socket: PathBuf,
}

impl KeyAgent {
    fn start(directory: &Path) -> Self {
        let socket = directory.join("agent");
        let child = Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn();
        let started = Self { child: child.unwrap(), socket };
        until("the agent", || Ok(started.socket.exists())).unwrap();
        started
    }

    fn add(&self, key: &str) {
        let mut command = Command::new("ssh-add");
        command.arg("-q").arg("-").env("SSH_AUTH_SOCK", &self.socket);
        run(&mut command, key.as_bytes()).unwrap().success().unwrap();
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_file(&self.socket));
    }
}

fn server() -> Container {
    let tar = stand().paths.cache.join("ssh.tar");
    assert!(tar.exists(), "{} is missing: run integration-tests/images/ssh", tar.display());
    import(&tar, IMAGE).unwrap();
    let network = stand().world_network();
    let server = Container::start(&unique("sshd"), [&network, IMAGE, "bash", "-c", SERVE]).unwrap();
    until("the server", || Ok(server.logs()?.contains("listening on 127.0.0.1 port 2222"))).unwrap();
    server
}

#[test]
fn git_clones_and_pushes_over_ssh_and_the_key_is_nowhere_in_its_container() {
    let stand = stand();
    let server = server();
    let directory = &stand.paths.configuration;
    let read = |path: &str| server.exec(&["cat", path]).unwrap().success().unwrap();
    let real = read("/keys/real");
    // What port 2222 shows is not what is written down for it: the same host key, another line. No two secrets have one value.
    let wrong = read("/keys/other");
    for (name, key) in [("work-git", &real), ("wrong-git", &wrong)] {
        std::fs::write(directory.join(name), key).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(directory.join(name), mode).unwrap();
    }
    std::fs::write(directory.join("policies/work-git.toml"), POLICY).unwrap();
    stand.declare(&declared("work-git", 22, &read("/keys/host.pub"))).unwrap();
    stand.declare(&declared("wrong-git", 2222, &read("/keys/other.pub"))).unwrap();
    // It is known within five seconds.
    std::thread::sleep(Duration::from_secs(6));

    let agent = Agent::new("generic").image(IMAGE).annotation("understudy.policy", "work-git");
    let granted = agent.clone().annotation("understudy.secrets", "work-git wrong-git");
    let container = granted.start(&["sleep", "infinity"]).unwrap();
    let shell = |script: &str| container.exec(&["bash", "-c", script]).unwrap();
    let fine = |script: &str| shell(script).success().unwrap_or_else(|error| panic!("{script}: {error:#}"));
    let refused = |script: &str, said: &str| {
        let told = shell(script);
        assert!(told.code != Some(0) && told.text().contains(said), "{script}: {}", told.text());
    };
    fine(
        "set -e; cd /tmp; git clone -q root@git.example:/srv/work.git; cd work; head -c 40M /dev/urandom >large\n\
         git add large; git -c user.name=a -c user.email=a@example.invalid commit -qm large; git push -q origin HEAD:main\n\
         cd ..; git clone -q root@git.example:/srv/work.git again; cmp work/large again/large",
    );
    // It arrived at the server.
    let there = server.exec(&["git", "-C", "/srv/work.git", "ls-tree", "--name-only", "main"]).unwrap();
    assert_eq!(there.success().unwrap(), "large\n");
    fine("git ls-remote root@git.example:/srv/read.git");
    refused(
        "cd /tmp/work; git push root@git.example:/srv/read.git HEAD:main",
        "understudy: path-not-allowed: git-receive-pack of",
    );
    refused("git ls-remote root@git.example:/srv/other.git", "understudy: path-not-allowed");
    refused("ssh -T root@git.example", "understudy: protocol-not-allowed: a shell is not allowed");
    refused(
        "git ls-remote ssh://root@git.example:2222/srv/work.git",
        "understudy: upstream-untrusted: git.example shows the host key SHA256:",
    );

    // The search finds the stand-in, and nothing of the keys, which the server has.
    let line = |key: &str| key.lines().nth(2).unwrap().to_owned();
    let stand_in = line(&fine("cat ~/.ssh/id_ed25519"));
    let found = stand.hunt(&container, &[&stand_in]).unwrap();
    assert!(found.iter().any(|place| place.contains(".ssh/id_ed25519")), "{found:?}");
    let (real, wrong) = (line(&real), line(&wrong));
    assert_ne!(stand_in, real);
    assert_eq!(stand.hunt(&container, &[&real, &wrong]).unwrap(), Vec::<String>::new());

    // In a container that was not given it, the stand-in is worth nothing, and the server itself never knew it.
    let key = fine("cat ~/.ssh/id_ed25519 ~/.ssh/id_ecdsa");
    let other = agent.start(&["sleep", "infinity"]).unwrap();
    let script = format!(
        "mkdir -p ~/.ssh; umask 077; cat >/tmp/key <<'END'\n{key}END\n\
         ssh -o StrictHostKeyChecking=no -i /tmp/key root@git.example git-upload-pack /srv/work.git"
    );
    let told = other.exec(&["bash", "-c", &script]).unwrap();
    let said = "understudy: credential-not-granted";
    assert!(told.code != Some(0) && told.text().contains(said), "{}", told.text());
    let log = podman(["logs", &server.name]).unwrap().text();
    assert!(log.contains("Accepted publickey for root"), "{log}");

    // Of an agent of the host, which is where the sidecar's mounts are, the key is as good.
    let key_agent = KeyAgent::start(directory);
    key_agent.add(&read("/keys/real"));
    let _declared = stand
        .declare_meanwhile("agent-git", &kept("agent-git", &read("/keys/host.pub"), &read("/keys/real.pub")))
        .unwrap();
    let policy = Agent::new("generic").image(IMAGE).annotation("understudy.policy", "work-git");
    let third = policy.annotation("understudy.secrets", "agent-git").start(&["sleep", "infinity"]).unwrap();
    let fetch = || third.exec(&["git", "ls-remote", "root@git.example:/srv/work.git"]).unwrap();
    fetch().success().unwrap();
    assert_eq!(stand.hunt(&third, &[&real]).unwrap(), Vec::<String>::new());
    drop(key_agent);
    let told = fetch();
    let said = "understudy: credential-unavailable: secret `agent-git`";
    assert!(told.code != Some(0) && told.text().contains(said), "{}", told.text());
    let key_agent = KeyAgent::start(directory);
    key_agent.add(&read("/keys/real"));
    fetch().success().unwrap();
}
