//! Undoes a content coding, a chunk at a time, in memory that does not grow with the body.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::Coding;

/// What a chunk may become: this, or so many times its size. Only what is made to fill memory is larger.
const FLOOR: usize = 1 << 20;
const RATIO: usize = 128;
/// RFC 9659: a decoder of the `zstd` coding need not have a larger window (8 MiB).
const ZSTD_WINDOW: u32 = 23;
const STEP: usize = 32 << 10;

pub(in crate::proxy) struct Decoder {
    coding: Coding,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::proxy) enum Undecodable {
    #[error("its {0:?} coding is not well-formed")]
    Malformed(Coding),
    #[error("its {0:?} coding ends too early")]
    Truncated(Coding),
    #[error("its {0:?} coding grows too much when it is undone")]
    Bomb(Coding),
}

enum State {
    /// Between two members of a gzip stream (RFC 1952 section 2.2) or frames of a zstd one; at the start of any coding.
    Start,
    Flate(Box<Decompress>),
    Brotli(Box<Brotli>),
    Zstd(Box<zstd::stream::raw::Decoder<'static>>),
    /// A coding that has one end only has come to it.
    End,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// What one step did.
struct Step {
    consumed: usize,
    produced: usize,
    ended: bool,
}

impl Decoder {
    pub(in crate::proxy) fn new(coding: Coding) -> Self {
        Self { coding, state: State::Start }
    }

    /// All that `chunk` decodes to, given what came before.
    pub(in crate::proxy) fn push(&mut self, chunk: &[u8]) -> Result<Bytes, Undecodable> {
        let most = FLOOR.max(chunk.len().saturating_mul(RATIO));
        let mut rest = chunk;
        let mut out = Vec::new();
        loop {
            if matches!(self.state, State::Start) {
                let Some(first) = rest.first() else { break };
                self.state = start(self.coding, *first).ok_or(Undecodable::Malformed(self.coding))?;
            }
            let filled = out.len();
            out.resize(filled + STEP, 0);
            let room = out.get_mut(filled..).unwrap_or_default();
            let step = step(&mut self.state, rest, room).ok_or(Undecodable::Malformed(self.coding))?;
            out.truncate(filled + step.produced);
            rest = rest.get(step.consumed..).unwrap_or_default();
            if out.len() > most {
                return Err(Undecodable::Bomb(self.coding));
            }
            if step.ended {
                self.state = match self.coding {
                    Coding::Gzip | Coding::Zstd => State::Start,
                    Coding::Deflate | Coding::Brotli => State::End,
                };
            }
            let idle = step.consumed == 0 && step.produced == 0 && !step.ended;
            // A full buffer may have left something inside.
            if rest.is_empty() && step.produced < STEP {
                break;
            }
            if idle {
                return Err(Undecodable::Malformed(self.coding));
            }
        }
        Ok(out.into())
    }

    /// Fails if the body was cut short. One without a byte is none.
    pub(in crate::proxy) fn finish(&self) -> Result<(), Undecodable> {
        match self.state {
            State::Start | State::End => Ok(()),
            _ => Err(Undecodable::Truncated(self.coding)),
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({:?})", self.coding)
    }
}

fn start(coding: Coding, first: u8) -> Option<State> {
    Some(match coding {
        Coding::Gzip => State::Flate(Box::new(Decompress::new_gzip(15))),
        // RFC 9110 section 8.4.1.2 notes that some send it without the zlib wrapper, whose first byte has 8 in its lower
        // half (RFC 1950 section 2.2); a first block that starts so is of a type that does not exist or is stored.
        Coding::Deflate => State::Flate(Box::new(Decompress::new(first & 15 == 8))),
        Coding::Brotli => {
            let memory = StandardAlloc::default;
            // Strict: windows of 16 MiB at most (RFC 7932 section 9.1).
            State::Brotli(Box::new(BrotliState::new_strict(memory(), memory(), memory())))
        }
        Coding::Zstd => {
            let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW)).ok()?;
            State::Zstd(Box::new(decoder))
        }
    })
}

/// None if the input is not well-formed.
fn step(state: &mut State, input: &[u8], room: &mut [u8]) -> Option<Step> {
    match state {
        State::Flate(decoder) => {
            let (before_in, before_out) = (decoder.total_in(), decoder.total_out());
            let status = decoder.decompress(input, room, FlushDecompress::None).ok()?;
            Some(Step {
                consumed: usize::try_from(decoder.total_in() - before_in).ok()?,
                produced: usize::try_from(decoder.total_out() - before_out).ok()?,
                ended: status == Status::StreamEnd,
            })
        }
        State::Brotli(decoder) => {
            let (mut available_in, mut consumed) = (input.len(), 0);
            let (mut available_out, mut produced, mut total) = (room.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut available_in,
                &mut consumed,
                input,
                &mut available_out,
                &mut produced,
                room,
                &mut total,
                decoder,
            );
            match result {
                BrotliResult::ResultFailure => None,
                result => {
                    Some(Step { consumed, produced, ended: matches!(result, BrotliResult::ResultSuccess) })
                }
            }
        }
        State::Zstd(decoder) => {
            let (mut source, mut sink) = (InBuffer::around(input), OutBuffer::around(room));
            let left = decoder.run(&mut source, &mut sink).ok()?;
            Some(Step { consumed: source.pos(), produced: sink.pos(), ended: left == 0 })
        }
        // Bytes after the end.
        State::Start | State::End => {
            input.is_empty().then_some(Step { consumed: 0, produced: 0, ended: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    fn encoded(coding: Coding, text: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Brotli => {
                let mut out = Vec::new();
                let fast = brotli::enc::BrotliEncoderParams { quality: 4, ..Default::default() };
                brotli::BrotliCompress(&mut &text[..], &mut out, &fast).unwrap();
                out
            }
            Coding::Zstd => zstd::encode_all(text, 3).unwrap(),
        }
    }

    fn decoded(coding: Coding, body: &[u8], size: usize) -> Result<Vec<u8>, Undecodable> {
        let mut decoder = Decoder::new(coding);
        let mut out = Vec::new();
        for chunk in body.chunks(size) {
            out.extend_from_slice(&decoder.push(chunk)?);
        }
        decoder.finish().map(|()| out)
    }

    /// Text that does not shrink to nothing.
    fn text(size: usize) -> Vec<u8> {
        (0..size as u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take(size).collect()
    }

    #[test]
    fn what_was_encoded_comes_back_in_any_chunks() {
        let text = text(300_000);
        for coding in ALL {
            let body = encoded(coding, &text);
            for size in [1, 7, 4096, usize::MAX >> 1] {
                assert!(decoded(coding, &body, size).as_deref() == Ok(&text), "{coding:?} {size}");
            }
        }
    }

    #[test]
    fn what_was_flushed_can_be_read_at_once() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut decoder = Decoder::new(Coding::Gzip);
        let mut sent = 0;
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            let bytes = encoder.get_ref()[sent..].to_vec();
            sent += bytes.len();
            assert_eq!(decoder.push(&bytes).unwrap(), event);
        }
    }

    #[test]
    fn members_follow_each_other_and_deflate_may_be_bare() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let body = [encoded(coding, b"one"), encoded(coding, b"two")].concat();
            for size in [1, 100] {
                assert_eq!(decoded(coding, &body, size).unwrap(), b"onetwo");
            }
        }
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        bare.write_all(b"bare").unwrap();
        assert_eq!(decoded(Coding::Deflate, &bare.finish().unwrap(), 2).unwrap(), b"bare");
    }

    #[test]
    fn what_is_cut_short_or_wrong_is_told() {
        for coding in ALL {
            let body = encoded(coding, &text(1000));
            for end in [1, 20, body.len() - 1] {
                assert_eq!(decoded(coding, &body[..end], 64), Err(Undecodable::Truncated(coding)));
            }
            assert_eq!(decoded(coding, b"", 1), Ok(Vec::new()));
            let longer = [&body[..], b"\xff\xff\xff\xff\xff"].concat();
            assert_eq!(decoded(coding, &longer, 64), Err(Undecodable::Malformed(coding)));
            assert_eq!(decoded(coding, &[0xff; 100], 64), Err(Undecodable::Malformed(coding)));
        }
        // The checksum of the text.
        let mut body = encoded(Coding::Gzip, b"text");
        let place = body.len() - 6;
        body[place] ^= 1;
        assert_eq!(decoded(Coding::Gzip, &body, 64), Err(Undecodable::Malformed(Coding::Gzip)));
    }

    #[test]
    fn a_bomb_ends_before_it_fills_memory() {
        for coding in ALL {
            let body = encoded(coding, &vec![0; 32 << 20]);
            assert!(body.len() < 64_000, "{coding:?} {}", body.len());
            assert_eq!(decoded(coding, &body, 16 << 10), Err(Undecodable::Bomb(coding)), "{coding:?}");
        }
        // Much of the same is none as long as it comes slowly.
        let body = encoded(Coding::Gzip, &vec![b' '; 4 << 20]);
        assert!(decoded(Coding::Gzip, &body, 512).is_ok());
    }

    #[test]
    fn a_window_larger_than_allowed_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(b"text").unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(decoded(Coding::Zstd, &body, 64), Err(Undecodable::Malformed(Coding::Zstd)));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..300), size in 1..40_usize) {
            for coding in ALL {
                let _ = decoded(coding, &body, size);
            }
        }

        #[test]
        fn any_text_comes_back(text in proptest::collection::vec(any::<u8>(), 1..2000), size in 1..400_usize) {
            for coding in ALL {
                let body = encoded(coding, &text);
                prop_assert_eq!(decoded(coding, &body, size).unwrap(), &text[..]);
            }
        }
    }
}
