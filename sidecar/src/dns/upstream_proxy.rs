//! The HTTP proxy that is the sidecar's own way out, if the operator has one: `[upstream-proxy]` in `sidecar.toml`.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use understudy_policies::{HostName, HostPattern};
use zeroize::Zeroizing;

/// Of the proxy's answer.
const LONGEST_HEAD: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    pub host: ProxyHost,
    pub port: u16,
    /// Whether it resolves names, so that nobody checks which addresses they lead to.
    pub by_name: bool,
    /// What is reached without it.
    pub direct: Vec<HostPattern>,
    pub credentials: Option<ProxyCredentials>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHost {
    Address(IpAddr),
    Name(HostName),
}

/// `user:password` for `Proxy-Authorization: Basic` (RFC 7617). Does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyCredentials(Zeroizing<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `user:password`, in one line of ASCII")]
pub struct NotCredentials;

/// The proxy is at fault, not the upstream.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the upstream proxy cannot be reached")]
    Unreachable(io::Error),
    #[error("the upstream proxy broke off")]
    Broken(io::Error),
    /// With its status.
    #[error("the upstream proxy refused the tunnel ({0})")]
    Refused(u16),
    #[error("what the upstream proxy answered is not HTTP")]
    Garbled,
}

impl ProxyCredentials {
    /// One line break at the end does not count.
    pub fn parse(value: &[u8]) -> Result<Self, NotCredentials> {
        let text = std::str::from_utf8(value).map_err(|_| NotCredentials)?;
        let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        let plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if !text.bytes().all(plain) || text.split_once(':').is_none_or(|(user, _)| user.is_empty()) {
            return Err(NotCredentials);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyCredentials(..)")
    }
}

impl UpstreamProxy {
    pub(super) fn is_passed_by(&self, host: &HostName) -> bool {
        self.direct.iter().any(|pattern| pattern.matches(host))
    }

    /// RFC 9110 section 9.3.6. What follows the answer's head is left in the stream.
    pub(super) async fn open(&self, mut stream: TcpStream, target: &str) -> Result<TcpStream, TunnelError> {
        let mut request = Zeroizing::new(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"));
        if let Some(ProxyCredentials(credentials)) = &self.credentials {
            let encoded = Zeroizing::new(BASE64_STANDARD.encode(credentials.as_bytes()));
            request.push_str("Proxy-Authorization: Basic ");
            request.push_str(&encoded);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(TunnelError::Broken)?;
        let head = read_head(&mut stream).await?;
        match status(&head).ok_or(TunnelError::Garbled)? {
            200..300 => Ok(stream),
            refused => Err(TunnelError::Refused(refused)),
        }
    }
}

/// Up to the empty line, and nothing of what follows it.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, TunnelError> {
    let mut head = Vec::new();
    let mut seen = [0; 1024];
    loop {
        let there = stream.peek(&mut seen).await.map_err(TunnelError::Broken)?;
        if there == 0 {
            return Err(TunnelError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let before = head.len();
        head.extend_from_slice(seen.get(..there).unwrap_or_default());
        let end = head.windows(4).position(|four| four == b"\r\n\r\n").map(|start| start + 4);
        head.truncate(end.unwrap_or(head.len()));
        let taken = seen.get_mut(..head.len() - before).unwrap_or_default();
        stream.read_exact(taken).await.map_err(TunnelError::Broken)?;
        if end.is_some() {
            return Ok(head);
        }
        if head.len() > LONGEST_HEAD {
            return Err(TunnelError::Garbled);
        }
    }
}

/// RFC 9112 section 4.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, rest) = line.split_first_chunk::<3>()?;
    let ends = matches!(rest.first(), Some(b' ' | b'\r'));
    let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (ends && digits.iter().all(u8::is_ascii_digit)).then_some(status)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_status_is_one() {
        for (head, expected) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 407\r\n\r\n", Some(407)),
            ("HTTP/1.1 2000 x\r\n\r\n", None),
            ("HTTP/1.1 +20 x\r\n\r\n", None),
            ("HTTP/2 200 OK\r\n\r\n", None),
            ("SSH-2.0-x\r\n\r\n", None),
        ] {
            assert_eq!(status(head.as_bytes()), expected, "{head}");
        }
    }

    #[test]
    fn credentials_are_a_user_and_a_password_and_do_not_print() {
        let good = ProxyCredentials::parse(b"me:pass: word\r\n").unwrap();
        assert_eq!((good.0.as_str(), format!("{good:?}").contains("pass")), ("me:pass: word", false));
        for bad in [&b""[..], b"me", b":x", b"me:x\ny", b"me:\xff", b"me:x\r\nHost: y"] {
            assert!(ProxyCredentials::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn what_follows_the_head_stays_in_the_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        let proxy = UpstreamProxy {
            host: ProxyHost::Address([127, 0, 0, 1].into()),
            port: 1,
            by_name: false,
            direct: Vec::new(),
            credentials: Some(ProxyCredentials::parse(b"me:secret").unwrap()),
        };
        let answering = async {
            let mut asked = vec![0; 1024];
            let length = theirs.read(&mut asked).await.unwrap();
            for piece in ["HTTP/1.1 200 OK\r\nVia: x\r", "\n\r", "\nSSH-2.0-after"] {
                theirs.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            String::from_utf8(asked[..length].to_vec()).unwrap()
        };
        let (opened, asked) = tokio::join!(proxy.open(ours, "192.0.2.1:22"), answering);
        assert_eq!(
            asked,
            "CONNECT 192.0.2.1:22 HTTP/1.1\r\nHost: 192.0.2.1:22\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
        );
        let mut after = [0; 13];
        opened.unwrap().read_exact(&mut after).await.unwrap();
        assert_eq!(&after, b"SSH-2.0-after");
    }
}
