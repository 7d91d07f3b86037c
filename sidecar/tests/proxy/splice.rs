//! TLS that is passed through undecrypted, where a rule says so.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, H1, H2, nothing, tls, trusting, whole};
use crate::upstream::{Protocols, SIZE, pattern};
use crate::world::{
    BEARER, HOST, OTHER, Options, REAL, SPLICED, STAND_IN, TO_HOST, TO_OTHER, TO_SPLICED, WELL_KNOWN, World,
    declared, vault,
};

/// Trust in the upstream alone: our own authority's leaf would not do.
fn upstream_roots(world: &World) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(world.upstream.authority_pem.as_bytes()).unwrap()).unwrap();
    roots
}

async fn spliced(world: &World, alpn: &[&[u8]]) -> Client {
    let stream = world.connect(TO_SPLICED).await;
    Client::over(trusting(upstream_roots(world), stream, SPLICED, alpn).await.unwrap()).await
}

#[tokio::test]
async fn the_handshake_is_the_upstreams_own_and_the_line_counts_bytes_and_time() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = spliced(&world, alpn).await;
        let request =
            client.request_for(SPLICED, "/big").header("authorization", format!("Bearer {STAND_IN}"));
        let (_, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert!(body == pattern(SIZE));
        // No swap: nobody saw it.
        assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {STAND_IN}"));
        assert!(world.audit_now().is_empty());
        drop(client);
        let line = world.only_line().await;
        assert_eq!((&line["protocol"], &line["host"]), (&"tls".into(), &SPLICED.into()));
        assert_eq!((&line["decision"], &line["reason"]), (&"allowed".into(), &serde_json::Value::Null));
        assert!(line["rule"].as_str().unwrap().starts_with("rules.toml:"), "{line}");
        assert!(line["bytes-down"].as_u64().unwrap() > SIZE as u64, "{line}");
        assert!((200..100_000).contains(&line["bytes-up"].as_u64().unwrap()), "{line}");
        assert!(line["duration"].as_u64().unwrap() > 0 && line["secrets"].is_null(), "{line}");
        assert_eq!(world.container.counters.allowed.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn the_name_must_still_be_the_one_that_was_looked_up() {
    let world = World::new().await;
    for (address, name) in [(TO_SPLICED, OTHER), (TO_OTHER, SPLICED)] {
        let stream = tls(&world, world.connect(address).await, name, H1).await.unwrap();
        let mut client = Client::over(stream).await;
        let request = client.request_for(name, "/").body(nothing()).unwrap();
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (421, &"name-mismatch".parse().unwrap())
        );
    }
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn only_tls_is_passed_through() {
    let world = World::speaking(Protocols::Plain).await;
    let mut client = Client::plain(world.connect(TO_SPLICED).await).await;
    let request = client.request_for(SPLICED, "/").header("authorization", format!("Bearer {STAND_IN}"));
    let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
    assert_eq!(head.headers["x-understudy-reason"], "credential-misdirected");
    let mut raw = world.connect(TO_SPLICED).await;
    raw.write_all(b"EHLO x\r\n").await.unwrap();
    assert!(raw.read_to_end(&mut Vec::new()).await.is_err());
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn a_host_of_a_secret_and_one_with_a_denial_are_decrypted_all_the_same() {
    let rules =
        "[[allow]]\nhost = [\"api.example.com\", \"other.example.com\"]\nport = PORT\nsplice = true\n";
    let world = World::with(Options { rules, ..Options::default() }).await;
    for (address, name) in [(TO_HOST, HOST), (TO_OTHER, OTHER)] {
        // With our leaf.
        tls(&world, world.connect(address).await, name, H1).await.unwrap();
    }
    assert_eq!(world.upstream.connections(), 0);
}

#[tokio::test]
async fn where_an_account_gets_its_tokens_is_decrypted_all_the_same() {
    let rules = "[[allow]]\nhost = \"auth.openai.com\"\nsplice = true\n";
    let world = World::with(Options { rules, ..Options::default() }).await;
    let declared = declared(BEARER).replace(HOST, "chatgpt.com");
    world.vault.replace(Arc::new(vault(REAL, &declared)));
    let mut stream = world.connect(TO_HOST).await;
    stream.write_all(b"CONNECT auth.openai.com:443 HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = [0; 39];
    stream.read_exact(&mut answer).await.unwrap();
    // With our leaf.
    tls(&world, stream, "auth.openai.com", H1).await.unwrap();
}

/// No account of that provider is declared, and none of its hosts is a secret's: what is looked at is the container's login.
#[tokio::test]
async fn where_a_container_that_was_armed_logs_in_is_decrypted_also_after_a_restart() {
    let rules = "[[allow]]\nhost = [\"github.com\", \"platform.claude.com\"]\nsplice = true\n";
    for host in ["github.com", "platform.claude.com"] {
        let (_, address) = WELL_KNOWN.into_iter().find(|(known, _)| *known == host).unwrap();
        let decrypted = async |world: &World| {
            let to = std::net::SocketAddr::new(address.into(), 443);
            let stream = world.connect_at(world.listener, to).await;
            let ours = tls(world, stream, host, H1).await.is_ok();
            let stream = world.connect_at(world.listener, to).await;
            let theirs = trusting(upstream_roots(world), stream, host, H1).await.is_ok();
            assert_ne!(ours, theirs);
            ours
        };
        let options = || Options { rules, keeps_accounts: true, ..Options::default() };
        let world = World::with(options()).await;
        assert!(!decrypted(&world).await);
        let (arming, id) = (world.keeper().arming(), &world.container.id);
        arming.arm(id, None, std::time::Instant::now()).unwrap();
        assert!(decrypted(&world).await, "its time is over, and its login may come late");
        arming.forget(id);
        assert!(!decrypted(&world).await);
        // As the registry does it for a container that an earlier run of the sidecar had armed.
        let next = World::with(options()).await;
        next.keeper().arming().remember(&next.container.id);
        assert!(decrypted(&next).await);
    }
}

#[tokio::test]
async fn a_secret_that_is_bound_to_the_host_later_ends_what_passes_there() {
    let world = World::new().await;
    let stream = world.connect(TO_SPLICED).await;
    let mut stream = trusting(upstream_roots(&world), stream, SPLICED, H1).await.unwrap();
    world.container.set_rights(understudy::credentials::Rights::clone(&world.container.rights()));
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {SPLICED}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    world.vault.replace(Arc::new(vault(REAL, &declared(BEARER).replace(HOST, SPLICED))));
    world.container.set_rights(understudy::credentials::Rights::clone(&world.container.rights()));
    assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
    let line = world.only_line().await;
    assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &"host-not-allowed".into()));
}

/// As when `allow --for` is over, or somebody denies the host for a time: a stream that runs is judged as a new one.
#[tokio::test]
async fn a_stream_ends_with_the_rule_that_let_it_through_and_with_a_denial() {
    let rule = |world: &World, rest: &str| {
        let port = world.upstream.port();
        only(world, &format!("[[allow]]\nhost = {SPLICED:?}\nport = {port}\nsplice = true\n{rest}"));
    };
    for (end, reason) in
        [("", "host-not-allowed"), ("[[deny]]\nhost = \"*.example.com\"\n", "denied-by-rule")]
    {
        let world = World::new().await;
        rule(&world, "");
        let stream = world.connect(TO_SPLICED).await;
        let mut stream = trusting(upstream_roots(&world), stream, SPLICED, H1).await.unwrap();
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: {SPLICED}\r\n\r\n").as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 15]).await.unwrap();
        rule(&world, "[[allow]]\nhost = \"z.example\"\n");
        match end {
            "" => only(&world, "[[allow]]\nhost = \"z.example\"\n"),
            denial => rule(&world, denial),
        }
        assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
        let line = world.only_line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &reason.into()), "{line}");
    }
}

#[tokio::test]
async fn connections_are_counted_where_a_rule_has_a_rate() {
    let world = World::new().await;
    let port = world.upstream.port();
    only(&world, &format!("[[allow]]\nhost = {SPLICED:?}\nport = {port}\nsplice = true\nrate = \"2/h\"\n"));
    for passes in [true, true, false] {
        let stream = world.connect(TO_SPLICED).await;
        let stream = trusting(upstream_roots(&world), stream, SPLICED, H1).await;
        assert_eq!(stream.is_ok(), passes);
    }
    let lines = world.audit(3).await;
    let refused = lines.iter().find(|line| line["decision"] == "denied").unwrap();
    assert_eq!(
        (&refused["reason"], &refused["rule"]),
        (&"rate-limited".into(), &"t.toml:2".into()),
        "{refused}"
    );
    assert!(refused["detail"].as_str().unwrap().contains("change `rate` at t.toml:2"), "{refused}");
}

fn only(world: &World, rules: &str) {
    let policy = understudy_policies::Policy::parse("t", "t.toml", rules).unwrap();
    let policy = Arc::new(understudy_policies::PolicySet::combine(vec![Arc::new(policy)]));
    let rights = understudy::credentials::Rights { policy, ..Default::default() };
    world.container.set_rights(rights);
}

#[tokio::test]
async fn an_end_is_an_end_and_a_revocation_cuts() {
    let world = World::new().await;
    let stream = world.connect(TO_SPLICED).await;
    let mut stream = trusting(upstream_roots(&world), stream, SPLICED, H1).await.unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {SPLICED}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    world.container.revoke();
    let mut rest = Vec::new();
    assert!(stream.read_to_end(&mut rest).await.is_err());
    let line = world.only_line().await;
    assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &"revoked".into()));
    assert!(line["bytes-up"].as_u64().unwrap() > 200, "{line}");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_reset_and_told() {
    let rules = "[[allow]]\nhost = \"nowhere.example.com\"\nport = PORT\nsplice = true\n";
    let world = World::with(Options { rules, ..Options::default() }).await;
    let stream = world.connect(crate::world::TO_NOWHERE).await;
    assert!(tls(&world, stream, crate::world::NOWHERE, H1).await.is_err());
    let line = world.only_line().await;
    assert_eq!((&line["decision"], &line["reason"]), (&"denied".into(), &"name-not-found".into()));
    assert_eq!(line["protocol"], "tls");
}
