//! A frame's head, RFC 6455 section 5.2.

/// Whose frames they are: a client masks, a server does not (section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) fin: bool,
    pub(super) kind: Kind,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Continuation,
    Text,
    Binary,
    /// Close, ping, pong: at most 125 bytes, in one frame.
    Control,
}

/// Why a connection must end: nobody can say what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("a WebSocket frame with a reserved bit, though no extension was agreed on")]
    ReservedBit,
    #[error("a WebSocket frame with the reserved opcode {0:#x}")]
    ReservedOpcode(u8),
    #[error("a WebSocket frame of a client without a mask")]
    NotMasked,
    #[error("a WebSocket frame of a server with a mask")]
    Masked,
    #[error("a WebSocket control frame that is fragmented or has more than 125 bytes")]
    Control,
    #[error("a WebSocket frame whose length is not written in the shortest way, or has more than 63 bits")]
    Length,
    #[error("a WebSocket continuation without a message, or a message within another")]
    Fragment,
    #[error("too many WebSocket frames before it is clear whether they hold a credential")]
    TooMany,
    #[error("a real credential in a WebSocket message cannot be replaced without changing a frame's length")]
    Replaced,
}

/// The head at the start of `bytes` and its size; None if more is needed.
pub(super) fn parse(bytes: &[u8], sender: Sender) -> Result<Option<(Head, usize)>, BadFrame> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(BadFrame::ReservedBit);
    }
    let fin = first & 0x80 != 0;
    let kind = match first & 15 {
        0 => Kind::Continuation,
        1 => Kind::Text,
        2 => Kind::Binary,
        8..=10 => Kind::Control,
        other => return Err(BadFrame::ReservedOpcode(other)),
    };
    let Some(&second) = bytes.get(1) else { return Ok(None) };
    match (sender, second & 0x80 != 0) {
        (Sender::Client, false) => return Err(BadFrame::NotMasked),
        (Sender::Server, true) => return Err(BadFrame::Masked),
        _ => {}
    }
    let short = second & 0x7f;
    if kind == Kind::Control && (!fin || short > 125) {
        return Err(BadFrame::Control);
    }
    let (wide, least) = match short {
        126 => (2, 126),
        127 => (8, 1 << 16),
        _ => (0, 0),
    };
    let Some(extended) = bytes.get(2..2 + wide) else { return Ok(None) };
    let length = match wide {
        0 => u64::from(short),
        _ => extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
    };
    if length < least || length >> 63 != 0 {
        return Err(BadFrame::Length);
    }
    let size = 2 + wide;
    match sender {
        Sender::Server => Ok(Some((Head { fin, kind, mask: None, length }, size))),
        Sender::Client => {
            let mask = bytes.get(size..size + 4).and_then(|mask| mask.try_into().ok());
            Ok(mask.map(|mask| (Head { fin, kind, mask: Some(mask), length }, size + 4)))
        }
    }
}
