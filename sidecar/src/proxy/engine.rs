//! pingora's phases. Each asks a pure part and does what it says.

use std::hash::RandomState;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::{ALPN, Digest};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use super::failure::failure;
use super::kept::{Connection, Use};
use super::page::Page;
use super::record::Exchange;
use super::response::Answer;
use super::{Downstream, h2_limits, headers};
use crate::accounts::Keeper;
use crate::audit::Audit;
use crate::credentials::Vault;
use crate::current::Current;
use crate::dns::Resolver;
use crate::named::NamedHosts;
use crate::operator::Questions;
use crate::reason::Reason;

/// How long an idle upstream connection is kept.
const UPSTREAM_IDLE: Duration = Duration::from_secs(60);
/// Of a refused request's body: read and dropped up to here, so that the client gets to read the answer.
const DRAINED: usize = 1 << 20;
const DRAINED_FOR: Duration = Duration::from_secs(2);

pub(super) struct Engine {
    pub(super) vault: Current<Vault>,
    pub(super) resolver: Current<Resolver>,
    pub(super) accounts: Option<Arc<Keeper>>,
    pub(super) audit: Audit,
    pub(super) questions: Arc<Questions>,
    pub(super) named: Arc<NamedHosts>,
    pub(super) connect: Duration,
    /// Under way at once, of one container.
    pub(super) requests: u64,
    pub(super) hasher: RandomState,
}

#[async_trait]
impl ProxyHttp for Engine {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::new(self.audit.clone())
    }

    /// No modules: pingora's own would compress.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        let digest = session.digest().and_then(|digest| digest.proxy_digest.as_ref());
        let data = digest.and_then(|proxy| proxy.user_data.as_ref());
        let Some(downstream) = data.and_then(|data| data.downcast_ref::<Arc<Downstream>>()) else {
            return Error::e_explain(ErrorType::InternalError, "request without a connection");
        };
        exchange.accept(Arc::clone(downstream));
        let request = session.req_header();
        exchange.entry(|entry| {
            entry.method = Some(self.audit.shown(request.method.as_str(), 32));
            let path = request.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
            entry.path = Some(self.audit.shown_path(path));
        });
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        // pingora's 60 s between two reads of a body would cut silent uploads and WebSockets.
        session.set_read_timeout(None);
        // Without it, the second of two requests that arrive together is dropped without an answer.
        session.set_pipelining_enabled(true);
        match self.token_endpoint(session, exchange).await? {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(page) => return answer(session, &page).await.map(|()| true),
        }
        let judged = match self.judge(session, exchange).await {
            Ok(judged) => self.hold(session, exchange, judged).await?,
            Err(page) => Err(page),
        };
        match judged {
            Ok(((target, upstream, swaps, searches), body)) => {
                exchange.allow(target, upstream, swaps, searches, body);
                Ok(false)
            }
            Err(page) => {
                answer(session, &page).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        if exchange.is_revoked() {
            return Error::e_explain(ErrorType::InternalError, "revoked");
        }
        // A second try sends the body again.
        exchange.entry(|entry| entry.bytes_up = 0);
        (exchange.upload, exchange.answer) = (None, None);
        let deadline = *exchange.connect_by.get_or_insert_with(|| Instant::now() + self.connect);
        let left = u32::try_from(exchange.hops_left().max(1)).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        let http2 = session.req_header().version == Version::HTTP_2;
        let Some(dialer) = exchange.dialer(http2) else {
            return Error::e_explain(ErrorType::InternalError, "no way left to dial");
        };

        let key = dialer.key();
        let mut peer = Box::new(HttpPeer::new(dialer.address(), key.tls, key.host.to_string()));
        peer.group_key = key.group(&self.hasher);
        let options = &mut peer.options;
        // The origin is spoken to as the container speaks, and so without a task between; in the clear nothing is negotiated.
        options.alpn = if key.http2 && key.tls { ALPN::H2H1 } else { ALPN::H1 };
        options.max_h2_streams = 100;
        options.h2_stream_window_size = Some(h2_limits::UPSTREAM_WINDOW);
        options.idle_timeout = Some(UPSTREAM_IDLE);
        options.total_connection_timeout = Some(share.max(Duration::from_millis(1)));
        options.read_timeout = None;
        options.write_timeout = None;
        options.custom_l4 = Some(Arc::new(dialer));
        Ok(peer)
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        _fd: RawFd,
        digest: Option<&Digest>,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let data =
            digest.and_then(|digest| digest.proxy_digest.as_ref()).and_then(|proxy| proxy.user_data.as_ref());
        let made_for = data.and_then(|data| data.downcast_ref::<Arc<Connection>>());
        let wanted = exchange.plan.as_ref().and_then(|plan| plan.key.as_ref());
        match (made_for, &exchange.accepted) {
            (Some(made_for), Some(accepted)) if Some(&made_for.key) == wanted => {
                let container = Arc::clone(&accepted.downstream.container);
                exchange.using = Some(Use::new(made_for, container));
                Ok(())
            }
            _ => Error::e_explain(ErrorType::InternalError, "pooled connection made for another request"),
        }
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        // Resolving and connecting take their time: this is the last moment before anything is sent.
        if exchange.must_end(&session.req_header().method) {
            return Error::e_explain(ErrorType::InternalError, "revoked");
        }
        let head = session.req_header();
        let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        if !exchange.pass(target + headers::length(&head.headers)) {
            return Error::e_explain(ErrorType::InternalError, "limit reached");
        }
        let Some(plan) = &exchange.plan else {
            return Error::e_explain(ErrorType::InternalError, "request without a plan");
        };
        headers::normalise(request, &plan.target, &plan.swaps)?;
        headers::swap(request, &session.req_header().headers, &plan.swaps)?;
        headers::readable(request, plan)?;
        if let Some(body) = &plan.body {
            body.announce(request)?;
        }
        if request.version == Version::HTTP_2 {
            // pingora's HTTP/2 client never passes a 100 on, and the container would wait for it.
            request.remove_header(&http::header::EXPECT);
        }
        // Over all that goes upstream, so nothing may be changed after it.
        headers::sign(request, &plan.swaps)
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        if exchange.must_end(&session.req_header().method) {
            // Any other fault than the container's would leave an HTTP/2 upstream waiting for the rest.
            return Err(Error::explain(ErrorType::InternalError, "revoked").into_down());
        }
        // It was searched when it was read; what is put here holds a real value by intent.
        if let Some(held) = exchange.plan.as_ref().and_then(|plan| plan.body.as_ref()) {
            held.replace(body, end)?;
        } else {
            // For an upstream, no body is its end; an empty one is nothing yet.
            match body.take() {
                Some(chunk) => *body = Some(exchange.sent(session, chunk, end)?),
                None => drop(exchange.sent(session, Bytes::new(), true)?),
            }
        }
        let length = body.as_ref().map_or(0, Bytes::len);
        if !exchange.pass(length) {
            return Err(Error::explain(ErrorType::InternalError, "limit reached").into_down());
        }
        exchange.entry(|entry| entry.bytes_up += length as u64);
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        self.renewal(session, response, exchange).await?;
        if !exchange.pass(headers::length(&response.headers)) {
            return Error::e_explain(ErrorType::InternalError, "limit reached");
        }
        headers::clean_response(response);
        exchange.answered(&session.req_header().method, response, &self.named)?;
        exchange.entry(|entry| entry.status = Some(response.status.as_u16()));
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        if exchange.must_end(&session.req_header().method) {
            return Error::e_explain(ErrorType::InternalError, "it must not go on");
        }
        let received = exchange.received(body.take().unwrap_or_default(), end)?;
        let length = received.len();
        if !exchange.pass(length) {
            return Error::e_explain(ErrorType::InternalError, "limit reached");
        }
        *body = Some(received);
        exchange.entry(|entry| entry.bytes_down += length as u64);
        Ok(None)
    }

    fn upstream_response_trailer_filter(
        &self,
        _session: &mut Session,
        trailers: &mut HeaderMap,
        exchange: &mut Exchange,
    ) -> Result<()> {
        if !exchange.pass(headers::length(trailers)) {
            return Error::e_explain(ErrorType::InternalError, "limit reached");
        }
        exchange.trailed(trailers)
    }

    /// What was held back of the body when trailers came, which are lost then: there is one or the other.
    async fn response_trailer_filter(
        &self,
        _session: &mut Session,
        _trailers: &mut HeaderMap,
        exchange: &mut Exchange,
    ) -> Result<Option<Bytes>> {
        let rest = exchange.answer.as_mut().map(Answer::rest).unwrap_or_default();
        if !exchange.pass(rest.len()) {
            return Error::e_explain(ErrorType::InternalError, "limit reached");
        }
        exchange.entry(|entry| entry.bytes_down += rest.len() as u64);
        Ok(Some(rest).filter(|rest| !rest.is_empty()))
    }

    /// Nothing was sent yet, so the next address may be tried, whatever the method.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let no_connection = matches!(
            error.root_etype(),
            ErrorType::ConnectError
                | ErrorType::ConnectTimedout
                | ErrorType::ConnectRefused
                | ErrorType::ConnectNoRoute
                | ErrorType::Custom(_)
                | ErrorType::CustomCode(_, 500..)
        );
        exchange.attempt += 1;
        error.set_retry(no_connection && exchange.hops_left() > 0 && !exchange.is_revoked());
        error
    }

    /// A pooled connection that the upstream closed at this moment: once more, if the request bears it.
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        exchange: &mut Exchange,
        reused: bool,
    ) -> Box<Error> {
        // An upstream connection that policy does not allow any more was ended by us.
        exchange.must_end(&session.req_header().method);
        if std::mem::take(&mut exchange.again) {
            error.set_retry(!exchange.is_revoked());
            return error;
        }
        let replayable =
            session.req_header().method.is_idempotent() && !session.as_ref().retry_buffer_truncated();
        if replayable && !exchange.retried && !exchange.is_revoked() && !exchange.is_broken() {
            error.retry.decide_reuse(reused);
        } else {
            error.set_retry(false);
        }
        exchange.retried = true;
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy {
        let failure = failure(error);
        let page = exchange.fail(&failure);
        let answered = session.response_written().is_some_and(|head| {
            head.status == StatusCode::SWITCHING_PROTOCOLS || !head.status.is_informational()
        });
        if !failure.client_gone && !answered {
            drop(answer(session, &page).await);
        }
        FailToProxy { error_code: failure.reason.status(), can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, exchange: &mut Exchange) {
        let status = session.response_written().map(|head| head.status.as_u16());
        exchange.entry(|entry| entry.status = status);
        exchange.finish();
    }

    /// The audit line says it, without the values that pingora's would have.
    fn suppress_error_log(&self, _session: &Session, _exchange: &Exchange, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _exchange: &Exchange,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn request_summary(&self, session: &Session, _exchange: &Exchange) -> String {
        session.req_header().method.as_str().chars().take(32).collect()
    }
}

async fn answer(session: &mut Session, page: &Page) -> Result<()> {
    let rendered = page.render(session.req_header());
    let body = Bytes::from(rendered.body);
    let mut head = ResponseHeader::build(rendered.status, Some(5))?;
    head.insert_header("content-type", rendered.content_type)?;
    head.insert_header("content-length", body.len().to_string())?;
    head.insert_header("cache-control", "no-store")?;
    if let Some(reason) = page.reason {
        head.insert_header("x-understudy-reason", reason.code())?;
    }
    let has_body = !session.as_mut().is_body_empty();
    // What follows a message that is not well-formed, or a tunnel that was asked for, may not be a request.
    let ends = matches!(page.reason, Some(Reason::Malformed | Reason::RealCredential))
        || session.req_header().method == http::Method::CONNECT;
    if has_body || ends {
        session.set_keepalive(None);
    }
    let bodiless = session.req_header().method == http::Method::HEAD;
    session.write_response_header(Box::new(head), bodiless).await?;
    if !bodiless {
        session.write_response_body(Some(body), true).await?;
    }
    if has_body {
        drop(tokio::time::timeout(DRAINED_FOR, drain(session)).await);
    }
    Ok(())
}

async fn drain(session: &mut Session) {
    let mut drained = 0;
    while let Ok(Some(bytes)) = session.as_downstream_mut().read_request_body().await {
        drained += bytes.len();
        if drained > DRAINED {
            return;
        }
    }
}
