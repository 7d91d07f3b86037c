//! A clone over SSH: OpenSSH and git at both ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result};

use super::bed::{Bed, RELAYED_HOST};
use super::relayed::{Relayed, Way, timed};
use super::report::Report;
use crate::podman::{Container, unique, until};
use crate::stand::{Agent, import};

const IMAGE: &str = "localhost/understudy-ssh";
/// Of the one pack.
const MIB: u32 = 100;
const KEY: &str = "bench-git";

/// One file of random bytes, so that it stays as large.
const SERVE: &str = r#"
set -eu
mkdir -p /run/sshd /keys /root/.ssh
for key in host real; do ssh-keygen -q -t ed25519 -N '' -f /keys/$key; done
cp /keys/real.pub /root/.ssh/authorized_keys
chmod 700 /root/.ssh
git init -q --initial-branch=main /scratch/work
cd /scratch/work
head -c "$1M" /dev/urandom >large
git add large
git -c user.name=bench -c user.email=bench@example.invalid commit -q -m large
git clone -q --bare . /scratch/large.git
git -C /scratch/large.git gc -q
exec /usr/sbin/sshd -D -e -o ListenAddress=127.0.0.1 -o HostKey=/keys/host -o UsePAM=no -o PermitRootLogin=yes \
    -o PasswordAuthentication=no -o StrictModes=no -o AcceptEnv=GIT_PROTOCOL
"#;

pub(super) fn measure(bed: &Bed, report: &mut Report, rounds: usize) -> Result<()> {
    import(&bed.stand.paths.cache.join("ssh.tar"), IMAGE)?;
    let size = MIB.to_string();
    let network = bed.stand.world_network();
    let server = Container::start(
        &unique("sshd"),
        [&network, "--tmpfs=/scratch", IMAGE, "bash", "-c", SERVE, "-", &size],
    )?;
    until("sshd", || Ok(server.logs()?.contains("listening on 127.0.0.1 port 22")))
        .with_context(|| server.logs().unwrap_or_default())?;
    let agent = agent(bed, &server)?;
    let clone = |way| {
        let (container, ssh) = match way {
            Way::Direct => (&server, "ssh -i /keys/real -o StrictHostKeyChecking=no -o HostName=127.0.0.1"),
            Way::Sidecar => (&agent, "ssh"),
        };
        container.exec(&["rm", "-rf", "/scratch/clone"])?.success()?;
        let url = format!("root@{RELAYED_HOST}:/scratch/large.git");
        timed(container, &format!("GIT_SSH_COMMAND='{ssh}' git clone -q --bare {url} /scratch/clone"))
    };
    until("a clone", || Ok(clone(Way::Sidecar).is_ok())).or_else(|_| clone(Way::Sidecar).map(drop))?;
    let figures = Relayed::measure(bed, rounds, MIB.into(), clone)?;
    figures.report(report, &format!("git clone over SSH, a pack of {MIB} MiB"));
    Ok(())
}

/// With a stand-in for the key that the server lets in.
fn agent(bed: &Bed, server: &Container) -> Result<Container> {
    let read = |path: &str| server.exec(&["cat", path])?.success();
    let configuration = &bed.stand.paths.configuration;
    fs::write(configuration.join(KEY), read("/keys/real")?)?;
    fs::set_permissions(configuration.join(KEY), fs::Permissions::from_mode(0o600))?;
    fs::write(
        configuration.join(format!("policies/{KEY}.toml")),
        format!(
            "[[allow]]\nhost = \"{RELAYED_HOST}\"\nport = 22\ngit = \"read\"\nrepos = [\"scratch/large\"]\n"
        ),
    )?;
    bed.stand.declare(&format!(
        "[{KEY}]\nkind = \"ssh-key\"\nfile = \"/etc/understudy/{KEY}\"\nhosts = \"{RELAYED_HOST}\"\nuser = \"root\"\n\
         host-keys = {:?}\ngrant-to = {{ harnesses = [\"generic\"] }}\n",
        read("/keys/host.pub")?.trim()
    ))?;
    until("the declaration", || Ok(bed.stand.operator(&["secrets"])?.success()?.contains(KEY)))?;
    Agent::new("generic")
        .annotation("understudy.policy", KEY)
        .annotation("understudy.secrets", KEY)
        .option("--tmpfs=/scratch")
        .image(IMAGE)
        .start(&["sleep", "infinity"])
}
