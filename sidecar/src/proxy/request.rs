//! Which host a request is for, and in which form it goes on. Pure.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Uri, Version, header};
use pingora_http::RequestHeader;
use understudy_policies::{HostName, NameError, Protocol};

use super::Wire;
use super::headers::{DoubtfulLength, content_length};
use crate::connection::{Identity, Standing};
use crate::decide::Permit;
use crate::reason::Reason;

/// The head of a request as far as its target is in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) version: Version,
    pub(super) headers: &'a HeaderMap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: HostName,
    pub(super) port: u16,
    /// Whether the client took us for a proxy: what it connected to says nothing then.
    pub(super) by_proxy: bool,
    /// The Host header that goes upstream: the canonical name, with the port if the client wrote one.
    pub(super) authority: String,
    /// Path and query in origin-form, or `*`.
    pub(super) path: PathAndQuery,
    /// What the connection is, whatever an HTTP/2 client calls it.
    pub(super) scheme: Scheme,
    pub(super) upgrade: Upgrade,
}

/// What the connection is to become (RFC 9110 section 7.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upgrade {
    None,
    WebSocket,
    /// Of which nobody knows what is in it: only if a rule says so.
    Other(Protocol),
    /// An offer that a server may ignore, and this one does: HTTP/2 in the clear, or one without `Connection: upgrade`.
    Ignored,
}

impl Upgrade {
    /// # Errors
    /// If the rules that permit the request do not let its connection become this: what would let it.
    pub(super) fn within(&self, permit: &Permit) -> Result<(), String> {
        match self {
            Self::Other(protocol) if !permit.given().upgrade.contains(protocol) => Err(format!(
                "where nobody has to see what is inside, add `upgrade = \"{protocol}\"` to {}",
                permit.rule()
            )),
            _ => Ok(()),
        }
    }
}

/// TRACK is a TRACE of some servers' own.
const ECHOING: [&str; 2] = ["TRACE", "TRACK"];

/// The target as the client wrote it. pingora's own parse leaves scheme and authority of an HTTP/1.1 absolute-form or
/// authority-form target out of the URI, and replaces bytes that are not UTF-8: such a target is none.
pub(super) fn written(request: &RequestHeader) -> Option<Uri> {
    let raw = request.raw_path();
    if request.version == Version::HTTP_2 || raw.starts_with(b"/") || raw == b"*" {
        return request.raw_path_is_utf8().then(|| request.uri.clone());
    }
    Uri::try_from(raw).ok()
}

/// Where a request wants to go and what speaks against it, as far as it can be told: a refusal names the host even
/// if the name is what is wrong.
pub(super) fn target(identity: &Identity, wire: Wire, port: u16, head: Head<'_>) -> Result<Target, Refused> {
    let named = authorities(head).and_then(|authority| host_and_port(&authority));
    let host = named.as_ref().ok().map(|(host, _)| host.clone()).or_else(|| identity.name.clone());
    let refused = |reason| Refused { reason, host: host.clone() };

    if head.method == Method::CONNECT {
        return Err(refused(Reason::ProxyRequest));
    }
    // They echo what they got, the real credential too (RFC 9110 section 9.3.8).
    if ECHOING.iter().any(|method| head.method.as_str().eq_ignore_ascii_case(method)) {
        return Err(refused(Reason::TraceMethod));
    }
    // The upstream would wait for them, or take a body for good that they speak against (RFC 9110 section 6.6.2).
    if head.headers.contains_key(header::TRAILER) {
        return Err(refused(Reason::RequestTrailers));
    }
    content_length(head.headers).map_err(|DoubtfulLength| refused(Reason::Malformed))?;
    let absolute = head.version != Version::HTTP_2 && head.uri.scheme().is_some();
    let scheme = if wire == Wire::Tls { Scheme::HTTPS } else { Scheme::HTTP };
    // Of a client that was told of a proxy (RFC 9112 section 3.2.2).
    let by_proxy = absolute && wire == Wire::Plain;
    if let (false, Standing::Refused(reason)) = (by_proxy, identity.standing) {
        return Err(refused(reason));
    }
    let (name, stated_port) = named.map_err(refused)?;
    if absolute && head.uri.scheme() != Some(&scheme) {
        return Err(refused(Reason::ProxyRequest));
    }
    let port = if by_proxy { stated_port.unwrap_or(80) } else { port };
    if !by_proxy {
        let elsewhere = if absolute { Reason::ProxyRequest } else { Reason::NameMismatch };
        if identity.name.as_ref().is_some_and(|identity| *identity != name) {
            return Err(refused(elsewhere));
        }
        if stated_port.is_some_and(|stated| stated != port) {
            return Err(refused(elsewhere));
        }
    }
    let upgrade = upgrade(head).map_err(refused)?;
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let authority = match stated_port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_string(),
    };
    Ok(Target { host: name, port, by_proxy, authority, path, scheme, upgrade })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: Reason,
    pub(super) host: Option<HostName>,
}

/// The one authority of a request: of all places that can name one, each that does must say the same.
fn authorities(head: Head<'_>) -> Result<String, Reason> {
    let mut found: Option<String> = None;
    let mut hosts = head.headers.get_all(header::HOST).iter();
    if let Some(host) = hosts.next() {
        found = Some(host.to_str().map_err(|_| Reason::Malformed)?.to_owned());
    }
    if hosts.next().is_some() {
        return Err(Reason::Malformed);
    }
    match (head.uri.authority(), found) {
        (None, None) => Err(Reason::Malformed),
        (None, Some(host)) => Ok(host),
        (Some(authority), None) => Ok(authority.as_str().to_owned()),
        (Some(authority), Some(host)) => {
            if host_and_port(authority.as_str())? != host_and_port(&host)? {
                return Err(Reason::NameMismatch);
            }
            Ok(host)
        }
    }
}

/// RFC 9110 section 7.2: no userinfo; the port is digits or absent.
fn host_and_port(text: &str) -> Result<(HostName, Option<u16>), Reason> {
    if text.contains('@') {
        return Err(Reason::Malformed);
    }
    let authority: Authority = text.parse().map_err(|_| Reason::Malformed)?;
    let port = match text.strip_prefix(authority.host()).ok_or(Reason::Malformed)? {
        "" => None,
        digits => {
            let digits = digits.strip_prefix(':').ok_or(Reason::Malformed)?;
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Reason::Malformed);
            }
            Some(digits.parse().map_err(|_| Reason::Malformed)?)
        }
    };
    match HostName::from_wire(authority.host().as_bytes()) {
        Ok(name) => Ok((name, port)),
        // Well-formed, and never what was looked up.
        Err(NameError::Address) => Err(Reason::NameMismatch),
        Err(_) => Err(Reason::Malformed),
    }
}

fn upgrade(head: Head<'_>) -> Result<Upgrade, Reason> {
    let mut values = head.headers.get_all(header::UPGRADE).iter();
    let (Some(value), Version::HTTP_11) = (values.next(), head.version) else { return Ok(Upgrade::None) };
    let value = value.to_str().map_err(|_| Reason::Malformed)?;
    // What the server makes of a choice would be its own.
    if values.next().is_some() || value.contains(',') {
        return Err(Reason::UpgradeNotAllowed);
    }
    let protocol = Protocol::from_wire(value.trim()).ok_or(Reason::Malformed)?;
    let found = match protocol.as_str().to_ascii_lowercase().as_str() {
        "h2c" => Upgrade::Ignored,
        _ if !is_option(head.headers, "upgrade") => Upgrade::Ignored,
        "websocket" => Upgrade::WebSocket,
        _ => Upgrade::Other(protocol),
    };
    // RFC 6455 section 4.1. With a body, the two sides could differ on where the tunnel begins.
    let bodied =
        [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|h| head.headers.contains_key(h));
    if found == Upgrade::WebSocket && (head.method != Method::GET || bodied) {
        return Err(Reason::Malformed);
    }
    Ok(found)
}

/// Whether `Connection` names it (RFC 9110 section 7.6.1).
fn is_option(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests;
