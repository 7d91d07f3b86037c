//! WebSocket frames (RFC 6455 section 5) of one direction, searched on their way. Extensions are declined, so whatever
//! uses a reserved bit is not well-formed.

mod head;
mod side;

pub use head::{BadFrame, Sender};
pub use side::{Replacing, Side};

#[cfg(test)]
mod tests;
