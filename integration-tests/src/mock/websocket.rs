//! A WebSocket that sends every message back (RFC 6455), enough to see that a tunnel stays open and whole.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::routes::Body;

/// RFC 6455 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const TEXT: u8 = 1;
const FINAL_TEXT: u8 = 0x81;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const LARGEST: usize = 16 << 20;

pub(super) fn wanted(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// `greeting` is sent first, as a text and in the head. What `events` has for a message is sent instead of the message itself, if
/// there is any.
pub(super) fn accept(
    headers: &HeaderMap,
    upgrade: OnUpgrade,
    greeting: Option<&str>,
    events: impl Fn(&[u8]) -> Vec<String> + Send + Sync + 'static,
) -> Result<Response<Body>> {
    let key = headers.get("sec-websocket-key").context("no Sec-WebSocket-Key")?.to_str()?;
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let first = greeting.map(|greeting| frame(FINAL_TEXT, greeting.as_bytes()));
    tokio::spawn(async move {
        if let Ok(stream) = upgrade.await {
            let mut stream = TokioIo::new(stream);
            // the client's going away ends the echo
            if stream.write_all(&first.unwrap_or_default()).await.is_ok() {
                let _ = echo(stream, &events).await;
            }
        }
    });
    let mut response = Response::builder();
    if let Some(greeting) = greeting {
        response = response.header("x-reflected", greeting);
    }
    Ok(response
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::UPGRADE, "websocket")
        .header(header::CONNECTION, "Upgrade")
        .header("sec-websocket-accept", STANDARD.encode(digest))
        .body(Empty::new().boxed())?)
}

async fn echo(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    events: &impl Fn(&[u8]) -> Vec<String>,
) -> Result<()> {
    loop {
        let first = stream.read_u8().await?;
        let second = stream.read_u8().await?;
        let length = match second & 0x7f {
            126 => usize::from(stream.read_u16().await?),
            127 => usize::try_from(stream.read_u64().await?)?,
            short => usize::from(short),
        };
        anyhow::ensure!(length <= LARGEST, "frame of {length} bytes");
        let mut mask = [0; 4];
        if second & 0x80 != 0 {
            stream.read_exact(&mut mask).await?;
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        let opcode = first & 0x0f;
        let events = if opcode == TEXT { events(&payload) } else { Vec::new() };
        if !events.is_empty() {
            for event in &events {
                stream.write_all(&frame(first, event.as_bytes())).await?;
            }
            stream.flush().await?;
            continue;
        }
        let answer = if opcode == PING { (first & 0xf0) | PONG } else { first };
        stream.write_all(&frame(answer, &payload)).await?;
        stream.flush().await?;
        if opcode == CLOSE {
            return Ok(());
        }
    }
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u16::try_from(payload.len()) {
        Ok(short) if short < 126 => frame.push(short as u8),
        Ok(medium) => {
            frame.push(126);
            frame.extend(medium.to_be_bytes());
        }
        Err(_) => {
            frame.push(127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}
