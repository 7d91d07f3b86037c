//! Requests of containers to the token endpoints of accounts: answered here, whatever policy says of the host, since nothing
//! of them leaves but a login that the operator armed the container for. What else is no refresh of an account that the
//! container was granted is refused.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use pingora_error::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::engine::Engine;
use super::held_body;
use super::judge::refused;
use super::page::Page;
use super::record::Exchange;
use super::request::{Head, Target, target, written};
use crate::accounts::broker::{self, Asked, Grant, Reply};
use crate::accounts::login::LoginRequest;
use crate::accounts::{Account, Keeper, Millis};
use crate::audit::Decision;
use crate::container::Container;
use crate::credentials::{Vault, assertions};
use crate::decide::Denial;
use crate::operator::{pass, within_limits};
use crate::reason::Reason;

impl Engine {
    /// Whether the request was for a token endpoint and is answered now; a page if it is refused as any other request is.
    pub(super) async fn token_endpoint(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<std::result::Result<bool, Page>> {
        let Some(keeper) = &self.accounts else { return Ok(Ok(false)) };
        let vault = self.vault.current();
        let Some(accepted) = &exchange.accepted else { return Ok(Err(exchange.refuse(Reason::Internal))) };
        let container = Arc::clone(&accepted.downstream.container);
        let armed = keeper.arming().concerns(&container.id);
        let target = token_endpoint_of(&vault, session, exchange, armed);
        let Some(target) = target else { return Ok(Ok(false)) };
        exchange.entry(|entry| entry.host = Some(target.host.to_string()));
        let Ok(_permit) = Arc::clone(&container.held_bodies).acquire_owned().await else {
            return Ok(Err(exchange.refuse(Reason::Internal)));
        };
        let body = match held_body::read(session).await? {
            Ok(body) => body,
            Err(error) => {
                let detail = Some(error.to_string());
                return Ok(Err(Page { detail, ..exchange.refuse(Reason::BodyTooLarge) }));
            }
        };
        if container.is_revoked() {
            return Ok(Err(exchange.refuse(Reason::Revoked)));
        }
        let (vault, rights) = (self.vault.current(), container.rights());
        if vault.real_value_in(&body).is_some() {
            return Ok(Err(exchange.refuse(Reason::RealCredential)));
        }
        let request = session.req_header();
        let plain = !request.headers.contains_key(header::CONTENT_ENCODING);
        let content_type = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        let path = target.path.path();
        let keys: Vec<_> = vault.catalogue().key_logins(&target.host, path).map(|(_, login)| login).collect();
        let asked = match request.method == Method::POST && plain {
            true if keys.is_empty() => Asked::read(&vault, &rights.grants, content_type, &body),
            true => Asked::read_for_key(content_type, &body),
            false => Asked::Malformed,
        };
        let form = keys.iter().any(|login| login.form) && !accepts_json(&request.headers);
        let follows = keys.iter().any(|login| login.follows.is_some());
        // Of a service account, at the same address: judged as any other request is.
        if matches!(&asked, Asked::Other(Some(grant)) if grant == assertions::GRANT)
            && assertions::is_at(&vault, &target.host)
        {
            exchange.body = Some(body);
            return Ok(Ok(false));
        }
        let answered = match &asked {
            Asked::Renew(_) => true,
            // A container that may do nothing does not log in either.
            Asked::Login(_) => keeper.arming().concerns(&container.id) && rights.policy.failure().is_none(),
            _ => false,
        };
        // What is answered here is not judged, and counts like any other request.
        if answered && let Err(denial) = counted(&container, body.len()) {
            return Ok(Err(refused(exchange, denial)));
        }
        if let Asked::Renew(name) = &asked {
            let reply = renewed(keeper, &self.vault.current(), name, || self.vault.current()).await;
            let rule = format!("token endpoint of `{name}`");
            exchange.entry(|entry| {
                entry.decision = Decision::Allowed;
                entry.rule = Some(rule);
                entry.secrets = vec![name.clone()];
            });
            answer(session, &reply, None, form).await?;
            return Ok(Ok(true));
        }
        if let Asked::Login(grant) = &asked
            && answered
            && let Ok(attempt) = keeper.arming().begin(&container.id, follows)
        {
            let bearer = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
            let asked = LoginRequest { host: &target.host, path, grant, body: &body, bearer };
            let (reply, account) = keeper.log_in(attempt, asked).await;
            if container.is_revoked() {
                return Ok(Err(exchange.refuse(Reason::Revoked)));
            }
            let reason = account.is_none().then_some(Reason::CredentialMinting);
            let rule = format!("login that the operator armed ({})", grant.name);
            exchange.entry(|entry| {
                entry.decision = Decision::Allowed;
                entry.rule = Some(rule);
                entry.secrets = account.into_iter().collect();
            });
            answer(session, &reply, reason.filter(|_| reply.status == 403), form).await?;
            return Ok(Ok(true));
        }
        // Where policy refuses it anyway, that is what is told. No `minting` of a secret lets a login through.
        if let Err(page) = self.judge(session, exchange).await
            && (keys.is_empty() || page.reason != Some(Reason::CredentialMinting))
        {
            return Ok(Err(page));
        }
        let (reason, reply) = refusal(&asked, container.label());
        let named = match asked {
            Asked::NotGranted(name) => vec![name],
            _ => Vec::new(),
        };
        drop(exchange.refuse(reason));
        exchange.entry(|entry| entry.secrets = named);
        answer(session, &reply, Some(reason), form).await?;
        Ok(Ok(true))
    }
}

/// Whether it is for a token endpoint that matters here: of an account that is declared, or of a provider at whose hosts a
/// secret is bound; any that is known, if the container was armed for a login.
fn token_endpoint_of(vault: &Vault, session: &Session, exchange: &Exchange, armed: bool) -> Option<Target> {
    let downstream = &exchange.accepted.as_ref()?.downstream;
    let request = session.req_header();
    let uri = written(request)?;
    let head =
        Head { method: &request.method, uri: &uri, version: request.version, headers: &request.headers };
    let target = target(&downstream.identity, downstream.wire, downstream.port, head).ok()?;
    let path = target.path.path();
    let catalogue = vault.catalogue();
    let is_one = catalogue.token_endpoints(&target.host, path).next().is_some()
        || catalogue.key_logins(&target.host, path).next().is_some();
    let known = armed && is_one;
    let concerned = known || vault.is_token_endpoint(&target.host, path);
    concerned.then_some(target)
}

async fn renewed(keeper: &Arc<Keeper>, vault: &Vault, name: &str, now: impl Fn() -> Arc<Vault>) -> Reply {
    let Some(account) = account(vault, name) else { return broker::refused("the account is gone") };
    if account.ended.is_some() || broker::is_stale(&account, Millis::now()) {
        let renewed = keeper.renew(&account.name, account.generation).await;
        let expired = account.expires.is_none_or(|expires| expires <= Millis::now());
        match renewed {
            Ok(()) => {}
            // What it has is good for a while yet.
            Err(_) if account.ended.is_none() && !expired => {}
            Err(error) => return broker::failed(&error),
        }
    }
    let vault = now();
    let Some(account) = self::account(&vault, name) else { return broker::refused("the account is gone") };
    let reply = broker::tokens(&account, Millis::now());
    // What a provider says beside its tokens is its own matter, but must not repeat them.
    match vault.real_value_in(reply.body.to_string().as_bytes()) {
        None => reply,
        Some(_) => broker::repeated(),
    }
}

fn account(vault: &Vault, name: &str) -> Option<Arc<Account>> {
    vault.secret(name)?.account().cloned()
}

fn refusal(asked: &Asked, container: &str) -> (Reason, Reply) {
    let login = format!(
        "a login inside a container is taken over only while the operator lets it: understudy login arm {container}; or log in on the host and run: understudy login import FORMAT < FILE"
    );
    match asked {
        Asked::Malformed => (Reason::Malformed, broker::malformed()),
        Asked::NotGranted(name) => {
            let told = format!(
                "the account of secret `{name}` is not granted to this container; start it with --annotation understudy.secrets={name} if it should be"
            );
            (Reason::CredentialNotGranted, broker::refused(&told))
        }
        Asked::Foreign => {
            let told = format!("the refresh token is none of an account that the sidecar keeps; {login}");
            (Reason::ForeignCredential, broker::refused(&told))
        }
        Asked::Login(Grant { name: grant, .. }) | Asked::Other(Some(grant)) => {
            (Reason::CredentialMinting, broker::refused(&format!("grant `{grant}` is refused: {login}")))
        }
        Asked::Other(None) | Asked::Renew(_) => (Reason::CredentialMinting, broker::refused(&login)),
    }
}

/// A request of that many bytes that is answered here.
fn counted(container: &Container, bytes: usize) -> std::result::Result<(), Denial> {
    within_limits(container)?;
    pass(container, bytes as u64)
}

/// As a provider tells it that answers forms unless it is asked for JSON.
fn accepts_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("json"))
}

async fn answer(session: &mut Session, reply: &Reply, reason: Option<Reason>, form: bool) -> Result<()> {
    let body = Bytes::from(if form { reply.as_form() } else { reply.body.to_string() });
    let mut head = ResponseHeader::build(reply.status, Some(5))?;
    let content_type = if form { "application/x-www-form-urlencoded" } else { "application/json" };
    head.insert_header("content-type", content_type)?;
    head.insert_header("content-length", body.len().to_string())?;
    // RFC 6749 section 5.1.
    head.insert_header("cache-control", "no-store")?;
    head.insert_header("pragma", "no-cache")?;
    if reply.status == 503 {
        head.insert_header("retry-after", "5")?;
    }
    if let Some(reason) = reason {
        head.insert_header("x-understudy-reason", reason.code())?;
    }
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body), true).await
}
