//! The search through one body, or one message: what can be told at once passes at once.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::patterns::{Found, Patterns};

/// Passes a stream on with every known value replaced. Holds back only what may be the beginning of one.
#[derive(Debug)]
pub struct Replacer {
    patterns: Arc<Patterns>,
    held: Held,
    replaced: u64,
}

impl Replacer {
    pub fn new(patterns: Arc<Patterns>) -> Self {
        Self { patterns, held: Held::default(), replaced: 0 }
    }

    /// What can be passed on now. A chunk without the beginning of a value is passed on without a copy.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let text = self.held.with(chunk);
        self.run(text, false)
    }

    /// The rest. What comes afterwards is another stream.
    pub fn finish(&mut self) -> Bytes {
        let text = self.held.take();
        self.run(text, true)
    }

    /// From now on other values are searched for, also in what is held back.
    pub fn search_for(&mut self, patterns: Arc<Patterns>) {
        self.patterns = patterns;
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.0.len()
    }

    /// How many values were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    fn run(&mut self, mut text: Bytes, last: bool) -> Bytes {
        let mut out = Vec::new();
        let (mut at, end) = (0, text.len());
        let keep = loop {
            match self.patterns.next(&text, at, last) {
                Found::Nothing => break end,
                Found::Undecided(from) => break from,
                Found::Match(from, length, pattern) => {
                    let matched = from..from + length;
                    out.extend_from_slice(text.get(at..from).unwrap_or_default());
                    self.patterns.rewrite(pattern, text.get(matched.clone()).unwrap_or_default(), &mut out);
                    self.replaced += 1;
                    at = matched.end;
                }
            }
        };
        self.held.keep(text.split_off(keep));
        if out.is_empty() {
            return text;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out.into()
    }
}

/// Watches a stream go by. Each find is told as soon as its last byte is there.
#[derive(Debug)]
pub struct Detector {
    patterns: Arc<Patterns>,
    held: Held,
}

impl Detector {
    pub fn new(patterns: Arc<Patterns>) -> Self {
        Self { patterns, held: Held::default() }
    }

    /// The owners of the values that end in `chunk`, in order.
    pub fn push(&mut self, chunk: Bytes) -> Vec<usize> {
        let text = self.held.with(chunk);
        self.run(text, false)
    }

    /// The owners of values that could have gone on.
    pub fn finish(&mut self) -> Vec<usize> {
        let text = self.held.take();
        self.run(text, true)
    }

    fn run(&mut self, mut text: Bytes, last: bool) -> Vec<usize> {
        let mut owners = Vec::new();
        let mut at = 0;
        loop {
            match self.patterns.next(&text, at, last) {
                Found::Nothing => return owners,
                Found::Undecided(from) => {
                    self.held.keep(text.split_off(from));
                    return owners;
                }
                Found::Match(from, length, pattern) => {
                    owners.extend(self.patterns.owner(pattern));
                    at = from + length;
                }
            }
        }
    }
}

/// The beginning of what may be a value.
#[derive(Default)]
struct Held(BytesMut);

impl Held {
    /// It, and what follows.
    fn with(&mut self, chunk: Bytes) -> Bytes {
        if self.0.is_empty() {
            return chunk;
        }
        self.0.extend_from_slice(&chunk);
        self.take()
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.0).freeze()
    }

    /// A copy: a few bytes must not keep a whole chunk in memory.
    fn keep(&mut self, rest: Bytes) {
        self.0 = BytesMut::from(rest.as_ref());
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({} bytes)", self.0.len())
    }
}
