//! What passes between a container and a server once there is a session: bytes both ways as fast as the slower side takes
//! them, real values on their way to the container replaced, and the frames of the server's messages followed.

use std::sync::atomic::Ordering::Relaxed;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use super::super::line::Fault;
use super::super::relay::Passed;
use super::FAREWELL;
use super::message::{Frames, Unexpected};
use super::wire::Stream;
use crate::credentials::scrub::Replacer;
use crate::reason::Reason;

/// Read at once.
const CHUNK: usize = 64 * 1024;

/// The container's end of a session, and where in the server's messages it is.
pub(super) struct Down {
    stream: WriteHalf<Stream>,
    /// Where in them what was read ends, and what was written.
    incoming: Frames,
    outgoing: Frames,
    replacer: Replacer,
}

pub(super) struct Ends {
    from_container: ReadHalf<Stream>,
    from_server: ReadHalf<Stream>,
    to_server: WriteHalf<Stream>,
}

pub(super) fn ends(container: Stream, server: Stream, replacer: Replacer) -> (Ends, Down) {
    let (from_container, stream) = split(container);
    let (from_server, to_server) = split(server);
    (
        Ends { from_container, from_server, to_server },
        Down { stream, incoming: Frames::default(), outgoing: Frames::default(), replacer },
    )
}

/// Ok once the container or the server has ended the session.
pub(super) async fn pump(ends: &mut Ends, down: &mut Down, passed: &Passed) -> Result<(), Fault> {
    let Ends { from_container, from_server, to_server } = ends;
    let up = async {
        let mut chunk = BytesMut::new();
        loop {
            chunk.clear();
            chunk.reserve(CHUNK);
            match from_container.read_buf(&mut chunk).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_end(&error) => break,
                Err(error) => return Err(gone(&error)),
            }
            passed.pass(chunk.len()).map_err(Fault::of)?;
            to_server.write_all(&chunk).await.map_err(|error| failed(&error))?;
            to_server.flush().await.map_err(|error| failed(&error))?;
            passed.up.fetch_add(chunk.len() as u64, Relaxed);
        }
        drop(to_server.shutdown().await);
        Ok(())
    };
    let down = async {
        loop {
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
    tokio::select! {
        biased;
        result = &mut down => return result,
        result = &mut up => result?,
    }
    // Nobody is there for what still comes.
    timeout(FAREWELL, down).await.unwrap_or(Ok(()))
}

impl Down {
    async fn push(&mut self, chunk: BytesMut, passed: &Passed) -> Result<(), Fault> {
        let unexpected = |error: Unexpected| Fault::new(Reason::UpstreamFailed, &error.to_string());
        // Before any of it is passed on.
        self.incoming.advance(&chunk).map_err(unexpected)?;
        let expected = self.replacer.held() + chunk.len();
        let text = self.replacer.push(chunk.freeze());
        // What may be the beginning of a value waits for the rest of its message, and no longer: the client answers it.
        let rest = if self.incoming.is_between() { self.replacer.finish() } else { Bytes::new() };
        // A message that got longer or shorter would be another one.
        if text.len() + rest.len() + self.replacer.held() != expected {
            let detail = "a real value was to be replaced, and its length would have changed";
            return Err(Fault::new(Reason::UnreadableAnswer, detail));
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
        let rest = self.replacer.finish();
        self.stream.write_all(&rest).await.map_err(|error| gone(&error))?;
        drop(self.stream.shutdown().await);
        Ok(())
    }

    pub(super) fn replaced(&self) -> u64 {
        self.replacer.replaced()
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
