//! A gateway with containers, an upstream and an audit. The one place that makes policies, names and secrets.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use understudy::audit::Audit;
use understudy::connection::{self, OriginalDestination};
use understudy::container::Container;
use understudy::credentials::{Grants, StubSecret, Vault};
use understudy::dns::{Origin, Resolver, SyntheticNames};
use understudy::proxy::{Gateway, GatewayParts, Limits};
use understudy::tls::{Authority, write_roots};
use understudy_policies::{HostName, PolicySet};

use crate::upstream::{Protocols, Upstream};

pub(crate) const HOST: &str = "api.example.com";
/// Allowed and looked up, and the same upstream, whose certificate does not name it.
pub(crate) const OTHER: &str = "other.example.com";
/// Allowed and looked up; no upstream has an address for it.
pub(crate) const NOWHERE: &str = "nowhere.example.com";
/// Looked up once, no longer allowed.
pub(crate) const FORMERLY: &str = "formerly.example.com";

pub(crate) const TO_HOST: [u8; 4] = [28, 0, 0, 1];
pub(crate) const TO_OTHER: [u8; 4] = [28, 0, 0, 2];
pub(crate) const TO_NOWHERE: [u8; 4] = [28, 0, 0, 3];
pub(crate) const TO_FORMERLY: [u8; 4] = [28, 0, 0, 4];
pub(crate) const TO_SINK: [u8; 4] = [28, 0, 0, 255];
pub(crate) const TO_LITERAL: [u8; 4] = [192, 0, 2, 1];
pub(crate) const TO_NEVER_LOOKED_UP: [u8; 4] = [28, 0, 9, 9];

pub(crate) const STAND_IN: &str = "sk-test-stand-in-0000";
pub(crate) const REAL: &str = "sk-test-the-real-one-1";

pub(crate) struct World {
    pub(crate) upstream: Upstream,
    pub(crate) container: Arc<Container>,
    pub(crate) listener: SocketAddr,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) authority_pem: String,
    stated: Arc<Stated>,
    audit: Arc<Mutex<Vec<u8>>>,
    _directory: tempfile::TempDir,
}

pub(crate) struct Options {
    pub(crate) protocols: Protocols,
    pub(crate) trusted: bool,
    pub(crate) limits: Limits,
    /// Addresses of the upstream's host, in the order to be tried.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocols: Protocols::Both,
            trusted: true,
            limits: Limits::default(),
            addresses: vec![[127, 0, 0, 1].into()],
        }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn speaking(protocols: Protocols) -> Self {
        Self::with(Options { protocols, ..Options::default() }).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(options.protocols).await;
        let extra = directory.path().join("upstream-ca.pem");
        std::fs::write(&extra, &upstream.authority_pem).unwrap();
        let roots_file = directory.path().join("roots.pem");
        write_roots(&roots_file, if options.trusted { std::slice::from_ref(&extra) } else { &[] }).unwrap();
        let authority = Authority::load_or_create(directory.path()).unwrap();
        let authority_pem = authority.certificate_pem().to_owned();

        let stated = Arc::new(Stated::default());
        let audit = Arc::new(Mutex::new(Vec::new()));
        let loopback = vec![IpAddr::from([127, 0, 0, 1])];
        let resolver = Resolver::pinned([(HOST.to_owned(), options.addresses), (OTHER.to_owned(), loopback)]);
        let vault = Vault::holding(vec![StubSecret {
            name: "provider".to_owned(),
            host: HOST.to_owned(),
            header: http::header::AUTHORIZATION,
            stand_in: STAND_IN.to_owned(),
            real: REAL.to_owned(),
        }]);
        let gateway = Gateway::new(GatewayParts {
            authority,
            roots_file,
            vault: Arc::new(vault),
            resolver: Arc::new(resolver),
            audit: Audit::new(Sink(Arc::clone(&audit))),
            original_destination: Arc::clone(&stated) as Arc<dyn OriginalDestination>,
            limits: options.limits,
        })
        .unwrap();
        let container = container('a', upstream.port());
        let listener = listen(&container, &gateway).await;
        Self { upstream, container, listener, gateway, authority_pem, stated, audit, _directory: directory }
    }

    /// Another container of the same sidecar, with the same policy and grants.
    pub(crate) async fn another_container(&self) -> SocketAddr {
        listen(&container('b', self.upstream.port()), &self.gateway).await
    }

    /// A connection as if it had been redirected on its way to `address`, port of the upstream.
    pub(crate) async fn connect(&self, address: [u8; 4]) -> TcpStream {
        self.connect_at(self.listener, SocketAddr::new(address.into(), self.upstream.port())).await
    }

    pub(crate) async fn connect_at(&self, listener: SocketAddr, destination: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        self.stated.0.lock().unwrap().insert(socket.local_addr().unwrap(), destination);
        socket.connect(listener).await.unwrap()
    }

    /// The audit's lines once there are at least `count`.
    pub(crate) async fn audit(&self, count: usize) -> Vec<serde_json::Value> {
        for _ in 0..1000 {
            let lines = self.audit_now();
            if lines.len() >= count {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("fewer than {count} audit lines: {:#?}", self.audit_now());
    }

    pub(crate) fn audit_now(&self) -> Vec<serde_json::Value> {
        self.audit_text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn audit_text(&self) -> String {
        String::from_utf8(self.audit.lock().unwrap().clone()).unwrap()
    }

    /// The one line that there is.
    pub(crate) async fn only_line(&self) -> serde_json::Value {
        let lines = self.audit(1).await;
        assert_eq!(lines.len(), 1, "{lines:#?}");
        lines[0].clone()
    }
}

fn container(digit: char, port: u16) -> Arc<Container> {
    let host = |name: &str| name.parse::<HostName>().unwrap();
    let policy = PolicySet::allowing([(host(HOST), port), (host(OTHER), port), (host(NOWHERE), port)]);
    let names = SyntheticNames::stating([
        (IpAddr::from(TO_HOST), Origin::Name(host(HOST))),
        (IpAddr::from(TO_OTHER), Origin::Name(host(OTHER))),
        (IpAddr::from(TO_NOWHERE), Origin::Name(host(NOWHERE))),
        (IpAddr::from(TO_FORMERLY), Origin::Name(host(FORMERLY))),
        (IpAddr::from(TO_SINK), Origin::Sink),
        (IpAddr::from(TO_NEVER_LOOKED_UP), Origin::NeverLookedUp),
    ]);
    let id = digit.to_string().repeat(64).parse().unwrap();
    let name = Some(format!("agent-{digit}"));
    let grants = Arc::new(Grants::of(&["provider"]));
    Arc::new(Container::new(id, name, "generic".to_owned(), Arc::new(policy), grants, names, Vec::new()))
}

async fn listen(container: &Arc<Container>, gateway: &Arc<Gateway>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(connection::serve(listener, Arc::clone(container), Arc::clone(gateway)));
    address
}

/// Destinations by the client's own address.
#[derive(Default)]
struct Stated(Mutex<HashMap<SocketAddr, SocketAddr>>);

impl OriginalDestination for Stated {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        let peer = stream.peer_addr()?;
        self.0.lock().unwrap().get(&peer).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
