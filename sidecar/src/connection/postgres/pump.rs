//! What passes between a container and a server once there is a session: bytes both ways as fast as the slower side takes
//! them, real values on their way to the container replaced, and the frames of the server's messages followed.

use std::sync::atomic::Ordering::Relaxed;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::task::consume_budget;
use tokio::time::timeout;

use super::super::line::Fault;
use super::super::relay::Passed;
use super::FAREWELL;
use super::message::{Frames, Unexpected};
use super::scrubber::Scrubber;
use super::wire::Stream;
use crate::reason::Reason;

/// Read at once.
const CHUNK: usize = 64 * 1024;

/// The container's end of a session, and where in the server's messages it is.
pub(super) struct Down {
    stream: WriteHalf<Stream>,
    /// Where in them what was read ends, and what was written.
    incoming: Frames,
    outgoing: Frames,
    scrubber: Scrubber,
}

pub(super) struct Ends {
    from_container: ReadHalf<Stream>,
    from_server: ReadHalf<Stream>,
    to_server: WriteHalf<Stream>,
}

pub(super) fn ends(container: Stream, server: Stream, scrubber: Scrubber) -> (Ends, Down) {
    let (from_container, stream) = split(container);
    let (from_server, to_server) = split(server);
    (
        Ends { from_container, from_server, to_server },
        Down { stream, incoming: Frames::default(), outgoing: Frames::default(), scrubber },
    )
}

/// Why nothing comes from the container any more.
enum Ended {
    ByContainer,
    /// It takes no more; why, it says itself.
    ByServer(std::io::Error),
}

/// Ok once the container or the server has ended the session.
pub(super) async fn pump(ends: &mut Ends, down: &mut Down, passed: &Passed) -> Result<(), Fault> {
    let Ends { from_container, from_server, to_server } = ends;
    let up = async {
        let mut chunk = BytesMut::new();
        loop {
            // TLS can have more to give than its socket: a way that is always ready must not keep the other waiting.
            consume_budget().await;
            chunk.clear();
            chunk.reserve(CHUNK);
            match from_container.read_buf(&mut chunk).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_end(&error) => break,
                Err(error) => return Err(gone(&error)),
            }
            passed.pass(chunk.len()).map_err(Fault::of)?;
            let sent = async {
                to_server.write_all(&chunk).await?;
                to_server.flush().await
            };
            if let Err(error) = sent.await {
                return Ok(Ended::ByServer(error));
            }
            passed.up.fetch_add(chunk.len() as u64, Relaxed);
        }
        drop(to_server.shutdown().await);
        Ok(Ended::ByContainer)
    };
    let down = async {
        loop {
            consume_budget().await;
            let mut chunk = BytesMut::with_capacity(CHUNK);
            match from_server.read_buf(&mut chunk).await {
                Ok(0) => return down.end().await,
                Ok(_) => {}
                Err(error) if is_end(&error) => return down.end().await,
                Err(error) => return Err(failed(&error)),
            }
            down.push(chunk, passed).await?;
        }
    };
    tokio::pin!(up, down);
    // In no order: the first one could always be ready.
    let ended = tokio::select! {
        result = &mut down => return result,
        result = &mut up => result?,
    };
    match (timeout(FAREWELL, down).await, ended) {
        (Ok(result), _) => result,
        // Nobody is there for what still comes.
        (Err(_), Ended::ByContainer) => Ok(()),
        (Err(_), Ended::ByServer(error)) => Err(failed(&error)),
    }
}

impl Down {
    async fn push(&mut self, chunk: BytesMut, passed: &Passed) -> Result<(), Fault> {
        let unexpected = |error: Unexpected| Fault::new(Reason::UpstreamFailed, &error.to_string());
        // Before any of it is passed on.
        self.incoming.advance(&chunk).map_err(unexpected)?;
        let expected = self.scrubber.held() + chunk.len();
        let text = self.scrubber.push(chunk.freeze());
        // What may be the beginning of a value waits for the rest of its message, and no longer: the client answers it.
        let rest = if self.incoming.is_between() { self.scrubber.finish() } else { Bytes::new() };
        // A message that got longer or shorter would be another one.
        if text.len() + rest.len() + self.scrubber.held() != expected {
            return Err(another_length());
        }
        passed.pass(text.len() + rest.len()).map_err(Fault::of)?;
        for piece in [text, rest] {
            self.write(&piece, passed).await?;
        }
        self.stream.flush().await.map_err(|error| gone(&error))
    }

    /// Follows what is written as it is.
    async fn write(&mut self, mut rest: &[u8], passed: &Passed) -> Result<(), Fault> {
        while !rest.is_empty() {
            let length = self.stream.write(rest).await.map_err(|error| gone(&error))?;
            let (written, left) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            let _ = self.outgoing.advance(written);
            passed.down.fetch_add(length as u64, Relaxed);
            rest = left;
            if length == 0 {
                return Err(gone(&std::io::ErrorKind::WriteZero.into()));
            }
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Fault> {
        let rest = self.scrubber.finish();
        self.stream.write_all(&rest).await.map_err(|error| gone(&error))?;
        drop(self.stream.shutdown().await);
        Ok(())
    }

    pub(super) fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// The last that the container hears, if it can hear it.
    pub(super) async fn tell(&mut self, message: &[u8]) {
        if self.outgoing.is_between() {
            let told = async {
                drop(self.stream.write_all(message).await);
                drop(self.stream.shutdown().await);
            };
            drop(timeout(FAREWELL, told).await);
        }
    }
}

pub(super) fn another_length() -> Fault {
    let detail = "a real value was to be replaced, and its length would have changed";
    Fault::new(Reason::UnreadableAnswer, detail)
}

/// Without the goodbye of TLS, as many clients end.
fn is_end(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::UnexpectedEof
}

fn gone(error: &std::io::Error) -> Fault {
    Fault::broken_off(&format!("the container broke off: {error}"))
}

fn failed(error: &std::io::Error) -> Fault {
    Fault::new(Reason::UpstreamFailed, &format!("the server broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::sync::Notify;

    use super::*;
    use crate::container::Container;
    use crate::credentials::{Rights, Vault};
    use crate::current::Current;
    use crate::dns::SyntheticNames;

    /// Always has more of what it says, and takes whatever comes.
    struct Flood {
        says: &'static [u8],
        heard: Arc<Notify>,
    }

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buf.put_slice(self.says);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.heard.notify_one();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_way_that_is_always_ready_does_not_keep_the_other_waiting() {
        let id = "a".repeat(64).parse().unwrap();
        let (rights, names) = (Rights::default(), SyntheticNames::default());
        let container = Container::new(id, None, "generic".to_owned(), rights, names, Vec::new());
        let container = Arc::new(container);
        let (container_hears, server_hears) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let one = Flood { says: b"Q\0\0\0\x04", heard: Arc::clone(&container_hears) };
        let other = Flood { says: b"Z\0\0\0\x05I", heard: Arc::clone(&server_hears) };
        let pumping = tokio::spawn(async move {
            let scrubber = Scrubber::new(&container, &Current::<Vault>::default());
            let (mut ends, mut down) = ends(Box::new(one), Box::new(other), scrubber);
            pump(&mut ends, &mut down, &Passed::new(&container)).await
        });
        for heard in [container_hears, server_hears] {
            let heard = timeout(Duration::from_secs(20), heard.notified());
            assert!(heard.await.is_ok());
        }
        pumping.abort();
    }
}
