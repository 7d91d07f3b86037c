//! Serves a container's DNS sockets.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::audit::{Audit, Entry};
use crate::container::Container;
use crate::decide::{Denial, closed};
use crate::dns::answer::{Answer, Outcome, answer};
use crate::dns::told::Told;
use crate::operator::Mode;
use crate::reason::Reason;

/// The largest message that is read. Real queries are far smaller; what is longer is malformed.
const MAX_QUERY: usize = 4096;
/// DNS over TCP: connections at once, and how long an idle one stays.
const MAX_CONNECTIONS: usize = 32;
const IDLE: Duration = Duration::from_secs(10);

/// One container's DNS: answers, and tells the audit of denied names.
#[derive(Debug)]
pub struct DnsService {
    container: Arc<Container>,
    audit: Audit,
    told: Mutex<Told>,
    connections: Semaphore,
}

impl DnsService {
    pub fn new(container: Arc<Container>, audit: Audit) -> Arc<Self> {
        Arc::new(Self {
            container,
            audit,
            told: Mutex::new(Told::new(Instant::now())),
            connections: Semaphore::new(MAX_CONNECTIONS),
        })
    }

    /// Answers datagrams until the container is revoked.
    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) {
        let mut revoked = self.container.revocation();
        let mut buffer = vec![0; MAX_QUERY];
        loop {
            let received = tokio::select! {
                _ = revoked.wait_for(|revoked| *revoked) => return,
                received = socket.recv_from(&mut buffer) => received,
            };
            // An error here is an ICMP echo of an earlier answer; the socket goes on.
            let Ok((length, peer)) = received else { continue };
            if let Some(bytes) = buffer.get(..length).and_then(|query| self.respond(query)) {
                let _ = socket.send_to(&bytes, peer).await;
            }
        }
    }

    /// Answers connections until the container is revoked.
    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        let mut revoked = self.container.revocation();
        loop {
            let accepted = tokio::select! {
                _ = revoked.wait_for(|revoked| *revoked) => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let service = Arc::clone(&self);
            let mut revoked = revoked.clone();
            tokio::spawn(async move {
                let Ok(_place) = service.connections.try_acquire() else { return };
                tokio::select! {
                    _ = revoked.wait_for(|revoked| *revoked) => {}
                    // A client that breaks off needs no answer.
                    _ = service.converse(stream) => {}
                }
            });
        }
    }

    /// RFC 7766: two bytes of length, then the message; several of them one after another.
    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let query = tokio::time::timeout(IDLE, async {
                let length = usize::from(stream.read_u16().await?);
                if length > MAX_QUERY {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                let mut query = vec![0; length];
                stream.read_exact(&mut query).await?;
                Ok::<_, io::Error>(query)
            })
            .await??;
            let Some(bytes) = self.respond(&query) else { return Ok(()) };
            let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
            let mut framed = length.to_be_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            stream.write_all(&framed).await?;
        }
    }

    fn respond(&self, query: &[u8]) -> Option<Vec<u8>> {
        let rights = self.container.rights();
        let Answer { bytes, outcome } =
            answer(query, &self.container.names, &rights.policy, rights.mode != Mode::Deny)?;
        let (key, host, reason, rule, detail) = match outcome {
            Outcome::Answered => return Some(bytes),
            Outcome::Sunk(name) => {
                let Denial { reason, rule, .. } = closed(&rights.policy, &name);
                (name.to_string(), Some(name.to_string()), reason, rule, None)
            }
            Outcome::Refused(what) => (what.clone(), None, Reason::ProtocolNotAllowed, None, Some(what)),
        };
        let unsaid = self.told.lock().unwrap_or_else(PoisonError::into_inner).tell(key, Instant::now());
        if let Some(unsaid) = unsaid {
            let more = (unsaid > 0).then(|| format!("{unsaid} more were left out before this one"));
            let mut entry = Entry::new(&self.container, "dns");
            (entry.host, entry.reason, entry.rule) = (host, Some(reason), rule);
            entry.detail = match (detail, more) {
                (Some(detail), Some(more)) => Some(format!("{detail}; {more}")),
                (detail, more) => detail.or(more),
            };
            self.audit.write(entry);
        }
        Some(bytes)
    }
}
