//! A resolver that answers every A query alike and writes each query down (RFC 1035 4.1).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::log::{Entry, Log};

const HEADER: usize = 12;
const A: u16 = 1;

/// The resolver's sockets.
pub(super) struct Resolver {
    udp: UdpSocket,
    tcp: TcpListener,
    answer: Ipv4Addr,
}

impl Resolver {
    pub(super) async fn bind(address: SocketAddr, answer: Ipv4Addr) -> Result<Self> {
        let udp = UdpSocket::bind(address).await.with_context(|| format!("cannot bind udp {address}"))?;
        let tcp = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        Ok(Self { udp, tcp, answer })
    }

    pub(super) async fn serve(self, log: Log) {
        let log = Arc::new(log);
        let answer = self.answer;
        let over_tcp = async {
            while let Ok((stream, _)) = self.tcp.accept().await {
                let log = log.clone();
                tokio::spawn(async move {
                    // a client that goes away ends its connection
                    let _ = serve_tcp(stream, answer, &log).await;
                });
            }
        };
        let over_udp = async {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = self.udp.recv_from(&mut buffer).await {
                if let Some(reply) = reply(buffer.get(..length).unwrap_or_default(), "udp", answer, &log) {
                    let _ = self.udp.send_to(&reply, peer).await;
                }
            }
        };
        tokio::join!(over_tcp, over_udp);
    }
}

async fn serve_tcp(mut stream: TcpStream, answer: Ipv4Addr, log: &Log) -> Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut query = vec![0; usize::from(length)];
        stream.read_exact(&mut query).await?;
        let Some(reply) = reply(&query, "tcp", answer, log) else { return Ok(()) };
        let length = u16::try_from(reply.len())?;
        stream.write_all(&[&length.to_be_bytes()[..], &reply].concat()).await?;
    }
}

fn reply(query: &[u8], transport: &str, answer: Ipv4Addr, log: &Log) -> Option<Vec<u8>> {
    let (name, qtype, end) = question(query)?;
    log.write(&Entry::Query { transport: transport.to_owned(), name, qtype });
    let answers = u8::from(qtype == A);
    let mut reply = query.get(..2)?.to_vec();
    // a response, recursion desired and available, no error; one question, as many answers
    reply.extend([0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    reply.extend(query.get(HEADER..end)?);
    if qtype == A {
        reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
        reply.extend(answer.octets());
    }
    Some(reply)
}

/// Name, type, and where the question ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).into_owned());
        at += length;
    }
    let qtype = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    query.get(at + 3)?;
    Some((labels.join("."), qtype, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01";

    #[test]
    fn a_question_is_read() {
        assert_eq!(question(QUERY), Some(("a.example".to_owned(), 1, QUERY.len())));
    }

    #[test]
    fn every_cut_is_no_question() {
        for length in 0..QUERY.len() {
            assert_eq!(question(&QUERY[..length]), None, "{length} bytes");
        }
    }
}
