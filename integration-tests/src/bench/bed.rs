//! Everything that a benchmark needs, running: a stand with an origin, a sink for uploads, an nginx proxy, and an agent.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::nginx::{self, ORIGIN, PROXY, SINK};
use super::route::Route;
use crate::podman::{Container, podman, unique, until};
use crate::stand::{Agent, GENERIC, Stand};

pub(super) const IMAGE: &str = "localhost/understudy-bench";
/// Where downloads and small files are; secret `example` is bound to it.
pub(super) const HOST: &str = "api.example";
/// Where uploads go.
pub(super) const SINK_HOST: &str = "other.example";
/// The same origin, without being decrypted on the way.
pub(super) const SPLICED_HOST: &str = "spliced.example";
/// Where git and PostgreSQL are, each at its own port.
pub(super) const RELAYED_HOST: &str = "relayed.example";
/// Body of one small answer.
const SMALL: usize = 1024;
const GIB: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Bed {
    pub(super) stand: Stand,
    /// Holds `example`'s stand-in.
    pub(super) agent: Container,
    pub(super) stand_in: String,
    /// In the world's network.
    pub(super) origin: Container,
    pub(super) proxy: Container,
    pub(super) relay: Container,
    _sink: Container,
    /// The containers' `/bench`.
    pub(super) directory: PathBuf,
}

impl Bed {
    pub(super) fn new(progress: impl Fn(&str)) -> Result<Self> {
        let stand = Stand::start(&[GENERIC], &progress)?;
        progress("importing the benchmark's root filesystem");
        let tar = stand.paths.cache.join("bench.tar");
        let tar = tar.to_str().context("cache path is not UTF-8")?;
        let path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        podman(["import", "--quiet", "--change", path, tar, IMAGE])?.success()?;

        progress("starting origin, sink, nginx proxy and agent");
        let directory = stand.paths.world.join("bench");
        fs::create_dir_all(directory.join("www"))?;
        certificates(&directory)?;
        nginx::write(&directory)?;
        fs::write(
            directory.join("hosts"),
            format!("127.0.0.1 localhost {HOST} {SINK_HOST} {SPLICED_HOST}\n"),
        )?;
        fs::write(directory.join("www/small"), vec![b'x'; SMALL])?;
        // sparse: read from memory, never from a disk
        fs::File::create(directory.join("www/gib"))?.set_len(GIB)?;
        let in_world = InWorld { stand: &stand, directory: &directory };
        let origin = in_world.start("origin", &["nginx", "-e", "stderr", "-c", "/bench/origin.conf"])?;
        let proxy = in_world.start("proxy", &["nginx", "-e", "stderr", "-c", "/bench/proxy.conf"])?;
        let relay = in_world.start("relay", &["/program", "relay"])?;
        let sink = in_world.start("sink", &["/program", "sink", "/bench"])?;
        configure(&stand, &directory)?;
        let agent = agent(&stand, &directory)?;
        let stand_in = agent.exec(&["cat", "/tmp/stand-in"])?.success()?.trim().to_owned();
        let bed = Self { stand, agent, stand_in, origin, proxy, relay, _sink: sink, directory };
        bed.check()?;
        Ok(bed)
    }

    /// A client's command, where this route's clients are.
    pub(super) fn client(&self, route: Route, command: &[&str]) -> Result<String> {
        let client = if route.through_sidecar() { &self.agent } else { &self.origin };
        client.exec(command)?.success().with_context(|| format!("{route:?}: {}", command.join(" ")))
    }

    /// Processes of what stands in the middle of a route; none on a direct one.
    pub(super) fn middle(&self, route: Route) -> Result<Vec<u32>> {
        match route {
            Route::Direct => Ok(Vec::new()),
            Route::Nginx => super::cpu::family(self.proxy.pid()?),
            Route::Sidecar | Route::Swap => Ok(vec![self.stand.sidecar_pid()?]),
        }
    }

    /// The authority that a route's clients trust.
    pub(super) fn authority(route: Route) -> &'static str {
        if route.through_sidecar() { "/run/understudy/ca.crt" } else { "/bench/ca.crt" }
    }

    /// Every route answers before any is measured, and the swap happens.
    fn check(&self) -> Result<()> {
        for route in Route::ALL {
            for path in ["small", "up"] {
                let url = route.url(path);
                let key = format!("x-api-key: {}", self.stand_in);
                let header: &[&str] = if route.swaps() && path == "small" { &["-H", &key] } else { &[] };
                let fixed =
                    ["curl", "-sS", "--fail", "-o", "/dev/null", "--cacert", Self::authority(route), &url];
                let ready = || Ok(self.client(route, &[&fixed, header].concat()).is_ok());
                until(&format!("{route:?} {url}"), ready)
                    .or_else(|_| self.client(route, &[&fixed, header].concat()).map(drop))?;
            }
        }
        let log = self.stand.sidecar_log()?;
        let swapped = log.lines().any(|line| line.contains(&format!("\"secrets\":[\"{GENERIC}\"]")));
        anyhow::ensure!(swapped, "no request was sent with the secret\n{log}");
        Ok(())
    }
}

struct InWorld<'a> {
    stand: &'a Stand,
    directory: &'a std::path::Path,
}

impl InWorld<'_> {
    fn start(&self, name: &str, command: &[&str]) -> Result<Container> {
        let directory = self.directory.display();
        let options = [
            self.stand.world_network(),
            format!("--volume={directory}:/bench:ro"),
            format!("--volume={directory}/hosts:/etc/hosts:ro"),
            format!("--volume={}:/program:ro", self.stand.paths.program("bench").display()),
            IMAGE.to_owned(),
        ];
        let command = command.iter().copied();
        Container::start(&unique(name), options.iter().map(String::as_str).chain(command))
    }
}

fn agent(stand: &Stand, directory: &std::path::Path) -> Result<Container> {
    let container = Agent::new("generic")
        .annotation("understudy.policy", "world spliced")
        .annotation("understudy.secrets", GENERIC)
        .option(&format!("--volume={}:/bench/www:ro", directory.join("www").display()))
        .option(&format!("--volume={}:/bench/ca.crt:ro", directory.join("ca.crt").display()))
        .option(&format!("--volume={}:/program:ro", stand.paths.program("bench").display()))
        .image(IMAGE)
        .start(&["sh", "-c", "printenv EXAMPLE_API_KEY >/tmp/stand-in; exec sleep infinity"])?;
    until("the agent", || Ok(container.exec(&["test", "-s", "/tmp/stand-in"])?.code == Some(0)))?;
    Ok(container)
}

/// The two names lead to the origins of this benchmark, whose authority the sidecar trusts.
fn configure(stand: &Stand, directory: &std::path::Path) -> Result<()> {
    let configuration = &stand.paths.configuration;
    fs::copy(directory.join("ca.crt"), configuration.join("bench-ca.crt"))?;
    fs::write(
        configuration.join("sidecar.toml"),
        format!(
            "extra-ca = [\"/etc/understudy/bench-ca.crt\"]\n\
             resolvers = [\"127.0.0.1:53\"]\n\
             [names]\n\"{HOST}\" = \"127.0.0.1:{ORIGIN}\"\n\"{SINK_HOST}\" = \"127.0.0.1:{SINK}\"\n\"{SPLICED_HOST}\" = \"127.0.0.1:{ORIGIN}\"\n\
             \"{RELAYED_HOST}\" = \"127.0.0.1\"\n"
        ),
    )?;
    fs::write(
        configuration.join("policies/spliced.toml"),
        format!("[[allow]]\nhost = \"{SPLICED_HOST}\"\nsplice = true\n"),
    )?;
    stand.kill_sidecar();
    stand.start_sidecar()
}

/// `ca.crt`, `leaf.crt` and `leaf.key`.
fn certificates(directory: &std::path::Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Benchmark authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    fs::write(directory.join("ca.crt"), authority.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new([HOST, SINK_HOST, SPLICED_HOST].map(str::to_owned))?;
    let leaf = leaf.signed_by(&key, &issuer)?;
    fs::write(directory.join("leaf.crt"), leaf.pem())?;
    fs::write(directory.join("leaf.key"), key.serialize_pem())?;
    Ok(())
}

impl Route {
    /// Of `small`, `gib` or `up`.
    pub(super) fn url(self, path: &str) -> String {
        let host = if path == "up" { SINK_HOST } else { HOST };
        let port = match self {
            Self::Direct if path == "up" => SINK,
            Self::Direct => ORIGIN,
            Self::Nginx => PROXY,
            Self::Sidecar | Self::Swap => 443,
        };
        format!("https://{host}:{port}/{path}")
    }
}
