//! One direction of a WebSocket: frames in, the same frames out, their payload replaced and watched.
//!
//! A message is searched as one text however it is fragmented, and its end holds nothing back. Lengths and masks of frames
//! stay, so what is held back at the end of a fragment keeps back the frames behind it, and nothing else.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::head::{self, BadFrame, Head, Kind, Sender};
use crate::credentials::scrub::{Detector, Patterns, Replacer};
use crate::proxy::framed::Equal;

/// Frames that wait for what is held back.
const WAITING: usize = 256;

/// Which messages have their values replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacing {
    All,
    /// Text alone.
    Text,
}

#[derive(Debug)]
pub struct Side {
    sender: Sender,
    replacing: Replacing,
    patterns: Arc<Patterns>,
    watched: Arc<Patterns>,
    replaced: Equal,
    detector: Detector,
    found: Vec<usize>,
    control_replaced: u64,
    state: State,
    message: Option<Kind>,
    /// What goes on, in order; payload of data frames comes from `ready`.
    waiting: VecDeque<Item>,
    ready: BytesMut,
}

#[derive(Debug)]
enum State {
    /// The beginning of a head.
    Head(BytesMut),
    Data {
        head: Head,
        at: u64,
    },
    Control {
        head: Head,
        bytes: BytesMut,
        payload: BytesMut,
    },
}

#[derive(Debug)]
enum Item {
    Control(Bytes),
    Data { head: Bytes, mask: Option<[u8; 4]>, length: u64, at: u64 },
}

impl Side {
    pub fn new(
        sender: Sender,
        replacing: Replacing,
        patterns: Arc<Patterns>,
        watched: Arc<Patterns>,
    ) -> Self {
        Self {
            sender,
            replacing,
            replaced: Equal::new(Replacer::new(Arc::clone(&patterns))),
            detector: Detector::new(Arc::clone(&watched)),
            patterns,
            watched,
            found: Vec::new(),
            control_replaced: 0,
            state: State::Head(BytesMut::new()),
            message: None,
            waiting: VecDeque::new(),
            ready: BytesMut::new(),
        }
    }

    /// What can go on now. Nothing of it may, and nothing more, after an error.
    pub fn push(&mut self, mut chunk: Bytes) -> Result<Bytes, BadFrame> {
        let mut out = BytesMut::with_capacity(chunk.len() + self.ready.len());
        while !chunk.is_empty() {
            match &mut self.state {
                State::Head(bytes) => {
                    bytes.extend_from_slice(&chunk.split_to(1));
                    if let Some((head, _)) = head::parse(bytes, self.sender)? {
                        let bytes = std::mem::take(bytes);
                        self.begin(head, bytes)?;
                    }
                }
                State::Data { head, at } => {
                    let part = chunk.split_to(at_most(head.length - *at, chunk.len()));
                    let (head, from) = (*head, *at);
                    *at += part.len() as u64;
                    let ended = *at == head.length;
                    self.data(head, from, part, ended)?;
                }
                State::Control { head, payload, .. } => {
                    let part = chunk.split_to(at_most(head.length - payload.len() as u64, chunk.len()));
                    payload.extend_from_slice(&part);
                    self.end_of_control()?;
                }
            }
            self.emit(&mut out);
        }
        Ok(out.freeze())
    }

    /// What was watched for and came by since the last call, by owner.
    pub fn found(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.found)
    }

    /// How many values were replaced so far.
    pub fn count(&self) -> u64 {
        self.replaced.count() + self.control_replaced
    }

    fn begin(&mut self, head: Head, bytes: BytesMut) -> Result<(), BadFrame> {
        if self.waiting.len() >= WAITING {
            return Err(BadFrame::TooMany);
        }
        if head.kind == Kind::Control {
            self.state = State::Control { head, bytes, payload: BytesMut::new() };
            return self.end_of_control();
        }
        match (head.kind, self.message) {
            (Kind::Continuation, None) | (Kind::Text | Kind::Binary, Some(_)) => {
                return Err(BadFrame::Fragment);
            }
            (Kind::Continuation, Some(_)) => {}
            (kind, None) => self.message = Some(kind),
            (Kind::Control, Some(_)) => {}
        }
        let item = Item::Data { head: bytes.freeze(), mask: head.mask, length: head.length, at: 0 };
        self.waiting.push_back(item);
        self.state = State::Data { head, at: 0 };
        if head.length == 0 { self.data(head, 0, Bytes::new(), true) } else { Ok(()) }
    }

    fn data(&mut self, head: Head, from: u64, part: Bytes, ended: bool) -> Result<(), BadFrame> {
        let payload = masked(part, head.mask, from);
        self.found.extend(self.detector.push(payload.clone()));
        let replace = self.replacing == Replacing::All || self.message == Some(Kind::Text);
        let passed = if replace { self.replaced.push(payload) } else { payload };
        self.ready.extend_from_slice(&passed);
        if !ended {
            return Ok(());
        }
        if head.fin {
            self.found.extend(self.detector.finish());
            self.ready.extend_from_slice(&self.replaced.finish().map_err(|_| BadFrame::Replaced)?);
            self.message = None;
        }
        self.state = State::Head(BytesMut::new());
        Ok(())
    }

    /// Goes on once all of its payload is there.
    fn end_of_control(&mut self) -> Result<(), BadFrame> {
        let State::Control { head, bytes, payload } = &mut self.state else { return Ok(()) };
        if (payload.len() as u64) < head.length {
            return Ok(());
        }
        let mut whole = std::mem::take(bytes);
        let payload = masked(std::mem::take(payload).freeze(), head.mask, 0);
        let mut detector = Detector::new(Arc::clone(&self.watched));
        self.found.extend(detector.push(payload.clone()));
        self.found.extend(detector.finish());
        let mut replaced = Equal::new(Replacer::new(Arc::clone(&self.patterns)));
        let passed = match self.replacing {
            Replacing::All => {
                let first = replaced.push(payload);
                let rest = replaced.finish().map_err(|_| BadFrame::Replaced)?;
                Bytes::from([first, rest].concat())
            }
            Replacing::Text => payload,
        };
        self.control_replaced += replaced.count();
        whole.extend_from_slice(&masked(passed, head.mask, 0));
        self.waiting.push_back(Item::Control(whole.freeze()));
        self.state = State::Head(BytesMut::new());
        Ok(())
    }

    fn emit(&mut self, out: &mut BytesMut) {
        while let Some(item) = self.waiting.front_mut() {
            match item {
                Item::Control(bytes) => out.extend_from_slice(bytes),
                Item::Data { head, mask, length, at } => {
                    out.extend_from_slice(&head.split_off(0));
                    let part = self.ready.split_to(at_most(*length - *at, self.ready.len()));
                    let size = part.len() as u64;
                    out.extend_from_slice(&masked(part.freeze(), *mask, *at));
                    *at += size;
                    if at < length {
                        return;
                    }
                }
            }
            self.waiting.pop_front();
        }
    }
}

fn at_most(left: u64, available: usize) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}

/// Section 5.3: masking and unmasking are the same. `at` is where in its frame's payload the part begins.
fn masked(part: Bytes, mask: Option<[u8; 4]>, at: u64) -> Bytes {
    let Some(mut mask) = mask else { return part };
    mask.rotate_left((at % 4) as usize);
    part.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
}
