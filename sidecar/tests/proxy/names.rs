//! Names on the wire that are none, or that look like others: none of them is taken for a name, and none leaves.

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::upstream::Protocols;
use crate::world::{HOST, TO_HOST, World};

/// What is no name on the wire, whatever a person may write in a policy.
fn hostile() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "api.example.com\0",
        "api.example.com\0.evil.example",
        "api.example.com%00",
        "api%2eexample%2ecom",
        "api.example.com ",
        "api .example.com",
        "api.example.com\t.evil.example",
        "\"api.example.com\"",
        "api.example.com\\.evil.example",
        "user@api.example.com",
        "api.example.com/",
        "api.example.com#",
        "api.example.com?",
        "api.example.com..",
        ".api.example.com",
        "api..example.com",
        "*.example.com",
        "api\u{ff0e}example\u{ff0e}com",
        "api\u{3002}example.com",
        "ap\u{131}.example.com",
        "ap\u{130}.example.com",
        "\u{212a}.example.com",
        "api.example.com\u{200b}",
        "1.2.3.4",
        "1.2.3.4.",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "[::1]",
        "[fe80::1%25eth0]",
        "[::ffff:169.254.169.254]",
        "",
        ".",
    ]
    .map(|name| name.as_bytes().to_vec())
    .to_vec();
    names.push(b"api.example.com\xff".to_vec());
    names.push([&[b'a'; 300][..], b".example.com"].concat());
    names
}

/// One denied line, in which nothing steers a terminal, with a reason that is about names or one of the `others`; nothing left.
async fn refused(world: &World, name: &[u8], others: &[&str]) {
    let shown = String::from_utf8_lossy(name).into_owned();
    let line = world.only_line().await;
    assert_eq!(line["decision"], "denied", "{shown:?}: {line}");
    let reason = line["reason"].as_str().unwrap_or_default();
    assert!(
        ["malformed", "name-mismatch", "name-missing", "address-literal"].contains(&reason)
            || others.contains(&reason),
        "{shown:?}: {line}"
    );
    let odd = |c: char| c != '\n' && !(c == ' ' || c.is_ascii_graphic());
    assert!(!world.audit_text().contains(odd), "{shown:?}: {line}");
    assert_eq!(world.upstream.requests(), 0, "{shown:?}");
}

async fn exchange(world: &World, bytes: &[u8]) -> Vec<u8> {
    let mut stream = world.connect(TO_HOST).await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_host_header_is_the_name_of_the_connection_or_is_refused() {
    for name in hostile() {
        for target in ["/", "http://HOST/"] {
            let world = World::speaking(Protocols::Plain).await;
            // In absolute form the target is what counts (RFC 9112 section 3.2.2).
            let (host, target) = match target {
                "/" => (name.clone(), b"/".to_vec()),
                _ => (name.clone(), [b"http://", &name[..], b"/"].concat()),
            };
            let head =
                [b"GET ", &target[..], b" HTTP/1.1\r\nHost: ", &host, b"\r\nConnection: close\r\n\r\n"];
            let answer = String::from_utf8_lossy(&exchange(&world, &head.concat()).await).into_owned();
            // White space around a value is not a part of it (RFC 9110 section 5.5).
            if name == b"api.example.com " && target == b"/" {
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                continue;
            }
            assert!(answer.starts_with("HTTP/1.1 4"), "{}: {answer}", String::from_utf8_lossy(&name));
            refused(&world, &name, &[]).await;
        }
    }
}

#[tokio::test]
async fn letter_case_and_one_dot_at_the_end_do_not_matter() {
    for name in ["API.Example.COM", "api.example.com."] {
        let world = World::speaking(Protocols::Plain).await;
        let head = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        let answer = exchange(&world, head.as_bytes()).await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        let seen = world.upstream.seen.requests.lock().unwrap();
        assert_eq!(seen[0].headers["host"], HOST);
    }
}

#[tokio::test]
async fn a_server_name_is_the_name_of_the_connection_or_is_refused() {
    for name in hostile() {
        let world = World::new().await;
        let answer = exchange(&world, &client_hello(&name)).await;
        // An alert, or a reset; no handshake.
        assert!(answer.first().is_none_or(|kind| *kind == 21), "{}", String::from_utf8_lossy(&name));
        refused(&world, &name, &[]).await;
    }
}

#[tokio::test]
async fn the_target_of_a_connect_is_a_name_or_is_refused() {
    for name in hostile() {
        let world = World::speaking(Protocols::Plain).await;
        let head = [b"CONNECT ", &name[..], b":80 HTTP/1.1\r\nHost: ", &name, b":80\r\n\r\n"].concat();
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        exchange(&world, &[&head, request.as_bytes()].concat()).await;
        refused(&world, &name, &["proxy-request", "protocol-not-allowed"]).await;
    }
}

#[tokio::test]
async fn an_authority_of_http2_is_the_name_of_the_connection_or_is_refused() {
    for name in hostile() {
        let world = World::speaking(Protocols::Plain).await;
        let mut stream = world.connect(TO_HOST).await;
        stream.write_all(&http2_request(&name)).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        if name.is_empty() {
            // One that is empty stands for none (RFC 9113 section 8.3.1), and the connection has a name.
            continue;
        }
        refused(&world, &name, &["timeout"]).await;
    }
}

/// The preface, empty settings and one request (RFC 9113, RFC 7541), with `authority` as it is.
fn http2_request(authority: &[u8]) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    // GET, http, /; then the literal value of `:authority`, without Huffman's coding.
    let mut block = vec![0x82, 0x86, 0x84, 0x01];
    match authority.len() {
        length @ 0..127 => block.push(u8::try_from(length).unwrap()),
        length => {
            let rest = length - 127;
            block.extend([127, u8::try_from(rest % 128).unwrap() | 0x80, u8::try_from(rest / 128).unwrap()]);
        }
    }
    block.extend(authority);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, 5, 1, &block)].concat()
}

/// A real one, whose server name is then another.
fn client_hello(name: &[u8]) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let server = ServerName::try_from(HOST).unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), server).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let at = hello.windows(HOST.len()).position(|part| part == HOST.as_bytes()).unwrap();
    hello.splice(at..at + HOST.len(), name.iter().copied());
    // Lengths of the name, its list, its extension, all extensions, the message and the record.
    let grow = |hello: &mut Vec<u8>, at: usize| {
        let length = usize::from(u16::from_be_bytes([hello[at], hello[at + 1]])) + name.len() - HOST.len();
        hello[at..at + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    };
    let session = usize::from(hello[5 + 4 + 34]);
    let suites = 5 + 4 + 35 + session;
    let extensions = suites + 2 + usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]])) + 2;
    for at in [at - 2, at - 5, at - 7, extensions, 7, 3] {
        grow(&mut hello, at);
    }
    hello
}
