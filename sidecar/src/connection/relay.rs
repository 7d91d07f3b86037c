//! Bytes from one socket to the other, both ways, until both have ended. Nothing is kept of them but their number.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::task::consume_budget;

use crate::container::Container;
use crate::decide::Denial;
use crate::operator;

/// Read at once. An idle connection has no buffer.
const CHUNK: usize = 64 * 1024;

/// What passed so far; still true when the relay is cut.
#[derive(Debug)]
pub(super) struct Passed {
    container: Arc<Container>,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

impl Passed {
    pub(super) fn new(container: &Arc<Container>) -> Arc<Self> {
        let (up, down) = Default::default();
        Arc::new(Self { container: Arc::clone(container), up, down })
    }

    /// Counts bytes against the container's limits, right before they are handed on.
    pub(super) fn pass(&self, bytes: usize) -> Result<(), Denial> {
        operator::pass(&self.container, bytes as u64)
    }
}

/// Which side broke off, and how.
#[derive(Debug)]
pub(super) enum Broken {
    /// Neither: the container has moved all that it may.
    Limit(Denial),
    Container(io::Error),
    Upstream(io::Error),
}

/// An end of one side is passed on as one, and the other way stays open until it ends, too; or until that side takes no
/// more, as one that is closed.
pub(super) async fn relay(
    container: &TcpStream,
    upstream: &TcpStream,
    passed: &Passed,
) -> Result<(), Broken> {
    let (container_ended, upstream_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let up = async {
        let way = Way { from: container, to: upstream, passed, count: &passed.up, ended: &container_ended };
        way.go(Broken::Container, Broken::Upstream).await
    };
    let down = async {
        let way = Way { from: upstream, to: container, passed, count: &passed.down, ended: &upstream_ended };
        way.go(Broken::Upstream, Broken::Container).await
    };
    match tokio::try_join!(up, down) {
        Err(Broken::Container(_)) if container_ended.load(Relaxed) => Ok(()),
        Err(Broken::Upstream(_)) if upstream_ended.load(Relaxed) => Ok(()),
        result => result.map(drop),
    }
}

struct Way<'w> {
    from: &'w TcpStream,
    to: &'w TcpStream,
    passed: &'w Passed,
    count: &'w AtomicU64,
    ended: &'w AtomicBool,
}

impl Way<'_> {
    async fn go(
        self,
        reading: impl Fn(io::Error) -> Broken,
        writing: impl Fn(io::Error) -> Broken,
    ) -> Result<(), Broken> {
        let Self { from, to, passed, count, ended } = self;
        loop {
            // Neither readiness nor a read that does not wait is counted: one busy connection would keep the worker.
            consume_budget().await;
            from.readable().await.map_err(&reading)?;
            let mut chunk = BytesMut::with_capacity(CHUNK);
            match from.try_read_buf(&mut chunk) {
                Ok(0) => {
                    ended.store(true, Relaxed);
                    return SockRef::from(to).shutdown(Shutdown::Write).map_err(writing);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(reading(error)),
            }
            passed.pass(chunk.len()).map_err(Broken::Limit)?;
            write(to, &chunk, count).await.map_err(&writing)?;
        }
    }
}

pub(super) async fn write(to: &TcpStream, mut bytes: &[u8], count: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(length) => {
                count.fetch_add(length as u64, Relaxed);
                bytes = bytes.get(length..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::credentials::Rights;
    use crate::dns::SyntheticNames;

    fn nothing_passed() -> Arc<Passed> {
        let (rights, names) = (Rights::default(), SyntheticNames::default());
        let id = "a".repeat(64).parse().unwrap();
        Passed::new(&Arc::new(Container::new(id, None, "generic".to_owned(), rights, names, Vec::new())))
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (one, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn ends_are_passed_on_one_by_one_and_bytes_counted() {
        let ((mut client, container), (upstream, mut server)) = (pair().await, pair().await);
        let passed = nothing_passed();
        let sent = vec![7; 3 * CHUNK + 5];
        let talk = async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let serve = async {
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            // After the end of the other way.
            server.write_all(b"late").await.unwrap();
            server.shutdown().await.unwrap();
            received
        };
        let (relayed, answer, received) = tokio::join!(relay(&container, &upstream, &passed), talk, serve);
        relayed.unwrap();
        assert!(received == sent && answer == b"late");
        assert_eq!((passed.up.load(Relaxed), passed.down.load(Relaxed)), (sent.len() as u64, 4));
        assert_eq!(passed.container.meter.bytes(), sent.len() as u64 + 4);
    }

    #[tokio::test]
    async fn a_side_that_breaks_off_is_told() {
        for container_breaks in [true, false] {
            let ((client, container), (upstream, server)) = (pair().await, pair().await);
            let (breaking, other) = if container_breaks { (client, server) } else { (server, client) };
            SockRef::from(&breaking).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(breaking);
            let broken = relay(&container, &upstream, &nothing_passed()).await.unwrap_err();
            assert_eq!(matches!(broken, Broken::Container(_)), container_breaks, "{broken:?}");
            drop(other);
        }
    }
}
