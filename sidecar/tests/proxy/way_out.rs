//! The operator's proxy as the sidecar's own way out.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use understudy::dns::{ProxyCredentials, ProxyHost, UpstreamProxy};

use crate::client::{Client, H1, H2, nothing, trusting, whole};
use crate::upstream::Protocols;
use crate::world::{NOWHERE, Options, REAL, SPLICED, STAND_IN, TO_NOWHERE, TO_SPLICED, World};

/// A proxy that answers CONNECT with `status`, and leads every tunnel to one address.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    leads_to: Arc<Mutex<u16>>,
}

impl Proxy {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heads, leads_to) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (seen, to) = (Arc::clone(&heads), Arc::clone(&leads_to));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, to) = (Arc::clone(&seen), Arc::clone(&to));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let port = *to.lock().unwrap();
                    if answer.contains(" 200 ") {
                        let mut upstream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                        let _ = copy_bidirectional(&mut stream, &mut upstream).await;
                    }
                });
            }
        });
        Self { port, heads, leads_to }
    }

    fn declared(&self) -> UpstreamProxy {
        UpstreamProxy {
            host: ProxyHost::Address([127, 0, 0, 1].into()),
            port: self.port,
            by_name: false,
            direct: Vec::new(),
            credentials: Some(ProxyCredentials::parse(b"me:pass").unwrap()),
        }
    }

    async fn world(&self, declared: UpstreamProxy, protocols: Protocols) -> World {
        let world = World::with(Options { protocols, proxy: Some(declared), ..Options::default() }).await;
        *self.leads_to.lock().unwrap() = world.upstream.port();
        world
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";

fn asked(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n")
}

#[tokio::test]
async fn inspected_requests_leave_by_it_to_the_address_that_was_checked() {
    for (protocols, alpn) in [(Protocols::Http1, H1), (Protocols::Http2, H2), (Protocols::Both, H1)] {
        let proxy = Proxy::start(OK).await;
        let world = proxy.world(proxy.declared(), protocols).await;
        let mut client = Client::new(&world, alpn).await;
        for _ in 0..2 {
            let request = client.request("/v1").header("authorization", format!("Bearer {STAND_IN}"));
            let (head, _) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
            assert_eq!(head.status, 200);
        }
        let seen = world.upstream.last();
        assert_eq!(seen.headers["authorization"], format!("Bearer {REAL}"));
        assert!(!seen.headers.contains_key("proxy-authorization"));
        // One tunnel, kept.
        assert_eq!(proxy.heads(), [asked(&format!("127.0.0.1:{}", world.upstream.port()))]);
    }
}

#[tokio::test]
async fn what_is_spliced_leaves_by_it_too() {
    let proxy = Proxy::start(OK).await;
    let world = proxy.world(proxy.declared(), Protocols::Http1).await;
    let mut roots = rustls::RootCertStore::empty();
    use rustls_pki_types::pem::PemObject;
    let authority = rustls_pki_types::CertificateDer::from_pem_slice(world.upstream.authority_pem.as_bytes());
    roots.add(authority.unwrap()).unwrap();
    let stream = trusting(roots, world.connect(TO_SPLICED).await, SPLICED, H1).await.unwrap();
    let mut client = Client::over(stream).await;
    let request = client.request_for(SPLICED, "/").body(nothing()).unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 200);
    assert_eq!(proxy.heads(), [asked(&format!("127.0.0.1:{}", world.upstream.port()))]);
}

#[tokio::test]
async fn by_name_the_proxy_resolves_and_tls_is_verified_all_the_same() {
    let proxy = Proxy::start(OK).await;
    let world = proxy.world(UpstreamProxy { by_name: true, ..proxy.declared() }, Protocols::Http1).await;
    let port = world.upstream.port();
    // Nobody here could resolve it; the upstream that the proxy leads to has no certificate for it.
    let stream = crate::client::tls(&world, world.connect(TO_NOWHERE).await, NOWHERE, H1).await.unwrap();
    let mut client = Client::over(stream).await;
    let request = client.request_for(NOWHERE, "/").body(nothing()).unwrap();
    let (head, _) = whole(client.send(request).await.unwrap()).await;
    assert_eq!(
        (head.status.as_u16(), &head.headers["x-understudy-reason"]),
        (502, &"upstream-untrusted".parse().unwrap())
    );
    assert_eq!(proxy.heads(), [asked(&format!("{NOWHERE}:{port}"))]);
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn what_passes_by_it_does() {
    let proxy = Proxy::start(OK).await;
    let declared = UpstreamProxy { direct: vec!["*.example.com".parse().unwrap()], ..proxy.declared() };
    let world = proxy.world(declared, Protocols::Http1).await;
    assert_eq!(Client::new(&world, H1).await.get("/").await.0.status, 200);
    assert!(proxy.heads().is_empty());
}

#[tokio::test]
async fn a_fault_of_the_proxy_is_told_as_one() {
    for (answer, said) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            "the upstream proxy refused the tunnel (407)",
        ),
        ("HTTP/1.0 503 x\r\n\r\n", "the upstream proxy refused the tunnel (503)"),
        ("220 mail.example ESMTP\r\n\r\n", "what the upstream proxy answered is not HTTP"),
    ] {
        let proxy = Proxy::start(answer).await;
        let world = proxy.world(proxy.declared(), Protocols::Http1).await;
        let (head, body) = Client::new(&world, H1).await.get("/").await;
        assert_eq!(
            (head.status.as_u16(), &head.headers["x-understudy-reason"]),
            (502, &"upstream-proxy-failed".parse().unwrap())
        );
        assert!(String::from_utf8(body.to_vec()).unwrap().contains(said), "{body:?}");
        assert_eq!(world.only_line().await["detail"], said);
        // The same for what has no page.
        let stream = world.connect(TO_SPLICED).await;
        assert!(crate::client::tls(&world, stream, SPLICED, H1).await.is_err());
        let line = world.audit(2).await.pop().unwrap();
        assert_eq!((&line["reason"], &line["detail"]), (&"upstream-proxy-failed".into(), &said.into()));
    }
    let gone = { TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port() };
    let proxy = Proxy::start(OK).await;
    let world = proxy.world(UpstreamProxy { port: gone, ..proxy.declared() }, Protocols::Http1).await;
    let (head, _) = Client::new(&world, H1).await.get("/").await;
    assert_eq!(head.headers["x-understudy-reason"], "upstream-proxy-failed");
}
