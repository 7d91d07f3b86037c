//! From a permit to addresses that may be dialled: resolved once, checked, and dialled as they were checked.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use understudy_policies::HostName;

use super::hop::Hop;
use super::own::Closed;
use super::upstream_proxy::{ProxyHost, UpstreamProxy};
use crate::decide::Permit;
use crate::dns::SyntheticRange;
use crate::dns::special::{is_private, is_special};
use crate::publish::Ports;
use crate::reason::Reason;

/// How long one resolution may take in all.
const PATIENCE: Duration = Duration::from_secs(8);

/// A permitted name with the ways to it: to addresses that were resolved and checked, once. Only [`Resolver`] makes one.
#[derive(Debug, Clone)]
pub struct Upstream {
    permit: Permit,
    hops: Vec<Hop>,
}

impl Upstream {
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// At least one, in the order in which they are to be tried.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }
}

/// Where the operator says that a name is, in `[names]` of `sidecar.toml`. May be private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedAddress {
    pub address: IpAddr,
    /// The port to dial instead of the one that was asked for.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveDenial {
    /// `NameNotFound`, `PrivateAddress` or `UpstreamTimeout`.
    pub reason: Reason,
    pub detail: String,
    pub remedy: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the resolver cannot be set up: {0}")]
pub struct ResolverError(String);

pub struct Resolver {
    pins: HashMap<HostName, Vec<PinnedAddress>>,
    upstream: TokioResolver,
    range: SyntheticRange,
    proxy: Option<Arc<UpstreamProxy>>,
    /// Where the sidecar itself listens.
    own_ports: Arc<Ports>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Resolver {
    /// With `servers` empty, those of the sidecar's own `/etc/resolv.conf` are asked.
    pub fn new(
        pins: HashMap<HostName, Vec<PinnedAddress>>,
        servers: &[SocketAddr],
        range: SyntheticRange,
    ) -> Result<Self, ResolverError> {
        let error = |e: hickory_resolver::net::NetError| ResolverError(e.to_string());
        let mut builder = if servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|e| {
                ResolverError(format!(
                    "/etc/resolv.conf: {e} (or name the servers in sidecar.toml: resolvers = [\"10.0.0.53\"])"
                ))
            })?
        } else {
            let servers = servers.iter().map(name_server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        options.timeout = Duration::from_secs(2);
        options.attempts = 2;
        Ok(Self {
            pins,
            upstream: builder.build().map_err(error)?,
            range,
            proxy: None,
            own_ports: Arc::default(),
        })
    }

    /// With the operator's proxy as the way to everything but what passes by it.
    #[must_use]
    pub fn through(mut self, proxy: Option<UpstreamProxy>) -> Self {
        self.proxy = proxy.map(Arc::new);
        self
    }

    /// With ports of this machine that no name leads to, a pinned one included.
    #[must_use]
    pub fn closing(self, own_ports: Ports) -> Self {
        Self { own_ports: Arc::new(own_ports), ..self }
    }

    pub async fn resolve(&self, permit: Permit) -> Result<Upstream, ResolveDenial> {
        let (host, port) = (permit.host(), permit.port());
        let proxy = self.proxy.as_ref().filter(|proxy| !proxy.is_passed_by(host));
        let pinned = self.pins.get(host);
        let closed = match pinned {
            Some(_) => Closed::Ports(Arc::clone(&self.own_ports)),
            None => Closed::Whole,
        };
        if let (None, Some(proxy)) = (pinned, proxy.filter(|proxy| proxy.by_name)) {
            let target = format!("{host}:{port}");
            let at = self.proxy_addresses(proxy).await?;
            let hops = at.into_iter().map(|at| Hop::through(proxy, at, target.clone(), closed.clone()));
            return Ok(Upstream { permit, hops: hops.collect() });
        }
        let addresses = match pinned {
            Some(pins) => {
                pins.iter().map(|pin| SocketAddr::new(pin.address, pin.port.unwrap_or(port))).collect()
            }
            None => {
                let private = permit.given().private;
                usable(host, port, &self.look_up(host).await?, self.range, private)?
            }
        };
        let hops = match proxy {
            None => addresses.into_iter().map(|address| Hop::straight(address, closed.clone())).collect(),
            Some(proxy) => {
                let at = self.proxy_addresses(proxy).await?;
                let mut hops = Vec::new();
                for address in addresses {
                    hops.extend(
                        at.iter().map(|at| Hop::through(proxy, *at, address.to_string(), closed.clone())),
                    );
                }
                hops
            }
        };
        Ok(Upstream { permit, hops })
    }

    /// Not checked: where the operator has a proxy is the operator's to say.
    async fn proxy_addresses(&self, proxy: &UpstreamProxy) -> Result<Vec<SocketAddr>, ResolveDenial> {
        let at = |address| SocketAddr::new(address, proxy.port);
        let name = match &proxy.host {
            ProxyHost::Address(address) => return Ok(vec![at(*address)]),
            ProxyHost::Name(name) => name,
        };
        if let Some(pins) = self.pins.get(name) {
            return Ok(pins.iter().map(|pin| at(pin.address)).collect());
        }
        match self.look_up(name).await {
            Ok(found) => Ok(found.into_iter().map(at).collect()),
            Err(denial) => Err(ResolveDenial {
                reason: Reason::UpstreamProxyFailed,
                detail: format!("the upstream proxy: {}", denial.detail),
                remedy: "check `url` of [upstream-proxy] in sidecar.toml".to_owned(),
            }),
        }
    }

    async fn look_up(&self, host: &HostName) -> Result<Vec<IpAddr>, ResolveDenial> {
        let denial = |reason, detail: String| ResolveDenial {
            reason,
            detail,
            remedy: "check the name, and the sidecar's own DNS (`resolvers` in sidecar.toml)".to_owned(),
        };
        // With a trailing dot, so that no search domain is tried.
        let name =
            Name::from_ascii(format!("{host}.")).map_err(|e| denial(Reason::NameNotFound, e.to_string()))?;
        match tokio::time::timeout(PATIENCE, self.upstream.lookup_ip(name)).await {
            Ok(Ok(addresses)) => Ok(addresses.iter().collect()),
            Ok(Err(error)) if error.is_no_records_found() => {
                Err(denial(Reason::NameNotFound, format!("{host} does not resolve")))
            }
            Ok(Err(error)) => {
                Err(denial(Reason::NameNotFound, format!("{host} cannot be resolved: {error}")))
            }
            Err(_) => Err(denial(Reason::UpstreamTimeout, format!("resolving {host} took too long"))),
        }
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()]
        .into_iter()
        .map(|mut connection| {
            connection.port = address.port();
            connection
        })
        .collect();
    NameServerConfig::new(address.ip(), true, connections)
}

/// The public ones among `found`, and with `private` those of private networks. A name that leads only inside is refused, whoever publishes it.
fn usable(
    host: &HostName,
    port: u16,
    found: &[IpAddr],
    range: SyntheticRange,
    private: bool,
) -> Result<Vec<SocketAddr>, ResolveDenial> {
    let synthetic = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if range.contains(*v4));
    let public: Vec<SocketAddr> = found
        .iter()
        .filter(|address| !is_special(**address) || private && is_private(**address))
        .filter(|address| !synthetic(address))
        .map(|address| SocketAddr::new(*address, port))
        .collect();
    if !public.is_empty() {
        return Ok(public);
    }
    let shown: Vec<String> = found.iter().take(4).map(ToString::to_string).collect();
    Err(ResolveDenial {
        reason: Reason::PrivateAddress,
        detail: format!("{host} leads to {}, which is not a public address", shown.join(", ")),
        remedy: format!(
            "if that is meant, write `private = true` into the rule (for a private network's address), or pin it in \
             sidecar.toml: [names] \"{host}\" = \"ADDRESS\""
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_can_open_private_networks_and_never_this_machine_or_its_link() {
        let host: HostName = "x.example".parse().unwrap();
        let one = |text: &str| {
            usable(&host, 443, &[text.parse().unwrap()], SyntheticRange::default(), true).is_ok()
        };
        for inner in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1"] {
            assert!(one(inner), "{inner}");
        }
        for never in [
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "28.0.1.5",
            "224.0.0.1",
            "fd00:ec2::254",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "100.100.100.200",
            "192.0.0.192",
        ] {
            assert!(!one(never), "{never}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_pinned_to_this_machine_does_not_lead_to_the_sidecars_own_ports() {
        use understudy_policies::{Policy, PolicySet, Request};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host: HostName = "x.example".parse().unwrap();
        let pin = PinnedAddress { address: "127.0.0.1".parse().unwrap(), port: None };
        let pins = HashMap::from([(host.clone(), vec![pin])]);
        let nobody = "127.0.0.1:1".parse().unwrap();
        let resolver = |own| {
            Resolver::new(pins.clone(), &[nobody], SyntheticRange::default())
                .unwrap()
                .closing(Ports::default().with(own))
        };
        let text = format!("[[allow]]\nhost = \"x.example\"\nport = {port}\n");
        let policy = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", &text).unwrap())]);
        for (own, dialled) in [(None, true), (Some(port), false), (Some(1), true)] {
            let permit = crate::decide::decide(&policy, &Request::new(&host, port, "GET", "/")).unwrap();
            let upstream = resolver(own).resolve(permit).await.unwrap();
            assert_eq!(upstream.hops()[0].connect().await.is_ok(), dialled, "{own:?}");
        }
    }

    /// A server that gives the next of these with each question for an address, good for no time.
    async fn rotating(addresses: Vec<std::net::Ipv4Addr>) -> SocketAddr {
        use hickory_proto::op::Message;
        use hickory_proto::rr::{RData, Record, RecordType, rdata::A};
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut buffer, mut addresses) = (vec![0; 4096], addresses.into_iter());
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let query = Message::from_vec(&buffer[..length]).unwrap();
                let mut response = Message::response(query.metadata.id, query.metadata.op_code);
                let question = query.queries[0].clone();
                response.add_query(question.clone());
                if question.query_type() == RecordType::A
                    && let Some(address) = addresses.next()
                {
                    response.add_answer(Record::from_rdata(question.name().clone(), 0, RData::A(A(address))));
                }
                socket.send_to(&response.to_vec().unwrap(), peer).await.unwrap();
            }
        });
        at
    }

    #[tokio::test]
    async fn a_name_is_looked_up_for_each_connection_and_what_it_has_become_is_looked_at() {
        use understudy_policies::{Policy, PolicySet, Request};
        let server =
            rotating(["93.184.216.34", "93.184.216.35", "127.0.0.1"].map(|ip| ip.parse().unwrap()).into())
                .await;
        let resolver = Resolver::new(HashMap::new(), &[server], SyntheticRange::default()).unwrap();
        let host: HostName = "x.example".parse().unwrap();
        for expected in ["93.184.216.34", "93.184.216.35"] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(resolver.look_up(&host).await.unwrap(), [expected]);
        }
        let rule = "[[allow]]\nhost = \"x.example\"\n";
        let policy = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", rule).unwrap())]);
        let permit = crate::decide::decide(&policy, &Request::new(&host, 443, "GET", "/")).unwrap();
        assert_eq!(resolver.resolve(permit).await.unwrap_err().reason, Reason::PrivateAddress);
    }

    #[test]
    fn only_public_addresses_are_dialled_and_at_least_one_is_needed() {
        let host: HostName = "x.example".parse().unwrap();
        let range = SyntheticRange::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let mixed =
            usable(&host, 443, &[at("169.254.169.254"), at("93.184.216.34"), at("::1")], range, false)
                .unwrap();
        assert_eq!(mixed, ["93.184.216.34:443".parse().unwrap()]);
        for bad in
            [vec![], vec![at("127.0.0.1")], vec![at("28.0.1.5")], vec![at("::ffff:10.0.0.1"), at("fd00::1")]]
        {
            let denial = usable(&host, 443, &bad, range, false).unwrap_err();
            assert_eq!(denial.reason, Reason::PrivateAddress, "{bad:?}");
        }
    }
}
