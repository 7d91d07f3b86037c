//! Reads ahead of rustls while much arrives.
//!
//! rustls asks for 4 KiB at a time (its deframer's `READ_SIZE`), so that each 4 KiB of an upload would cost a system
//! call. A connection of small requests never fills those, and has no buffer here; nor has a silent one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Four TLS records.
const SIZE: usize = 64 * 1024;
/// A read that brings less than this says that what arrives no longer fills a buffer.
const WORTHWHILE: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read took all that it could: the next is worth a buffer.
    busy: bool,
}

impl ReadAhead {
    pub(super) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        source: &mut T,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start == self.end {
            if !self.busy || wanted.remaining() >= SIZE {
                return self.read_through(source, context, wanted);
            }
            ready!(self.fill(source, context))?;
        }
        let ready = self.buffer.get(self.start..self.end).unwrap_or_default();
        let taken = ready.get(..wanted.remaining()).unwrap_or(ready);
        wanted.put_slice(taken);
        self.start += taken.len();
        if self.start == self.end && !self.busy {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
        Poll::Ready(Ok(()))
    }

    fn read_through<T: AsyncRead + Unpin>(
        &mut self,
        source: &mut T,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(source).poll_read(context, wanted))?;
        self.busy = wanted.remaining() == 0;
        Poll::Ready(Ok(()))
    }

    fn fill<T: AsyncRead + Unpin>(
        &mut self,
        source: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.buffer.resize(SIZE, 0);
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(source).poll_read(context, &mut buffer))?;
        (self.start, self.end) = (0, buffer.filled().len());
        self.busy = self.end >= WORTHWHILE;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Counts reads, and gives as much as asked for while there is some.
    struct Source {
        content: Vec<u8>,
        reads: usize,
    }

    impl AsyncRead for Source {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            wanted: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            let length = self.content.len().min(wanted.remaining());
            wanted.put_slice(&self.content[..length]);
            self.content.drain(..length);
            Poll::Ready(Ok(()))
        }
    }

    async fn read(ahead: &mut ReadAhead, source: &mut (impl AsyncRead + Unpin), size: usize) -> Vec<u8> {
        let mut memory = vec![0; size];
        let mut wanted = ReadBuf::new(&mut memory);
        poll_fn(|context| ahead.poll_read(source, context, &mut wanted)).await.unwrap();
        wanted.filled().to_vec()
    }

    #[tokio::test]
    async fn much_comes_whole_in_order_and_in_few_reads() {
        let content: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8 ^ (number >> 8) as u8).collect();
        let mut source = Source { content: content.clone(), reads: 0 };
        let mut ahead = ReadAhead::default();
        let mut got = Vec::new();
        loop {
            let part = read(&mut ahead, &mut source, 4096).await;
            if part.is_empty() {
                break;
            }
            got.extend(part);
        }
        assert!(got == content);
        assert!(source.reads < 20, "{} reads", source.reads);
    }

    #[tokio::test]
    async fn little_needs_no_buffer_and_much_leaves_none_behind() {
        let (mut writer, mut source) = tokio::io::duplex(1 << 20);
        let mut ahead = ReadAhead::default();
        writer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(read(&mut ahead, &mut source, 4096).await, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(ahead.buffer.capacity(), 0);
        writer.write_all(&[7; 4096 + 9000]).await.unwrap();
        let mut left = 4096 + 9000;
        while left > 0 {
            left -= read(&mut ahead, &mut source, 4096).await.len();
        }
        assert_eq!(ahead.buffer.capacity(), 0);
        assert!(!ahead.busy);
    }
}
