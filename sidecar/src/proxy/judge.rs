//! Whether a request may leave, and all that it needs upstream if so.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use http::{HeaderMap, Uri};
use pingora_error::Result;
use pingora_proxy::Session;
use understudy_policies::{HostName, Request};

use super::coding;
use super::engine::Engine;
use super::h2_limits;
use super::headers::content_length;
use super::held_body::{self, HeldBody};
use super::page::Page;
use super::record::Exchange;
use super::request::{Head, Target, Upgrade, target, written};
use super::searches::Searches;
use crate::connection::Standing;
use crate::credentials::assertions::{self, Exchanged};
use crate::credentials::{
    CredentialDenial, Fields, Grants, RequestHead, Signing, Swaps, Vault, examine, examine_body, fields,
    mutations, no_override, overriding,
};
use crate::decide::{Denial, Permit};
use crate::dns::Upstream;
use crate::operator;
use crate::reason::Reason;

impl Engine {
    /// From a request to all that it needs upstream, or to the page that says why not.
    pub(super) async fn judge(&self, session: &Session, exchange: &mut Exchange) -> Result<Judged, Page> {
        let Some(accepted) = &exchange.accepted else { return Err(exchange.refuse(Reason::Internal)) };
        let downstream = Arc::clone(&accepted.downstream);
        let container = &downstream.container;
        if accepted.in_flight > h2_limits::REQUESTS_IN_FLIGHT
            || container.counters.open_requests.load(Relaxed) > self.requests
        {
            return Err(exchange.refuse(Reason::Overloaded));
        }
        if container.is_revoked() {
            return Err(exchange.refuse(Reason::Revoked));
        }

        let request = session.req_header();
        let Some(uri) = written(request) else { return Err(exchange.refuse(Reason::Malformed)) };
        let (method, headers) = (&request.method, &request.headers);
        let head = Head { method, uri: &uri, version: request.version, headers };
        let target =
            target(&downstream.identity, downstream.wire, downstream.port, head).map_err(|refused| {
                exchange.entry(|entry| {
                    entry.host = refused.host.map(|host| host.to_string()).or(entry.host.take());
                });
                exchange.refuse(refused.reason)
            })?;
        exchange.entry(|entry| {
            (entry.host, entry.port) = (Some(target.host.to_string()), Some(target.port));
        });

        exchange.judged_at = container.changes();
        let asked = Request::new(&target.host, target.port, method.as_str(), target.path.as_str());
        let permit = operator::permit(&self.questions, container, &asked, exchange.admitted.as_deref())
            .await
            .map_err(|denial| refused(exchange, denial))?;
        exchange.admitted = Some(permit.rule().to_owned());
        let announced = content_length(headers).ok().flatten();
        if permit.given().max_body.is_some_and(|most| announced.is_some_and(|length| length > most)) {
            return Err(too_large(exchange, &permit));
        }
        if let Err(remedy) = target.upgrade.within(&permit) {
            return Err(Page { remedy: Some(remedy), ..exchange.refuse(Reason::UpgradeNotAllowed) });
        }
        // It may have waited.
        if container.is_revoked() {
            return Err(exchange.refuse(Reason::Revoked));
        }
        let rights = container.rights();
        if !target.by_proxy && downstream.identity.standing != Standing::LookedUp {
            // Policy changed since the lookup: the sink stands for no name, so this one must be looked up again.
            let detail = Some("look the name up again".to_owned());
            return Err(Page { detail, ..exchange.refuse(Reason::NameMismatch) });
        }

        let head = RequestHead {
            host: &target.host,
            method,
            // Upstream is TLS, always verified, exactly if the container spoke TLS.
            verified_tls: downstream.is_tls(),
            uri: &uri,
            headers,
        };
        let vault = self.vault.current();
        let (now, holdings) = (Instant::now(), &container.holdings);
        let minted = holdings.minted(now);
        let swaps = examine(&vault, &rights.grants, &minted, head);
        let mut swaps = swaps.map_err(|denial| told(exchange, &vault, &target.host, denial))?;
        holdings.used(&swaps.secrets, now);
        swaps.signature.take().into_iter().for_each(|signature| holdings.keep_signature(signature));

        let upstream = self.resolver.current().resolve(permit).await.map_err(|denial| {
            exchange.entry(|entry| entry.detail = Some(denial.detail.clone()));
            Page {
                detail: said(denial.detail),
                remedy: said(denial.remedy),
                ..exchange.refuse(denial.reason)
            }
        })?;
        let searches = Searches::new(vault, &rights.grants, (holdings, &minted), head, &swaps.secrets);
        Ok((target, upstream, swaps, searches))
    }

    /// The body, if it has a field for a credential: read, examined, swapped. What is swapped in is added to the swaps.
    pub(super) async fn hold(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        judged: Judged,
    ) -> Result<Result<(Judged, Option<HeldBody>), Page>> {
        let Some(accepted) = &exchange.accepted else { return Ok(Err(exchange.refuse(Reason::Internal))) };
        let downstream = Arc::clone(&accepted.downstream);
        let (host, uri) = (judged.0.host.clone(), Uri::from(judged.0.path.clone()));
        let verified_tls = downstream.is_tls();
        // As they are once the coding of the body is undone.
        let (_, headers) = coding::undone(&session.req_header().headers);
        let head = head_of(session, &headers, (&host, &uri), verified_tls);
        let vault = self.vault.current();
        let rights = downstream.container.rights();
        let fields = match wanted(&vault, &rights.grants, &head, &judged.2) {
            Ok(None) => return Ok(Ok((judged, None))),
            Ok(Some(_)) if matches!(judged.0.upgrade, Upgrade::Other(_)) => {
                let detail = Some("this endpoint reads credentials from bodies".to_owned());
                return Ok(Err(Page { detail, ..exchange.refuse(Reason::UpgradeNotAllowed) }));
            }
            Ok(Some(fields)) => fields,
            Err(denial) => return Ok(Err(told(exchange, &vault, &host, denial))),
        };
        let Ok(permit) = Arc::clone(&downstream.container.held_bodies).acquire_owned().await else {
            return Ok(Err(exchange.refuse(Reason::Internal)));
        };
        let read = match exchange.body.take() {
            Some(body) => Ok(body),
            None => held_body::read(session).await?,
        };
        let body = match read {
            Ok(body) => body,
            Err(error) => {
                let detail = Some(error.to_string());
                return Ok(Err(Page { detail, ..exchange.refuse(Reason::BodyTooLarge) }));
            }
        };
        // Reading took as long as the container liked: what is in force now counts.
        let (target, upstream, mut swaps, mut searches) = match self.judge(session, exchange).await {
            Ok(judged) => judged,
            Err(page) => return Ok(Err(page)),
        };
        if upstream.permit().given().max_body.is_some_and(|most| body.len() as u64 > most) {
            return Ok(Err(too_large(exchange, upstream.permit())));
        }
        let (vault, rights) = (self.vault.current(), downstream.container.rights());
        let as_sent = head_of(session, &session.req_header().headers, (&host, &uri), verified_tls);
        if let Some(signing) = swaps.signing.as_mut().filter(|signing| signing.needs_body())
            && let Some(written) = written(session.req_header())
            && let Err(denial) = signing.settle(&RequestHead { uri: &written, ..as_sent }, &body)
        {
            return Ok(Err(denied(exchange, denial)));
        }
        let (coding, headers) = coding::undone(&session.req_header().headers);
        let head = head_of(session, &headers, (&host, &uri), verified_tls);
        match assertions::is_asked(&vault, &head) {
            Ok(false) if body.is_empty() => return Ok(Ok(((target, upstream, swaps, searches), None))),
            Ok(_) => {}
            Err(denial) => return Ok(Err(told(exchange, &vault, &host, denial))),
        }
        let text = match coding.map(|coding| held_body::decoded(&body, coding)).transpose() {
            Ok(decoded) => decoded.unwrap_or_else(|| body.clone()),
            Err(undecodable) => {
                let detail = Some(undecodable.to_string());
                return Ok(Err(Page { detail, ..exchange.refuse(undecodable.reason()) }));
            }
        };
        match examine_body(&vault, &rights.grants, head, fields, &text) {
            Ok(swapped) => {
                // What is signed must not be changed.
                if swaps.signing.is_some() && !swapped.secrets.is_empty() {
                    return Ok(Err(exchange.refuse(Reason::CredentialMisplaced)));
                }
                swaps.add(swapped.secrets);
                let mut bytes = swapped.bytes;
                match exchanged(&vault, &rights.grants, head, &bytes) {
                    Ok(None) => {}
                    Ok(Some(exchanged)) => {
                        let holdings = &downstream.container.holdings;
                        holdings.keep_signature(exchanged.signature);
                        swaps.add(vec![exchanged.secret]);
                        swaps.minted = exchanged.minted;
                        bytes = exchanged.bytes;
                        let minted = holdings.minted(Instant::now());
                        // With the signature that was just made.
                        searches = Searches::new(
                            Arc::clone(&vault),
                            &rights.grants,
                            (holdings, &minted),
                            head,
                            &swaps.secrets,
                        );
                    }
                    Err(denial) => return Ok(Err(told(exchange, &vault, &host, denial))),
                }
                let checked = no_override(&vault, &head, &swaps, fields, &text)
                    .and_then(|()| mutations::check_body(&vault, &rights.grants, &head, &swaps, &text));
                if let Err(denial) = checked {
                    return Ok(Err(denied(exchange, denial)));
                }
                // Also where nothing was swapped: a server could undo the coding in another way.
                let held = match coding {
                    // What is signed goes on as it is.
                    _ if swaps.signing.is_some() => HeldBody::new(body, permit),
                    Some(_) => HeldBody::decoded(bytes, permit),
                    None => HeldBody::new(bytes, permit),
                };
                Ok(Ok(((target, upstream, swaps, searches), Some(held))))
            }
            Err(denial) => Ok(Err(told(exchange, &vault, &host, denial))),
        }
    }
}

/// As policy said it.
pub(super) fn refused(exchange: &mut Exchange, denial: Denial) -> Page {
    exchange.entry(|entry| entry.rule = denial.rule);
    Page { policy: denial.policy, remedy: said(denial.remedy), ..exchange.refuse(denial.reason) }
}

/// An assertion for a token, if the request is one.
fn exchanged(
    vault: &Vault,
    grants: &Grants,
    head: RequestHead<'_>,
    body: &[u8],
) -> std::result::Result<Option<Exchanged>, CredentialDenial> {
    match assertions::is_asked(vault, &head)? {
        true => assertions::exchange(vault, grants, head, body),
        false => Ok(None),
    }
}

fn too_large(exchange: &mut Exchange, permit: &Permit) -> Page {
    let remedy = Some(format!("send less, or change `max-body` at {}", permit.rule()));
    Page { remedy, ..exchange.refuse(Reason::BodyTooLarge) }
}

/// What a request that may leave needs upstream.
pub(super) type Judged = (Target, Upstream, Swaps, Searches);

/// What the body must be read as before anything is sent, if it must be read.
fn wanted(
    vault: &Vault,
    grants: &Grants,
    head: &RequestHead<'_>,
    swaps: &Swaps,
) -> std::result::Result<Option<Fields>, CredentialDenial> {
    let mutations = mutations::are_asked(vault, grants, head, swaps)?;
    let fields = match fields(vault, head)? {
        None => overriding(vault, head, swaps)?,
        fields => fields,
    };
    let signed = swaps.signing.as_ref().is_some_and(Signing::needs_body);
    if assertions::is_asked(vault, head)? {
        return Ok(Some(Fields::Form));
    }
    Ok(fields.or((mutations || signed).then_some(Fields::Other)))
}

/// What of the request says which credentials it may carry.
fn head_of<'r>(
    session: &'r Session,
    headers: &'r HeaderMap,
    (host, uri): (&'r HostName, &'r Uri),
    verified_tls: bool,
) -> RequestHead<'r> {
    RequestHead { host, method: &session.req_header().method, verified_tls, uri, headers }
}

/// As clients of the API read an error.
fn told(exchange: &mut Exchange, vault: &Vault, host: &HostName, denial: CredentialDenial) -> Page {
    let mut bound = vault.bound_to(host).peekable();
    let aws = bound.peek().is_some() && bound.all(|declaration| declaration.aws.is_some());
    Page { api: assertions::api(vault, host), aws, ..denied(exchange, denial) }
}

fn denied(exchange: &mut Exchange, denial: CredentialDenial) -> Page {
    exchange.entry(|entry| entry.secrets = denial.secret.into_iter().collect());
    let detail = Some(format!("in {}", denial.place));
    Page { detail, remedy: said(denial.remedy), ..exchange.refuse(denial.reason) }
}

fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
