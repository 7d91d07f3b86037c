//! What passes through an exchange in either direction, and how it ends when something must not.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method};
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::failure::Failure;
use super::record::Exchange;
use super::request_body::Upload;
use super::response::Answer;
use crate::container::Container;
use crate::credentials::Minting;
use crate::named::{NamedHosts, Naming};
use crate::reason::Reason;

impl Exchange {
    /// What of `chunk` goes upstream now.
    pub(super) fn sent(&mut self, session: &Session, chunk: Bytes, end: bool) -> Result<Bytes> {
        let Some(plan) = &self.plan else { return unplanned() };
        let searches = &plan.searches;
        let upgraded = session.was_upgraded();
        if self.upload.as_ref().is_none_or(|upload| upload.is_upgraded() != upgraded) {
            self.upload = Some(match (&self.upload, upgraded) {
                (before, true) => Upload::upgraded(&plan.target.upgrade, searches, before.as_ref()),
                (_, false) => Upload::new(&session.req_header().headers, searches),
            });
        }
        let most = plan.upstream.permit().given().max_body.filter(|_| !upgraded);
        let sent = self.accepted.as_ref().map_or(0, |accepted| accepted.entry.bytes_up);
        if most.is_some_and(|most| sent.saturating_add(chunk.len() as u64) > most) {
            let detail = "more than the rule's `max-body`".to_owned();
            self.break_off(Failure { reason: Reason::BodyTooLarge, detail, client_gone: false });
            return Err(Error::explain(ErrorType::InternalError, "a body that is too long").into_down());
        }
        let Some(upload) = &mut self.upload else { return unplanned() };
        match upload.push(chunk, end, searches) {
            Ok(out) => Ok(out),
            Err(stopped) => {
                self.stop(stopped);
                // Any other fault than the container's would leave an HTTP/2 upstream waiting for the rest.
                let error = Error::explain(ErrorType::InternalError, "a request that must not go on");
                Err(error.into_down())
            }
        }
    }

    /// An answer begins.
    pub(super) fn answered(
        &mut self,
        method: &Method,
        head: &mut ResponseHeader,
        named: &Arc<NamedHosts>,
    ) -> Result<()> {
        let Some(plan) = &self.plan else { return unplanned() };
        let begun = Answer::begin(head, &plan.searches, method, &plan.target.upgrade);
        let minted = begun.and_then(|mut answer| {
            if let Some((minting, container)) = self.minting(method) {
                answer.mint(head, minting, plan.searches.vault(), container)?;
            }
            if head.status.is_success() {
                answer.name(self.naming(named));
            }
            Ok(answer)
        });
        match minted {
            Ok(mut answer) => {
                if let Some(before) = &self.answer {
                    answer.follow(before);
                }
                self.answer = Some(answer);
                Ok(())
            }
            Err(failure) => self.unreadable(failure),
        }
    }

    /// What the answer makes for the container, if it was asked for with a stand-in. Only over verified TLS is one swapped.
    fn minting(&self, method: &Method) -> Option<(Minting, &Arc<Container>)> {
        let (plan, container) = (self.plan.as_ref()?, &self.accepted.as_ref()?.downstream.container);
        let (vault, path) = (plan.searches.vault(), plan.target.path.path());
        let minted = container.holdings.minted(Instant::now());
        let minting = Minting::of(vault, &plan.target.host, method, path, &plan.swaps, &minted)?;
        Some((minting, container))
    }

    /// Whether the answer may name a host for the container. Only over verified TLS is a secret swapped.
    fn naming(&self, named: &Arc<NamedHosts>) -> Option<Naming> {
        let (plan, container) = (self.plan.as_ref()?, &self.accepted.as_ref()?.downstream.container);
        let at = (&plan.target.host, plan.upstream.permit().port(), plan.target.path.path());
        let declared = &container.rights().named_by;
        Naming::of(declared, at, &plan.swaps, plan.searches.vault(), &container.id, named)
    }

    /// What of a chunk of the answer goes to the container now.
    pub(super) fn received(&mut self, chunk: Bytes, end: bool) -> Result<Bytes> {
        let Some(answer) = &mut self.answer else { return unplanned() };
        match answer.body(chunk, end) {
            Ok(out) => Ok(out),
            Err(failure) => self.unreadable(failure),
        }
    }

    pub(super) fn trailed(&mut self, trailers: &mut HeaderMap) -> Result<()> {
        let (Some(plan), Some(answer)) = (&self.plan, &mut self.answer) else { return unplanned() };
        match answer.trailers(trailers, &plan.searches) {
            Ok(()) => Ok(()),
            Err(failure) => self.unreadable(failure),
        }
    }

    fn unreadable<T>(&mut self, failure: Failure) -> Result<T> {
        self.break_off(failure);
        Error::e_explain(ErrorType::InternalError, "an answer that must not go on")
    }
}

fn unplanned<T>() -> Result<T> {
    Error::e_explain(ErrorType::InternalError, "a body without a plan")
}
