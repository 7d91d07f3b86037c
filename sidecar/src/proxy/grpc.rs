//! gRPC's messages in a body (its protocol over HTTP/2, "Length-Prefixed-Message"): one byte of flags, four of length, as
//! many of the message. Nothing is held back over the end of a message, whose answer may be waited for.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};

use super::framed::{Equal, LengthChanged};
use crate::credentials::scrub::Replacer;

pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The message is compressed; all that can be said of it is its length.
const COMPRESSED: u8 = 1;
const HEAD: usize = 5;

/// `application/grpc`, `application/grpc+proto`, `application/grpc-web+proto`; not the `-text` variant, which is Base64.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.starts_with("application/grpc") && !media.contains("-text")
}

#[derive(Debug)]
pub(super) struct Messages {
    replaced: Equal,
    head: BytesMut,
    /// Bytes of the message that are still to come.
    left: usize,
    /// Whether a compressed message ends it, as there could be anything in it.
    refuse_compressed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadMessage {
    #[error("a compressed gRPC message cannot be searched for real credentials")]
    Compressed,
    #[error(transparent)]
    Length(#[from] LengthChanged),
}

impl Messages {
    pub(super) fn new(replacer: Replacer, refuse_compressed: bool) -> Self {
        Self { replaced: Equal::new(replacer), head: BytesMut::new(), left: 0, refuse_compressed }
    }

    pub(super) fn push(&mut self, mut chunk: Bytes) -> Result<Bytes, BadMessage> {
        let mut out = BytesMut::new();
        while !chunk.is_empty() {
            if self.left == 0 {
                let missing = HEAD - self.head.len();
                let part = chunk.split_to(missing.min(chunk.len()));
                self.head.extend_from_slice(&part);
                out.extend_from_slice(&part);
                let [flags, length @ ..] = self.head.as_ref() else { continue };
                let Ok(length) = <[u8; 4]>::try_from(length) else { continue };
                if flags & COMPRESSED != 0 && self.refuse_compressed {
                    return Err(BadMessage::Compressed);
                }
                self.left = u32::from_be_bytes(length) as usize;
                self.head.clear();
                continue;
            }
            let part = chunk.split_to(self.left.min(chunk.len()));
            self.left -= part.len();
            out.extend_from_slice(&self.replaced.push(part));
            if self.left == 0 {
                out.extend_from_slice(&self.replaced.finish()?);
            }
        }
        Ok(out.freeze())
    }

    /// What a message that was cut short held back.
    pub(super) fn finish(&mut self) -> Result<Bytes, BadMessage> {
        Ok(self.replaced.finish()?)
    }

    pub(super) fn count(&self) -> u64 {
        self.replaced.count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::credentials::scrub::{Forms, Pair, Patterns};

    const REAL: &str = "sk-0123456789abcdef";
    const STAND_IN: &str = "sk-fedcba9876543210";

    fn messages(other: &str) -> Messages {
        let pair = Pair { owner: 0, value: REAL, other: other.into(), forms: Forms::All };
        Messages::new(Replacer::new(Arc::new(Patterns::new([pair]))), true)
    }

    fn message(flags: u8, text: &str) -> Vec<u8> {
        let mut message = vec![flags];
        message.extend((text.len() as u32).to_be_bytes());
        message.extend(text.as_bytes());
        message
    }

    #[test]
    fn values_are_replaced_and_no_message_waits_for_the_next() {
        let body = [message(0, ""), message(0, &format!("a {REAL}")), message(0, "ends with sk-01")].concat();
        let wanted = [message(0, ""), message(0, &format!("a {STAND_IN}")), message(0, "ends with sk-01")];
        for size in 1..body.len() {
            let mut messages = messages(STAND_IN);
            let out: Vec<u8> = body
                .chunks(size)
                .flat_map(|chunk| messages.push(Bytes::copy_from_slice(chunk)).unwrap())
                .collect();
            assert_eq!(out, wanted.concat());
            assert_eq!((messages.finish().unwrap().len(), messages.count()), (0, 1));
        }
    }

    #[test]
    fn what_cannot_be_searched_or_would_break_the_framing_ends_it() {
        let push = |mut messages: Messages, body: Vec<u8>| messages.push(body.into()).unwrap_err();
        assert_eq!(push(messages(STAND_IN), message(1, "x")), BadMessage::Compressed);
        let percent = message(0, "%73k-0123456789abcdef");
        let longer = "sk-/+fedcba98765432";
        assert_eq!(push(messages(longer), percent), BadMessage::Length(LengthChanged));
    }
}
