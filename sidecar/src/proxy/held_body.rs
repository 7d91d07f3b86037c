//! A body that has a field for a credential: read whole before anything is sent, so that a refusal is a page and nothing
//! goes upstream by halves.
//!
//! pingora sends a body that was read before only from its own buffer for retries, which holds 64 KiB. What is read
//! last is left in that buffer, and the whole of the swapped body is put in its place when pingora sends it. How much
//! comes last can be told only from a Content-Length; a body without one must fit the buffer.

use bytes::{Bytes, BytesMut};
use http::{Version, header};
use pingora_error::{Error, ErrorType, Result};
use pingora_http::RequestHeader;
use pingora_proxy::Session;
use tokio::sync::OwnedSemaphorePermit;

use super::coding::{Coding, Decoder, Undecodable};
use super::headers::content_length;
use crate::reason::Reason;

/// Of a body with a Content-Length.
const MAX: usize = 1 << 20;
/// What pingora's buffer holds.
const BUFFER: usize = 1 << 16;

/// At once, of one container. More wait.
pub(crate) const HELD_AT_ONCE: usize = 32;

/// The body that goes upstream. Does not print.
pub(super) struct HeldBody {
    bytes: Bytes,
    /// Whether its coding was undone, so that it must not be named any more.
    decoded: bool,
    _permit: OwnedSemaphorePermit,
}

impl std::fmt::Debug for HeldBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldBody(..)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooLarge {
    #[error("it may have 1 MiB")]
    Known,
    #[error("it may have 64 KiB without a Content-Length, and 1 MiB with one")]
    Unknown,
}

/// The body as the container sent it; empty if there is none.
pub(super) async fn read(session: &mut Session) -> Result<std::result::Result<Bytes, TooLarge>> {
    if session.as_mut().is_body_empty() {
        return Ok(Ok(Bytes::new()));
    }
    let request = session.req_header();
    let length = length(request);
    if length.is_some_and(|length| length > MAX) {
        return Ok(Err(TooLarge::Known));
    }
    if request.version == Version::HTTP_11 && request.headers.contains_key(header::EXPECT) {
        session.write_continue_response().await?;
    }
    let mut body = BytesMut::new();
    loop {
        let left = length.map_or(0, |length| length.saturating_sub(body.len()));
        if left <= BUFFER {
            session.as_mut().enable_retry_buffering();
        }
        let read = session.as_downstream_mut().read_request_body().await.map_err(Error::into_down)?;
        let Some(bytes) = read else { break };
        body.extend_from_slice(&bytes);
        if length.is_none() && body.len() > BUFFER {
            return Ok(Err(TooLarge::Unknown));
        }
    }
    if !body.is_empty() && session.as_ref().get_retry_buffer().is_none() {
        return Error::e_explain(ErrorType::InternalError, "a body was read that cannot be sent");
    }
    Ok(Ok(body.freeze()))
}

/// Why a body in a coding cannot be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("decoded, it may have 1 MiB")]
    TooLarge,
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
}

impl Unreadable {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::TooLarge | Self::Undecodable(Undecodable::Bomb(_)) => Reason::BodyTooLarge,
            Self::Undecodable(_) => Reason::Malformed,
        }
    }
}

/// What a body says.
pub(super) fn decoded(body: &Bytes, coding: Coding) -> std::result::Result<Bytes, Unreadable> {
    let mut decoder = Decoder::new(coding);
    let mut out = BytesMut::new();
    // In parts: each is bounded by what is read for it.
    for part in body.chunks(4096) {
        out.extend_from_slice(&decoder.push(part)?);
        if out.len() > MAX {
            return Err(Unreadable::TooLarge);
        }
    }
    decoder.finish()?;
    Ok(out.freeze())
}

fn length(request: &RequestHeader) -> Option<usize> {
    if request.headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    usize::try_from(content_length(&request.headers).ok()??).ok()
}

impl HeldBody {
    pub(super) fn new(bytes: impl AsRef<[u8]> + Send + 'static, permit: OwnedSemaphorePermit) -> Self {
        Self { bytes: Bytes::from_owner(bytes), decoded: false, _permit: permit }
    }

    /// One that the container sent in a coding.
    pub(super) fn decoded(bytes: impl AsRef<[u8]> + Send + 'static, permit: OwnedSemaphorePermit) -> Self {
        Self { decoded: true, ..Self::new(bytes, permit) }
    }

    /// States the length of what is sent, where the client stated one. Its `Expect` was answered.
    pub(super) fn announce(&self, request: &mut RequestHeader) -> Result<()> {
        request.remove_header(&header::EXPECT);
        if self.decoded {
            request.remove_header(&header::CONTENT_ENCODING);
        }
        if request.headers.contains_key(header::CONTENT_LENGTH) {
            request.insert_header(header::CONTENT_LENGTH, self.bytes.len())?;
        }
        Ok(())
    }

    /// Puts the swapped body in the place of what pingora kept of the original.
    pub(super) fn replace(&self, body: &mut Option<Bytes>, end: bool) -> Result<()> {
        if !end {
            return Error::e_explain(ErrorType::InternalError, "a body that was read goes on");
        }
        *body = Some(self.bytes.clone());
        Ok(())
    }
}
