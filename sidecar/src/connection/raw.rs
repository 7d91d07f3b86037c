//! Bytes that are neither TLS nor HTTP, to a host and port for which a rule says `tcp = true`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use understudy_policies::Verdict;

use super::classify::{Classified, LIMIT, classify};
use super::line::Fault;
use super::relay::{Passed, write};
use crate::container::Container;
use crate::decide::{Permit, decide_raw};
use crate::dns::Origin;
use crate::operator::{within_limits, within_rate};
use crate::reason::Reason;

/// A client that is silent for so long waits for the server to speak first.
pub(super) const SILENCE: Duration = Duration::from_millis(500);

/// What is said of TLS and HTTP there: `tcp = true` would be a way around every rule about them.
const NOT_RAW: &str = "TLS or HTTP where a rule says only `tcp = true`; allow it with a rule of its own";

pub(super) fn permit(container: &Container, origin: &Origin, port: u16) -> Result<Permit, Fault> {
    let name = match origin {
        Origin::Name(name) => name,
        Origin::Sink => {
            return Err(Fault::new(
                Reason::ProtocolNotAllowed,
                "neither TLS nor HTTP, to a host that no rule allows",
            ));
        }
        Origin::NeverLookedUp | Origin::Literal => {
            let detail = "neither TLS nor HTTP, to an address that no name was looked up for";
            return Err(Fault::new(Reason::ProtocolNotAllowed, detail));
        }
    };
    let permit = decide_raw(&container.rights().policy, name, port);
    let permit = permit.map_err(Fault::of)?;
    within_limits(container).map_err(Fault::of)?;
    within_rate(container, &permit).map_err(Fault::of)?;
    Ok(permit)
}

/// Whether a client here may wait for the server to speak.
pub(super) fn may_be_silent(container: &Container, origin: &Origin, port: u16) -> bool {
    let Origin::Name(name) = origin else { return false };
    let policy = &container.rights().policy;
    // Where HTTP is allowed too, a slow client of it must not be taken for one that waits.
    decide_raw(policy, name, port).is_ok() && !matches!(policy.decide(name, port), Verdict::Allowed { .. })
}

/// Passes on what the server says until the client's first bytes are there and are neither TLS nor HTTP. None: one side
/// has ended before.
pub(super) async fn greet(
    container: &TcpStream,
    upstream: &TcpStream,
    passed: &Passed,
    patience: Duration,
) -> Result<Option<Bytes>, Fault> {
    let broken = |error: std::io::Error| Fault::broken_off(&error.to_string());
    let (mut first, mut said) = (BytesMut::new(), vec![0; 4096]);
    // From its first byte on, as for every connection.
    let mut deadline: Option<Instant> = None;
    loop {
        match classify(&first) {
            Classified::Tls(_) | Classified::Http1 | Classified::Http2Preface => {
                return Err(Fault::new(Reason::ProtocolNotAllowed, NOT_RAW));
            }
            // As where the client speaks first: a server may take it for what it begins like.
            Classified::Malformed { why } => return Err(Fault::new(Reason::Malformed, why)),
            Classified::NeedMore { .. } if first.len() < LIMIT => {}
            Classified::NeedMore { .. } => {
                return Err(Fault::new(Reason::Malformed, "too much before it is clear what it is"));
            }
            Classified::Other => return Ok(Some(first.freeze())),
        }
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = late => return Err(Fault::new(Reason::Timeout, "too little arrived to tell what it is")),
            ready = upstream.readable() => {
                ready.map_err(broken)?;
                match upstream.try_read(&mut said) {
                    Ok(0) => return Ok(None),
                    Ok(length) => {
                        let bytes = said.get(..length).unwrap_or_default();
                        passed.pass(bytes.len()).map_err(Fault::of)?;
                        write(container, bytes, &passed.down).await.map_err(broken)?;
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(Fault::new(Reason::UpstreamFailed, &error.to_string())),
                }
            }
            ready = container.readable() => {
                ready.map_err(broken)?;
                match container.try_read_buf(&mut first) {
                    Ok(0) => return Ok(None),
                    Ok(_) => deadline = deadline.or_else(|| Some(Instant::now() + patience)),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(broken(error)),
                }
            }
        }
    }
}
