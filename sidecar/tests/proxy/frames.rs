//! WebSockets over the whole way, and the few lines of RFC 6455 that a test needs.

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, H1, nothing};
use crate::world::{Options, REAL, STAND_IN, World};

pub(crate) const TEXT: u8 = 0x81;
const TEXT_BEGINS: u8 = 0x01;
const BINARY: u8 = 0x82;
const PING: u8 = 0x89;
const ENDS: u8 = 0x80;

pub(crate) fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = vec![first];
    match payload.len() {
        length @ ..126 => frame.push(masked | length as u8),
        length => {
            frame.push(masked | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// As a client sends it.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, Some([1, 2, 3, 4]))
}

/// The first byte of a frame and its payload. None at the end, or at what is no frame.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.ok()?;
    let second = stream.read_u8().await.ok()?;
    let length = match second & 0x7f {
        126 => usize::from(stream.read_u16().await.ok()?),
        127 => return None,
        length => usize::from(length),
    };
    let mut mask = [0; 4];
    if second & 0x80 != 0 {
        stream.read_exact(&mut mask).await.ok()?;
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
    Some((first, payload))
}

pub(crate) fn from_hex(digits: &[u8]) -> Vec<u8> {
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).rev().map(byte).collect()
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    masked(TEXT, format!("raw {digits}").as_bytes())
}

pub(crate) type Tunnel = TokioIo<hyper::upgrade::Upgraded>;

pub(crate) async fn open(client: &mut Client) -> Tunnel {
    let request = client
        .request("/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-extensions", "permessage-deflate")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    TokioIo::new(hyper::upgrade::on(response).await.unwrap())
}

#[tokio::test]
async fn what_a_server_sends_is_scrubbed_and_no_extension_is_agreed_on() {
    let world = World::new().await;
    let mut tunnel = open(&mut Client::new(&world, H1).await).await;
    assert!(!world.upstream.last().headers.contains_key("sec-websocket-extensions"));
    let (first, rest) = REAL.split_at(8);
    let (new_first, new_rest) = STAND_IN.split_at(8);
    let frames = |first: &str, rest: &str, whole: &str| {
        [
            frame(TEXT_BEGINS, first.as_bytes(), None),
            frame(PING, b"", None),
            frame(ENDS, rest.as_bytes(), None),
            frame(TEXT, ("x".repeat(300) + whole).as_bytes(), None),
            frame(BINARY, whole.as_bytes(), None),
        ]
        .concat()
    };
    tunnel.write_all(&raw(&frames(first, rest, REAL))).await.unwrap();
    let mut received = vec![0; frames(first, rest, REAL).len()];
    tunnel.read_exact(&mut received).await.unwrap();
    assert_eq!(received, frames(new_first, new_rest, STAND_IN));
    // The end of a message waits for nothing, whatever it looks like.
    tunnel.write_all(&masked(TEXT, b"sk-test-")).await.unwrap();
    assert_eq!(read(&mut tunnel).await.unwrap(), (TEXT, b"sk-test-".to_vec()));
    drop(tunnel);
    assert_eq!(world.only_line().await["scrubbed"], 3);
}

#[tokio::test]
async fn a_real_value_in_a_clients_frames_ends_the_connection() {
    for sent in [
        masked(TEXT, REAL.as_bytes()),
        masked(BINARY, REAL.as_bytes()),
        masked(PING, REAL.as_bytes()),
        [masked(TEXT_BEGINS, &REAL.as_bytes()[..9]), masked(ENDS, &REAL.as_bytes()[9..])].concat(),
    ] {
        let world = World::new().await;
        let mut tunnel = open(&mut Client::new(&world, H1).await).await;
        tunnel.write_all(&masked(TEXT, b"before")).await.unwrap();
        assert_eq!(read(&mut tunnel).await.unwrap().1, b"before");
        tunnel.write_all(&sent).await.unwrap();
        assert_eq!(read(&mut tunnel).await, None);
        let line = world.only_line().await;
        assert_eq!((&line["reason"], &line["secrets"][0]), (&"real-credential".into(), &"provider".into()));
        let received = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
        assert!(received.starts_with("before") && !received.contains(REAL), "{received}");
    }
}

#[tokio::test]
async fn a_frame_that_is_none_ends_the_connection_and_says_why() {
    let world = World::new().await;
    let mut tunnel = open(&mut Client::new(&world, H1).await).await;
    tunnel.write_all(&masked(0xc1, b"compressed")).await.unwrap();
    assert_eq!(read(&mut tunnel).await, None);
    let line = world.only_line().await;
    assert_eq!(line["reason"], "malformed");
    assert!(line["detail"].as_str().unwrap().contains("reserved bit"), "{line}");
    assert!(world.upstream.seen.received.lock().unwrap().is_empty());

    for (bytes, detail) in
        [(vec![0xc1, 0], "reserved bit"), (vec![0x83, 0], "opcode"), (vec![0x80, 0], "continuation")]
    {
        let world = World::new().await;
        let mut tunnel = open(&mut Client::new(&world, H1).await).await;
        tunnel.write_all(&raw(&bytes)).await.unwrap();
        let mut rest = Vec::new();
        drop(tunnel.read_to_end(&mut rest).await);
        assert!(rest.is_empty(), "{rest:?}");
        let line = world.only_line().await;
        assert_eq!(line["reason"], "unreadable-answer");
        assert!(line["detail"].as_str().unwrap().contains(detail), "{line}");
    }
}

#[tokio::test]
async fn the_head_of_the_answer_is_scrubbed() {
    let world = World::new().await;
    let mut client = Client::new(&world, H1).await;
    let request = client
        .request("/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("authorization", format!("Bearer {STAND_IN}"))
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["x-echo"], format!("Bearer {STAND_IN}"));
    assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {REAL}"));
    drop(response);
    assert_eq!(world.only_line().await["scrubbed"], 1);
}

/// Only where the secret says so, only in text, and it comes back as a stand-in.
#[tokio::test]
async fn text_is_swapped_where_the_secret_says_so() {
    let text = "kind = \"bearer\"\nplacements = [\"header authorization Bearer\", \"websocket-text\"]";
    for (provider, first, swapped) in
        [(Some(text), TEXT, true), (Some(text), BINARY, false), (None, TEXT, false)]
    {
        let options = provider.map(|provider| Options { provider, ..Options::default() });
        let world = World::with(options.unwrap_or_default()).await;
        let mut tunnel = open(&mut Client::new(&world, H1).await).await;
        let message = format!("{{\"token\": \"{STAND_IN}\"}}");
        tunnel.write_all(&masked(first, message.as_bytes())).await.unwrap();
        assert_eq!(read(&mut tunnel).await.unwrap(), (first, message.clone().into_bytes()));
        let received = String::from_utf8(world.upstream.seen.received.lock().unwrap().clone()).unwrap();
        assert_eq!(received, if swapped { message.replace(STAND_IN, REAL) } else { message });
        drop(tunnel);
        let line = world.only_line().await;
        assert_eq!(line["secrets"].is_array(), swapped, "{line}");
        assert_eq!(line["stand-ins-in-body"], 1);
    }
}
