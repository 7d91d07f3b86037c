//! Everything that connections of all containers share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::{HttpServerOptions, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use understudy_control::ContainerId;

use super::engine::Engine;
use super::{Downstream, h2_limits};
use crate::accounts::Keeper;
use crate::audit::Audit;
use crate::connection::OriginalDestination;
use crate::container::Container;
use crate::credentials::Vault;
use crate::current::Current;
use crate::dns::Resolver;
use crate::named::NamedHosts;
use crate::operator::Questions;
use crate::tls::roots::read_roots;
use crate::tls::{Leaves, RootsError};
use crate::workers::Workers;

/// What a gateway is made of.
pub struct GatewayParts {
    /// Of the authority that containers trust of which nothing else is said.
    pub leaves: Arc<Leaves>,
    /// PEM; exactly the authorities that upstreams are held to. Written by [`crate::tls::write_roots`].
    pub roots_file: PathBuf,
    pub vault: Current<Vault>,
    pub resolver: Current<Resolver>,
    /// None: accounts are never renewed.
    pub accounts: Option<Arc<Keeper>>,
    pub audit: Audit,
    /// Where requests wait for a person.
    pub questions: Arc<Questions>,
    /// Where answers tell of hosts.
    pub named: Arc<NamedHosts>,
    /// [`crate::connection::Redirected`] outside of tests.
    pub original_destination: Arc<dyn OriginalDestination>,
    pub limits: Limits,
    pub workers: Workers,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections of one container.
    pub connections: u64,
    /// Requests of one container under way, over all its connections: each can take an upstream connection, and the
    /// sidecar's descriptors and memory are those of all containers.
    pub requests: u64,
    /// From accepting to knowing what it is.
    pub first_bytes: Duration,
    pub handshake: Duration,
    /// What an ssh-agent takes for one login, with the person whom it may ask.
    pub agent: Duration,
    /// From the decision to an upstream connection, over all addresses.
    pub connect: Duration,
    /// What is under way on an HTTP/2 connection that takes no new requests has so long; nobody has to believe GOAWAY.
    pub ending: Duration,
    /// Idle upstream connections, of all containers.
    pub pooled: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 512,
            first_bytes: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            agent: Duration::from_secs(30),
            connect: Duration::from_secs(10),
            ending: Duration::from_secs(10),
            pooled: 512,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("upstream roots: {0}")]
    Roots(#[from] RootsError),
    #[error("{}: path of the upstream roots is not UTF-8", .0.display())]
    Path(PathBuf),
    #[error("upstream TLS: {0}")]
    Tls(#[from] rustls::Error),
}

pub struct Gateway {
    leaves: Arc<Leaves>,
    audit: Audit,
    original_destination: Arc<dyn OriginalDestination>,
    limits: Limits,
    workers: Workers,
    vault: Current<Vault>,
    resolver: Current<Resolver>,
    postgres_tls: Arc<ClientConfig>,
    proxy: Arc<HttpProxy<Engine>>,
    accounts: Option<Arc<Keeper>>,
}

impl Gateway {
    /// Fails if there is no root to hold upstreams to: pingora panics then, and falls back to the platform's roots if
    /// it is given no file.
    pub fn new(parts: GatewayParts) -> Result<Arc<Self>, GatewayError> {
        let postgres_tls = postgres_tls(&read_roots(&parts.roots_file)?)?;
        let roots = parts.roots_file.to_str().ok_or_else(|| GatewayError::Path(parts.roots_file.clone()))?;
        let configuration = ServerConf {
            ca_file: Some(roots.to_owned()),
            upstream_keepalive_pool_size: parts.limits.pooled,
            // Tries in all; which failures are tried again is the engine's decision.
            max_retries: 8,
            ..ServerConf::default()
        };
        let engine = Engine {
            vault: parts.vault.clone(),
            resolver: parts.resolver.clone(),
            accounts: parts.accounts.clone(),
            audit: parts.audit.clone(),
            questions: parts.questions,
            named: parts.named,
            connect: parts.limits.connect,
            requests: parts.limits.requests,
            hasher: std::hash::RandomState::new(),
        };
        let mut proxy = HttpProxy::new(engine, Arc::new(configuration));
        let mut options = HttpServerOptions::default();
        // Lets the engine refuse CONNECT with a page; pingora's own answer is a bare 405.
        options.allow_connect_method_proxying = true;
        options.h2_idle_timeout = Some(Duration::from_secs(300));
        proxy.server_options = Some(options);
        proxy.h2_options = Some(h2_limits::options());
        proxy.handle_init_modules();
        Ok(Arc::new(Self {
            leaves: parts.leaves,
            audit: parts.audit,
            original_destination: parts.original_destination,
            limits: parts.limits,
            workers: parts.workers,
            vault: parts.vault,
            resolver: parts.resolver,
            postgres_tls,
            proxy: Arc::new(proxy),
            accounts: parts.accounts,
        }))
    }

    /// Whether logins of this container are looked at, since it was armed for one.
    pub(crate) fn looks_at_logins(&self, container: &ContainerId) -> bool {
        self.accounts.as_ref().is_some_and(|keeper| keeper.arming().concerns(container))
    }

    /// Of the authority that this container trusts.
    pub fn leaves<'s>(&'s self, container: &'s Container) -> &'s Leaves {
        container.leaves().unwrap_or(&self.leaves)
    }

    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    pub fn vault(&self) -> &Current<Vault> {
        &self.vault
    }

    pub fn resolver(&self) -> &Current<Resolver> {
        &self.resolver
    }

    /// By which PostgreSQL servers are verified: as all upstreams are.
    pub fn postgres_tls(&self) -> &Arc<ClientConfig> {
        &self.postgres_tls
    }

    pub fn original_destination(&self) -> &dyn OriginalDestination {
        &*self.original_destination
    }

    /// Serves a connection's requests until it ends. Dropping the future cuts it.
    pub async fn converse(&self, stream: Stream, downstream: &Downstream) {
        let (shutdown, mut ending) = (downstream.ending(), downstream.ending());
        let served = self.proxy.process_new(stream, &shutdown);
        let cut = async {
            // It never comes, where the connection goes first.
            drop(ending.wait_for(|ending| *ending).await);
            tokio::time::sleep(self.limits.ending).await;
        };
        tokio::select! {
            biased;
            _ = served => {}
            () = cut => {}
        }
    }

    /// Closes idle kept-alive connections, for a shutdown that waits for those that work.
    pub async fn drain(&self) {
        use pingora_core::apps::HttpServerApp;
        self.proxy.http_cleanup().await;
    }
}

fn postgres_tls(roots: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    // As libpq does it from version 17 on.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gateway(..)")
    }
}
