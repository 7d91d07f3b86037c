//! Ending a connection that leads nowhere: in the client's own protocol, if that has words for it before anybody is known.

mod ssh;

use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use understudy_policies::HostName;

use super::line::Fault;
use super::postgres;
use crate::proxy::Replay;
use crate::reason::Reason;
use crate::tls::Leaves;

/// Fatal alert `unrecognized_name` (RFC 6066 section 3), in the clear as no keys exist yet.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// For a client to say what it is, and to read what it was told.
const FAREWELL: Duration = Duration::from_secs(3);

/// Closes with a reset, so that the client fails at once and does not take the end for an answer.
pub(super) fn reset(stream: TcpStream) {
    // Should the option fail, the connection ends all the same, only less clearly.
    drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
}

pub(super) async fn unrecognized_name(mut stream: TcpStream) {
    if stream.write_all(&UNRECOGNIZED_NAME).await.is_ok() {
        drop(stream.shutdown().await);
    }
}

/// Of a client that nothing here is for: one of SSH or PostgreSQL is told why, any other is reset. `first` are its first
/// bytes. With the host, TLS is spoken with it, if it wants that.
pub(super) async fn tell(
    mut stream: TcpStream,
    first: Bytes,
    fault: &Fault,
    host: Option<(&HostName, &Leaves)>,
) {
    let Some(client) = Client::of(&first) else { return reset(stream) };
    let text = client.told(fault);
    let told = async {
        match client {
            Client::Ssh => {
                drop(stream.write_all(&ssh::farewell(fault.reason(), &text)).await);
                drop(stream.shutdown().await);
                let mut rest = [0; 512];
                while matches!(stream.read(&mut rest).await, Ok(1..)) {}
            }
            Client::Postgres => {
                postgres::turn_away(Replay::new(first, stream), fault.reason(), &text, host).await;
            }
        }
    };
    drop(timeout(FAREWELL, told).await);
}

/// The same of one that is too many: for a moment it may say what it is.
pub(super) async fn too_many(stream: TcpStream, fault: &Fault) {
    let mut first = vec![0; 512];
    match timeout(super::raw::SILENCE, stream.peek(&mut first)).await {
        Ok(Ok(1..)) => {}
        _ => return reset(stream),
    }
    let Ok(length) = stream.try_read(&mut first) else { return reset(stream) };
    first.truncate(length);
    tell(stream, first.into(), fault, None).await;
}

/// Whose first bytes say what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Ssh,
    Postgres,
}

impl Client {
    fn of(first: &[u8]) -> Option<Self> {
        if first.starts_with(b"SSH-2.0-") {
            return Some(Self::Ssh);
        }
        postgres::is_opening(first).then_some(Self::Postgres)
    }

    /// With what makes a way for it, if there is none.
    fn told(self, fault: &Fault) -> String {
        let more = match (self, fault.reason()) {
            (Self::Ssh, Some(Reason::ProtocolNotAllowed)) => {
                ". For git over SSH, the operator declares a secret of kind `ssh-key` for this host (docs/ssh.md)"
            }
            (Self::Postgres, Some(Reason::ProtocolNotAllowed)) => {
                ". For PostgreSQL, the operator declares a secret of kind `postgres` for this host (docs/postgres.md)"
            }
            _ => "",
        };
        format!("{}{more}", fault.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_first_bytes() {
        let opening = |code: u32| [8_u32.to_be_bytes(), code.to_be_bytes()].concat();
        let start = b"\0\0\0\x12\0\x03\0\0user\0app\0\0";
        for (first, client) in [
            (&b"SSH-2.0-OpenSSH_9.2p1\r\n"[..], Some(Client::Ssh)),
            (&opening(80_877_103), Some(Client::Postgres)),
            (&opening(80_877_104), Some(Client::Postgres)),
            (&start[..], Some(Client::Postgres)),
            // As it is cut.
            (&start[..9], Some(Client::Postgres)),
            (b"", None),
            (b"SSH-1.5-old\r\n", None),
            (b"\0\0\0\x08", None),
            (&opening(1), None),
            (b"\0\xff\0\x12\0\x03\0\0user\0app\0\0", None),
            (b"\x05\x01\x00", None),
        ] {
            assert_eq!(Client::of(first), client, "{}", first.escape_ascii());
        }
    }
}
