//! An answer on its way to a container: its head and trailers cleaned, its body decoded if it must be read, searched, and
//! framed anew where its length changes.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use pingora_http::ResponseHeader;
use understudy_policies::Protocol;

use super::coding::{self, Coding, Decoder};
use super::failure::Failure;
use super::grpc::{self, Messages};
use super::minted_answer::MintedAnswer;
use super::request::Upgrade;
use super::searches::Searches;
use super::websocket::{Replacing, Sender, Side};
use crate::container::Container;
use crate::credentials::scrub::Replacer;
use crate::credentials::{Minting, Vault};
use crate::named::Naming;
use crate::reason::Reason;

/// What remains to be done to an answer once its head was seen.
#[derive(Debug)]
pub(super) struct Answer {
    decoder: Option<Decoder>,
    body: Body,
    naming: Option<Naming>,
    rest: Bytes,
    replaced_in_heads: u64,
}

#[derive(Debug)]
enum Body {
    /// An encoded one from a host that has none of the container's secrets.
    Untouched,
    Plain(Replacer),
    Grpc(Messages),
    Minted(Box<MintedAnswer>),
    WebSocket(Box<Side>),
}

/// Said of the body as it was encoded, or of ranges of that.
const OF_THE_ENCODED: [&str; 5] = ["content-md5", "digest", "content-digest", "repr-digest", "accept-ranges"];

impl Answer {
    /// Changes the head to what the container gets. Fails if the body could hold a real value and cannot be searched.
    pub(super) fn begin(
        head: &mut ResponseHeader,
        searches: &Searches,
        method: &Method,
        upgrade: &Upgrade,
    ) -> Result<Self, Failure> {
        let replaced_in_heads = clean_head(head, searches)?;
        let (body, rest) = (Body::Untouched, Bytes::new());
        let mut answer = Self { decoder: None, body, naming: None, rest, replaced_in_heads };
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            if matches!(upgrade, Upgrade::None | Upgrade::Ignored) {
                return Err(unreadable("it switches to another protocol, which nobody asked for"));
            }
            if let Upgrade::Other(protocol) = upgrade {
                let became = head.headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
                if became.and_then(Protocol::from_wire).as_ref() != Some(protocol) {
                    return Err(unreadable("it switches to another protocol than was asked for"));
                }
                answer.body = Body::Plain(Replacer::new(searches.answers()));
            } else if searches.of_frames() {
                if head.headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
                    return Err(unreadable("it uses a WebSocket extension that nobody offered"));
                }
                let nothing = searches.nothing();
                let side = Side::new(Sender::Server, Replacing::All, searches.answers(), nothing);
                answer.body = Body::WebSocket(Box::new(side));
            }
            return Ok(answer);
        }
        if head.status.is_informational() || searches.answers().is_empty() {
            return Ok(answer);
        }
        let bodiless = *method == Method::HEAD
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match coding::of(&head.headers) {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) if !searches.decoded => return Ok(answer),
            Ok(Some(_)) if head.status == StatusCode::PARTIAL_CONTENT && !bodiless => {
                return Err(unreadable("it is a part of an encoded text"));
            }
            Ok(Some(coding)) => answer.decode(head, coding)?,
            Err(_) if bodiless => {}
            Err(_) => return Err(unreadable("its Content-Encoding is none of gzip, deflate, br and zstd")),
        }
        let replacer = Replacer::new(searches.answers());
        answer.body = if grpc::is_grpc(&head.headers) {
            Body::Grpc(Messages::new(replacer, searches.bound))
        } else {
            if !bodiless && !searches.answers().keeps_length() {
                head.remove_header(&header::CONTENT_LENGTH);
            }
            Body::Plain(replacer)
        };
        Ok(answer)
    }

    /// Reads it whole, if it is one that makes a credential for the container.
    ///
    /// # Errors
    /// If it cannot be read: nobody could tell what is in it.
    pub(super) fn mint(
        &mut self,
        head: &mut ResponseHeader,
        minting: Minting,
        vault: &Arc<Vault>,
        container: &Arc<Container>,
    ) -> Result<(), Failure> {
        if !head.status.is_success() {
            return Ok(());
        }
        if !matches!(self.body, Body::Plain(_)) {
            return Err(unreadable("it makes a credential, in a form that is not read"));
        }
        head.remove_header(&header::CONTENT_LENGTH);
        let (vault, container) = (Arc::clone(vault), Arc::clone(container));
        self.body = Body::Minted(Box::new(MintedAnswer::new(minting, vault, container)));
        Ok(())
    }

    /// Reads along what it may name. Not of one that passes encoded, which is of no host with secrets.
    pub(super) fn name(&mut self, naming: Option<Naming>) {
        self.naming = naming.filter(|_| matches!(self.body, Body::Plain(_) | Body::Minted(_)));
    }

    /// An interim answer came before it (RFC 9110 section 15.2).
    pub(super) fn follow(&mut self, before: &Self) {
        self.replaced_in_heads += before.replaced();
    }

    /// What the container gets of it now.
    pub(super) fn body(&mut self, chunk: Bytes, end: bool) -> Result<Bytes, Failure> {
        let decoded = match &mut self.decoder {
            Some(decoder) => decoder.push(&chunk).map_err(|error| unreadable(&error.to_string()))?,
            None => chunk,
        };
        if let Some(naming) = &mut self.naming {
            naming.push(&decoded);
        }
        let out = match &mut self.body {
            Body::Untouched => decoded,
            Body::Plain(replacer) => replacer.push(decoded),
            Body::Grpc(messages) => messages.push(decoded).map_err(|error| unreadable(&error.to_string()))?,
            Body::WebSocket(side) => side.push(decoded).map_err(|error| unreadable(&error.to_string()))?,
            Body::Minted(minted) => {
                minted.push(&decoded).map_err(|error| unreadable(&error))?;
                Bytes::new()
            }
        };
        if !end {
            return Ok(out);
        }
        let rest = self.finish()?;
        Ok(if out.is_empty() {
            rest
        } else if rest.is_empty() {
            out
        } else {
            Bytes::from([out, rest].concat())
        })
    }

    /// Trailers end the body: what was held back until then is [`Self::rest`].
    pub(super) fn trailers(&mut self, trailers: &mut HeaderMap, searches: &Searches) -> Result<(), Failure> {
        self.rest = self.finish()?;
        self.replaced_in_heads += clean(trailers, searches);
        Ok(())
    }

    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// How many values were replaced so far.
    pub(super) fn replaced(&self) -> u64 {
        let in_body = match &self.body {
            Body::Untouched => 0,
            Body::Plain(replacer) => replacer.replaced(),
            Body::Grpc(messages) => messages.count(),
            Body::WebSocket(side) => side.count(),
            Body::Minted(minted) => minted.replaced(),
        };
        self.replaced_in_heads + in_body
    }

    fn finish(&mut self) -> Result<Bytes, Failure> {
        if let Some(decoder) = &self.decoder {
            decoder.finish().map_err(|error| unreadable(&error.to_string()))?;
        }
        if let Some(naming) = self.naming.take() {
            naming.finish();
        }
        match &mut self.body {
            Body::Plain(replacer) => Ok(replacer.finish()),
            Body::Grpc(messages) => messages.finish().map_err(|error| unreadable(&error.to_string())),
            Body::Minted(minted) => minted.finish().map_err(|error| unreadable(&error)),
            Body::Untouched | Body::WebSocket(_) => Ok(Bytes::new()),
        }
    }

    fn decode(&mut self, head: &mut ResponseHeader, coding: Coding) -> Result<(), Failure> {
        head.remove_header(&header::CONTENT_ENCODING);
        head.remove_header(&header::CONTENT_LENGTH);
        for name in OF_THE_ENCODED {
            head.remove_header(name);
        }
        let tag = head.headers.get(header::ETAG).map(HeaderValue::as_bytes);
        if let Some(tag) = tag.filter(|tag| !tag.starts_with(b"W/")) {
            let weak = HeaderValue::from_bytes(&[b"W/", tag].concat());
            let weak = weak.map_err(|_| unreadable("its ETag is not well-formed"))?;
            head.insert_header(header::ETAG, weak).map_err(|_| unreadable("its ETag is not well-formed"))?;
        }
        self.decoder = Some(Decoder::new(coding));
        Ok(())
    }
}

fn unreadable(detail: &str) -> Failure {
    Failure { reason: Reason::UnreadableAnswer, detail: detail.to_owned(), client_gone: false }
}

/// Gives the number of values that were replaced.
fn clean_head(head: &mut ResponseHeader, searches: &Searches) -> Result<u64, Failure> {
    if searches.answers().is_empty() {
        return Ok(0);
    }
    let mut replaced = 0;
    if head.headers.iter().any(|(name, value)| searches.are_for(name, value)) {
        let mut headers = head.headers.clone();
        replaced = clean(&mut headers, searches);
        let names: Vec<HeaderName> = head.headers.keys().cloned().collect();
        for name in names {
            head.remove_header(&name);
        }
        for (name, value) in &headers {
            head.append_header(name, value)
                .map_err(|_| unreadable("a header that cannot be written again"))?;
        }
    }
    if head.get_reason_phrase().is_some_and(|phrase| searches.real_value_in(phrase.as_bytes())) {
        head.set_reason_phrase(None).map_err(|_| unreadable("a reason phrase that cannot be left out"))?;
    }
    Ok(replaced)
}

/// Replaces real values; a header that then still holds one, in a form that cannot be replaced, is left out.
fn clean(headers: &mut HeaderMap, searches: &Searches) -> u64 {
    let mut replaced = 0;
    for value in headers.values_mut() {
        let mut replacer = Replacer::new(searches.answers());
        let out = [replacer.push(Bytes::copy_from_slice(value.as_bytes())), replacer.finish()].concat();
        if replacer.replaced() > 0 {
            replaced += replacer.replaced();
            // The counterpart of a visible character is one: this cannot fail, and if it did nothing would be told.
            *value = HeaderValue::from_bytes(&out).unwrap_or(HeaderValue::from_static(""));
        }
    }
    let unclean = headers.iter().filter(|(name, value)| searches.real_value_in_header(name, value));
    let unclean: Vec<HeaderName> = unclean.map(|(name, _)| name.clone()).collect();
    for name in unclean {
        headers.remove(name);
        replaced += 1;
    }
    replaced
}

#[cfg(test)]
mod tests;
