//! Which requests may share an upstream connection. Pure.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use understudy_control::ContainerId;
use understudy_policies::HostName;

use super::Downstream;
use crate::dns::{Hop, Upstream};

/// Requests with the same key may follow each other on one connection, and no others: an upstream may remember who
/// spoke before, so containers, secrets and rules are kept apart. So are workers, whose connections belong to their runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub(super) container: ContainerId,
    pub(super) policy: String,
    pub(super) rule: String,
    /// Sorted names of the secrets that are swapped in.
    pub(super) secrets: Vec<String>,
    pub(super) host: HostName,
    pub(super) port: u16,
    /// Whether its name may lead to a private network.
    pub(super) private: bool,
    pub(super) tls: bool,
    /// Whether the container speaks HTTP/2: a connection made for HTTP/1.1 would carry no gRPC.
    pub(super) http2: bool,
    /// What is dialled: the upstream, or a proxy.
    pub(super) address: SocketAddr,
    /// What a proxy is asked for.
    pub(super) target: Option<String>,
    pub(super) worker: usize,
}

impl PoolKey {
    pub(super) fn new(
        downstream: &Downstream,
        upstream: &Upstream,
        hop: &Hop,
        secrets: &[String],
        http2: bool,
    ) -> Self {
        let permit = upstream.permit();
        let mut secrets = secrets.to_vec();
        secrets.sort_unstable();
        secrets.dedup();
        Self {
            container: downstream.container.id.clone(),
            policy: permit.policy().to_owned(),
            rule: permit.rule().to_owned(),
            secrets,
            host: permit.host().clone(),
            port: permit.port(),
            private: permit.given().private,
            tls: downstream.is_tls(),
            http2,
            address: hop.address(),
            target: hop.target().map(str::to_owned),
            worker: downstream.worker,
        }
    }

    /// For pingora's pool, whose own key has none of this. Keyed, so that nobody outside can aim for a collision; and
    /// should there be one, the exact key is compared again before the connection is used.
    pub(super) fn group(&self, hasher: &RandomState) -> u64 {
        hasher.hash_one(self)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn key() -> PoolKey {
        PoolKey {
            container: "a".repeat(64).parse().unwrap(),
            policy: "web".to_owned(),
            rule: "web.toml:3".to_owned(),
            secrets: vec!["one".to_owned()],
            host: "api.example.com".parse().unwrap(),
            port: 443,
            private: false,
            tls: true,
            http2: true,
            address: ([192, 0, 2, 1], 443).into(),
            target: None,
            worker: 0,
        }
    }

    #[test]
    fn every_part_keeps_connections_apart() {
        let hasher = RandomState::new();
        let changes: [fn(&mut PoolKey); 12] = [
            |key| key.container = "b".repeat(64).parse().unwrap(),
            |key| key.policy.push('x'),
            |key| key.rule.push('4'),
            |key| key.secrets.clear(),
            |key| key.host = "api.example.net".parse().unwrap(),
            |key| key.port = 8443,
            |key| key.private = true,
            |key| key.tls = false,
            |key| key.http2 = false,
            |key| key.address.set_port(1),
            |key| key.target = Some("192.0.2.2:443".to_owned()),
            |key| key.worker = 1,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut other = key();
            change(&mut other);
            assert_ne!(other, key(), "{index}");
            assert_ne!(other.group(&hasher), key().group(&hasher), "{index}");
        }
        assert_eq!(key().group(&hasher), key().group(&hasher));
        assert_ne!(key().group(&RandomState::new()), key().group(&hasher));
    }
}
