//! Accepts a container's connections until it is revoked; each becomes requests, or one audit line that says why not.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::BytesMut;
use pingora_core::protocols::{IO, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::classify::{Classified, Hello, LIMIT, classify};
use super::connect::{self, Asked};
use super::identity::{Standing, of_plain, of_tls};
use super::line::{Fault, Line};
use super::postgres::{self, Postgres};
use super::raw;
use super::refusal;
use super::splice::{self, By, Splice};
use super::ssh::{self, Ssh};
use crate::container::{Container, OpenConnection};
use crate::dns::Origin;
use crate::operator::{within_limits, within_rate};
use crate::proxy::{Conn, Downstream, Gateway, Replay, Wire};
use crate::reason::Reason;
use crate::workers::Seat;

/// Connections beyond a container's limit that are told so at the same time; more are reset at once.
const TOLD_AT_ONCE: u64 = 32;

/// Serves one listening socket of a container, and ends what runs when its time is over. Returns once the container is
/// revoked; its connections end by then, too.
pub async fn serve(listener: TcpListener, container: Arc<Container>, gateway: Arc<Gateway>) {
    tokio::select! {
        () = each(&listener, &container, |stream| place(stream, &container, &gateway)) => {}
        () = container.end_in_time() => {}
    }
}

/// Accepts until the container is revoked.
pub(super) async fn each(listener: &TcpListener, container: &Container, mut serve: impl FnMut(TcpStream)) {
    let mut revocation = container.revocation();
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = revocation.wait_for(|revoked| *revoked) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = Duration::ZERO;
                serve(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // Out of descriptors or memory: the connection stays in the backlog, and trying at once would spin.
            Err(error) => {
                pause = (pause * 2).clamp(Duration::from_millis(20), Duration::from_secs(1));
                tracing::warn!(container = container.label(), %error, "cannot accept");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Hands a connection over to the worker with the fewest, for its whole life.
fn place(stream: TcpStream, container: &Arc<Container>, gateway: &Arc<Gateway>) {
    let open = container.open_connection();
    let seat = gateway.workers().seat();
    let runtime = seat.runtime().clone();
    let (container, gateway) = (Arc::clone(container), Arc::clone(gateway));
    // Only a socket that no runtime watches yet can be watched by another one.
    let socket = stream.into_std();
    runtime.spawn(async move {
        connection(socket.and_then(TcpStream::from_std), container, gateway, open, seat).await;
    });
}

async fn connection(
    stream: io::Result<TcpStream>,
    container: Arc<Container>,
    gateway: Arc<Gateway>,
    _open: OpenConnection,
    seat: Seat,
) {
    let mut line = Line::new(Arc::clone(&container), gateway.audit().clone());
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return line.fail(Fault::new(Reason::Internal, &error.to_string())),
    };
    let mut revocation = container.revocation();
    tokio::select! {
        biased;
        _ = revocation.wait_for(|revoked| *revoked) => line.fail(Fault::new(Reason::Revoked, "")),
        result = converse(stream, &container, &gateway, &mut line, seat.number()) => match result {
            Ok(()) => {}
            Err(fault) => line.fail(fault),
        },
    }
}

/// Ok if requests were served: they have lines of their own.
async fn converse(
    stream: TcpStream,
    container: &Arc<Container>,
    gateway: &Arc<Gateway>,
    line: &mut Line,
    worker: usize,
) -> Result<(), Fault> {
    // Boxed: what it takes to get there is large, and would stay for the connection's life. What passes no requests is
    // large, too.
    let established = Box::pin(establish(stream, container, gateway, line, worker)).await?;
    let (stream, http2, downstream) = match established {
        Established::Requests { stream, http2, downstream } => (stream, http2, downstream),
        Established::Postgres(session) => return Box::pin(session.serve(container, gateway, line)).await,
        Established::Ssh(ssh) => return Box::pin(ssh.serve(container, gateway, line)).await,
        Established::Splice(splice) => return Box::pin(splice.serve(container, gateway, line)).await,
    };
    gateway.converse(stream, &downstream).await;
    if downstream.requests() > 0 {
        return Ok(());
    }
    Err(match downstream.received() && !http2 {
        true => Fault::new(Reason::Malformed, "no well-formed request"),
        false => Fault::new(Reason::Timeout, "closed without a request"),
    })
}

/// What a connection has become.
enum Established {
    /// Requests can come on it.
    Requests {
        stream: Stream,
        http2: bool,
        downstream: Arc<Downstream>,
    },
    Splice(Splice),
    /// One command of git's.
    Ssh(Ssh),
    Postgres(Postgres),
}

impl Established {
    fn requests<T>(stream: Conn<T>, downstream: Arc<Downstream>) -> Self
    where
        Conn<T>: IO + 'static,
    {
        Self::Requests { http2: stream.is_http2(), stream: Box::new(stream), downstream }
    }
}

async fn establish(
    mut stream: TcpStream,
    container: &Arc<Container>,
    gateway: &Arc<Gateway>,
    line: &mut Line,
    worker: usize,
) -> Result<Established, Fault> {
    let (open, most) = (container.counters.open_connections.load(Relaxed), gateway.limits().connections);
    if open > most {
        let fault = Fault::new(Reason::Overloaded, "too many open connections");
        match open - most {
            ..=TOLD_AT_ONCE => refusal::too_many(stream, &fault).await,
            _ => refusal::reset(stream),
        }
        return Err(fault);
    }
    let destination = match destination(&stream, gateway) {
        Ok(destination) => destination,
        Err(fault) => {
            refusal::reset(stream);
            return Err(fault);
        }
    };
    let origin = container.names.origin(destination.ip());
    line.entry(|entry| {
        entry.host = Some(match &origin {
            Origin::Name(name) => name.to_string(),
            _ => destination.ip().to_string(),
        });
        entry.port = Some(destination.port());
    });
    drop(stream.set_nodelay(true));
    let mut first = BytesMut::with_capacity(4096);
    let direct = Goal { origin, port: destination.port(), tunnelled: false };
    let (classified, goal) = match opening(&mut stream, &mut first, direct, container, gateway, line).await {
        Ok(opening) => opening,
        Err(fault) => {
            refusal::reset(stream);
            return Err(fault);
        }
    };
    let Goal { origin, port, tunnelled } = goal;
    match classified {
        Classified::Tls(hello) => {
            line.entry(|entry| entry.protocol = "https");
            let identity = match of_tls(origin, hello.sni.as_deref()) {
                Ok(identity) => identity,
                Err(reason) => {
                    refusal::unrecognized_name(stream).await;
                    return Err(Fault::new(reason, "TLS without a usable server name"));
                }
            };
            if identity.standing == Standing::LookedUp
                && let Some(name) = &identity.name
                && hello.alpn.iter().any(|name| name == postgres::ALPN)
                && let Some(host) =
                    postgres::server(&gateway.vault().current(), container, &Origin::Name(name.clone()), port)
            {
                let (host, stream) = (host.clone(), Replay::new(first.freeze(), stream));
                return Ok(Established::Postgres(Postgres { stream, host, port, direct: true }));
            }
            if identity.standing == Standing::LookedUp
                && let Some(name) = &identity.name
                && let Some(permit) = splice::permit(gateway, container, name, port)
            {
                line.entry(|entry| {
                    (entry.protocol, entry.host) = ("tls", Some(name.to_string()));
                    entry.rule = Some(permit.rule().to_owned());
                });
                if let Err(denial) = within_limits(container).and_then(|()| within_rate(container, &permit)) {
                    refusal::reset(stream);
                    return Err(Fault::of(denial));
                }
                return Ok(Established::Splice(Splice {
                    permit,
                    stream,
                    first: first.freeze(),
                    by: By::Splice,
                    silent: false,
                }));
            }
            let downstream = Downstream::new(Arc::clone(container), identity, port, Wire::Tls, worker);
            line.becomes(&downstream);
            secure(Replay::new(first.freeze(), stream), hello, downstream, gateway).await
        }
        Classified::Http1 | Classified::Http2Preface => {
            line.entry(|entry| entry.protocol = "http");
            let identity = of_plain(origin);
            let http2 = classified == Classified::Http2Preface;
            let wire = if tunnelled { Wire::Tunnelled } else { Wire::Plain };
            let downstream = Downstream::new(Arc::clone(container), identity, port, wire, worker);
            line.becomes(&downstream);
            let stream = Replay::new(first.freeze(), stream);
            Ok(Established::requests(Conn::new(stream, Arc::clone(&downstream), http2), downstream))
        }
        Classified::Other if ssh::server(&gateway.vault().current(), &origin, port).is_some() => {
            let Origin::Name(host) = origin else {
                return Err(Fault::new(Reason::Internal, "a server without a name"));
            };
            Ok(Established::Ssh(Ssh { stream: Replay::new(first.freeze(), stream), host, port }))
        }
        Classified::Other
            if postgres::server(&gateway.vault().current(), container, &origin, port).is_some() =>
        {
            let Origin::Name(host) = origin else {
                return Err(Fault::new(Reason::Internal, "a server without a name"));
            };
            let stream = Replay::new(first.freeze(), stream);
            Ok(Established::Postgres(Postgres { stream, host, port, direct: false }))
        }
        Classified::Other => match raw::permit(container, &origin, port) {
            Ok(permit) => {
                line.entry(|entry| {
                    (entry.host, entry.rule) =
                        (Some(permit.host().to_string()), Some(permit.rule().to_owned()));
                });
                let silent = first.is_empty();
                Ok(Established::Splice(Splice { permit, stream, first: first.freeze(), by: By::Tcp, silent }))
            }
            Err(fault) => {
                let host = match &origin {
                    Origin::Name(host) => Some((host, gateway.leaves(container))),
                    _ => None,
                };
                refusal::tell(stream, first.freeze(), &fault, host).await;
                Err(fault)
            }
        },
        Classified::Malformed { why } => {
            refusal::reset(stream);
            Err(Fault::new(Reason::Malformed, why))
        }
        Classified::NeedMore { .. } => {
            refusal::reset(stream);
            Err(Fault::new(Reason::Malformed, "too much before it is clear what it is"))
        }
    }
}

/// Where a connection wants to go.
struct Goal {
    origin: Origin,
    port: u16,
    /// By a CONNECT, of which there is at most one.
    tunnelled: bool,
}

/// What a connection is and where it goes; behind a CONNECT, what comes through the tunnel.
async fn opening(
    stream: &mut TcpStream,
    first: &mut BytesMut,
    direct: Goal,
    container: &Container,
    gateway: &Gateway,
    line: &mut Line,
) -> Result<(Classified, Goal), Fault> {
    let limit = gateway.limits().first_bytes;
    let too_late = |_| Fault::new(Reason::Timeout, "too little arrived to tell what it is");
    let classified = first_of(stream, first, &direct, container, gateway).await?;
    if classified != Classified::Http1 {
        return Ok((classified, direct));
    }
    let Some((tunnel, length)) = timeout(limit, read_connect(stream, first)).await.map_err(too_late)?? else {
        return Ok((classified, direct));
    };
    drop(first.split_to(length));
    line.entry(|entry| {
        (entry.host, entry.port) = (Some(tunnel.shown_host()), Some(tunnel.port));
    });
    stream
        .write_all(connect::ESTABLISHED)
        .await
        .map_err(|error| Fault::broken_off(&format!("the container broke off: {error}")))?;
    let goal = Goal { origin: tunnel.origin(&container.names), port: tunnel.port, tunnelled: true };
    let classified = first_of(stream, first, &goal, container, gateway).await?;
    Ok((classified, goal))
}

/// What it is, or `Other` for a silent one where the server may have to speak first.
async fn first_of(
    stream: &mut TcpStream,
    first: &mut BytesMut,
    goal: &Goal,
    container: &Container,
    gateway: &Gateway,
) -> Result<Classified, Fault> {
    let limit = gateway.limits().first_bytes;
    if first.is_empty() && ssh::server(&gateway.vault().current(), &goal.origin, goal.port).is_some() {
        return Ok(Classified::Other);
    }
    if first.is_empty()
        && raw::may_be_silent(container, &goal.origin, goal.port)
        && timeout(raw::SILENCE, stream.readable()).await.is_err()
    {
        return Ok(Classified::Other);
    }
    let too_late = |_| Fault::new(Reason::Timeout, "too little arrived to tell what it is");
    timeout(limit, read_first(stream, first)).await.map_err(too_late)?
}

/// The tunnel that is asked for, and the length of the head that asks. None: it is another request.
async fn read_connect(
    stream: &mut TcpStream,
    first: &mut BytesMut,
) -> Result<Option<(connect::Tunnel, usize)>, Fault> {
    loop {
        match connect::asked(first) {
            Asked::Tunnel(tunnel, length) => return Ok(Some((tunnel, length))),
            Asked::Other => return Ok(None),
            Asked::NeedMore if first.len() >= LIMIT => return Ok(None),
            Asked::NeedMore => read_some(stream, first, 1024).await?,
        }
    }
}

async fn read_some(stream: &mut TcpStream, first: &mut BytesMut, room: usize) -> Result<(), Fault> {
    first.reserve(room);
    match stream.read_buf(first).await {
        Ok(0) if first.is_empty() => Err(Fault::new(Reason::Timeout, "closed without a byte")),
        Ok(0) => Err(Fault::new(Reason::Malformed, "closed before it was clear what it is")),
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new(Reason::Malformed, &error.to_string())),
    }
}

fn destination(stream: &TcpStream, gateway: &Gateway) -> Result<SocketAddr, Fault> {
    let direct = || Fault::new(Reason::DirectConnection, "a connection to the sidecar's own port");
    let destination = gateway.original_destination().of(stream).map_err(|_| direct())?;
    match stream.local_addr() {
        Ok(listener) if listener != destination => Ok(destination),
        _ => Err(direct()),
    }
}

/// Reads until it is clear what it is. `NeedMore` is given back only when the limit is reached.
async fn read_first(stream: &mut TcpStream, first: &mut BytesMut) -> Result<Classified, Fault> {
    loop {
        let classified = classify(first);
        let Classified::NeedMore { at_least } = classified else { return Ok(classified) };
        if first.len() >= LIMIT {
            return Ok(classified);
        }
        while first.len() < at_least {
            read_some(stream, first, at_least - first.len()).await?;
        }
    }
}

async fn secure(
    stream: Replay,
    hello: Hello,
    downstream: Arc<Downstream>,
    gateway: &Gateway,
) -> Result<Established, Fault> {
    let Some(name) = &downstream.identity.name else {
        return Err(Fault::new(Reason::Internal, "TLS without a name"));
    };
    let config = gateway
        .leaves(&downstream.container)
        .config(name)
        .map_err(|error| Fault::new(Reason::Internal, &error.to_string()))?;
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = match timeout(gateway.limits().handshake, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(handshake_fault(&error, &hello)),
        Err(_) => return Err(Fault::new(Reason::Timeout, "TLS handshake")),
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Established::requests(Conn::secure(stream, Arc::clone(&downstream), http2), downstream))
}

/// A client that does not trust us is the usual one: says what to look at.
fn handshake_fault(error: &io::Error, hello: &Hello) -> Fault {
    use rustls::{AlertDescription as Alert, Error};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let detail = match cause {
        Some(Error::AlertReceived(Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown)) => {
            "the client does not trust the sidecar's certificate; make its trust variable (SSL_CERT_FILE, \
             NODE_EXTRA_CA_CERTS, REQUESTS_CA_BUNDLE or the like) name /run/understudy/bundle.pem"
                .to_owned()
        }
        Some(Error::NoApplicationProtocol) => {
            let offered: Vec<_> = hello.alpn.iter().map(|name| String::from_utf8_lossy(name)).collect();
            format!("the client offers only {}; h2 and http/1.1 are spoken", offered.join(", "))
        }
        Some(cause) => format!("TLS handshake: {cause}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the client broke off the TLS handshake; if it pins certificates or has its own list of \
             authorities, it cannot be inspected"
                .to_owned()
        }
        None => format!("TLS handshake: {error}"),
    };
    Fault::new(Reason::HandshakeFailed, &detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection has one of these for as long as it lives.
    #[test]
    fn the_task_of_a_connection_is_small() {
        fn size<A, B, C, D, E, F>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(connection) <= 1536, "{}", size(connection));
    }
}
