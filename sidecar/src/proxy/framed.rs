//! Replacing inside of frames, whose lengths were told before.

use bytes::Bytes;

use crate::credentials::scrub::Replacer;

/// A value and its stand-in have one length; only with characters that must be escaped may what is written not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a real credential in it cannot be replaced without changing the length of a frame")]
pub(super) struct LengthChanged;

/// Of one message after another, each with as many bytes as before.
#[derive(Debug)]
pub(super) struct Equal {
    replacer: Replacer,
    taken: u64,
    given: u64,
}

impl Equal {
    pub(super) fn new(replacer: Replacer) -> Self {
        Self { replacer, taken: 0, given: 0 }
    }

    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        self.taken += chunk.len() as u64;
        let out = self.replacer.push(chunk);
        self.given += out.len() as u64;
        out
    }

    /// The rest of a message.
    pub(super) fn finish(&mut self) -> Result<Bytes, LengthChanged> {
        let out = self.replacer.finish();
        self.given += out.len() as u64;
        if self.given == self.taken { Ok(out) } else { Err(LengthChanged) }
    }

    pub(super) fn count(&self) -> u64 {
        self.replacer.replaced()
    }
}
