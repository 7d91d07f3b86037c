//! Connections that are not requests: cut short, dribbled, of another protocol.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{HOST, Options, TO_HOST, World};

/// A client's hello, as bytes.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = name.is_some();
    let name = rustls_pki_types::ServerName::try_from(name.unwrap_or(HOST).to_owned()).unwrap();
    let mut bytes = Vec::new();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

async fn all_of(mut stream: TcpStream) -> (Vec<u8>, bool) {
    let mut read = Vec::new();
    let reset = stream.read_to_end(&mut read).await.is_err();
    (read, reset)
}

#[tokio::test]
async fn without_a_server_name_the_alert_says_so() {
    for bytes in [hello(None), hello(Some("192.0.2.7"))] {
        let world = World::new().await;
        let mut stream = world.connect(TO_HOST).await;
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(all_of(stream).await, (vec![21, 3, 3, 0, 2, 2, 112], false));
        assert_eq!(world.only_line().await["reason"], "name-missing");
    }
}

#[tokio::test]
async fn other_protocols_are_reset() {
    for (bytes, reason) in [
        (&b"EHLO mail.example\r\n"[..], "protocol-not-allowed"),
        (b"\x05\x01\x00", "protocol-not-allowed"),
        (b"SSH-1.5-old\r\n", "protocol-not-allowed"),
        (b"\x80\x2e\x01\x03\x01\x00\x15", "malformed"),
        (b" GET / HTTP/1.1\r\n", "malformed"),
        (b"GET /\r\n", "malformed"),
        (b"\x16\x03\x01\x00\x00", "malformed"),
    ] {
        let world = World::new().await;
        let mut stream = world.connect(TO_HOST).await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(all_of(stream).await, (Vec::new(), true), "{bytes:?}");
        let line = world.only_line().await;
        assert_eq!(line["reason"], reason);
        assert_eq!(line["host"], HOST);
        assert_eq!(world.upstream.connections(), 0);
    }
}

#[tokio::test]
async fn a_hello_that_is_cut_short_is_one_line() {
    let world = World::new().await;
    let mut stream = world.connect(TO_HOST).await;
    let bytes = hello(Some(HOST));
    stream.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    stream.shutdown().await.unwrap();
    all_of(stream).await;
    assert_eq!(world.only_line().await["reason"], "malformed");
}

#[tokio::test]
async fn a_dribbled_hello_is_answered() {
    let world = World::new().await;
    let mut stream = world.connect(TO_HOST).await;
    stream.set_nodelay(true).unwrap();
    for byte in hello(Some(HOST)) {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [22], "a handshake record");
}

#[tokio::test]
async fn silence_ends() {
    let mut options = Options::default();
    options.limits.first_bytes = Duration::from_millis(50);
    let world = World::with(options).await;
    let mut stream = world.connect(TO_HOST).await;
    stream.write_all(&[22]).await.unwrap();
    assert_eq!(all_of(stream).await, (Vec::new(), true));
    assert_eq!(world.only_line().await["reason"], "timeout");
}

#[tokio::test]
async fn what_was_not_redirected_is_refused() {
    let world = World::new().await;
    let unknown = TcpStream::connect(world.listener).await.unwrap();
    assert_eq!(all_of(unknown).await, (Vec::new(), true));
    let itself: SocketAddr = world.listener;
    let direct = world.connect_at(world.listener, itself).await;
    assert_eq!(all_of(direct).await, (Vec::new(), true));
    for line in world.audit(2).await {
        assert_eq!(line["reason"], "direct-connection");
    }
}

#[tokio::test]
async fn a_connection_without_a_request_is_one_line() {
    let world = World::new().await;
    let stream = crate::client::tls(&world, world.connect(TO_HOST).await, HOST, &[]).await.unwrap();
    drop(stream);
    let line = world.only_line().await;
    assert_eq!((&line["reason"], &line["host"]), (&"timeout".into(), &HOST.into()));
}
