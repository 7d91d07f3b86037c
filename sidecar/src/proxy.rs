//! Requests, one after another or many at once, with pingora as the engine between two streams of ours: what a
//! container sends comes in decrypted and named, and only an address that was resolved for a permit is dialled.

mod answered;
mod bodies;
mod coding;
mod dial;
mod downstream;
mod engine;
mod failure;
mod framed;
mod gateway;
mod grpc;
mod h2_limits;
mod headers;
mod held_body;
mod judge;
mod kept;
mod minted_answer;
mod page;
mod pool_key;
mod record;
mod renewal;
mod request;
mod request_body;
mod response;
mod searches;
mod stream;
mod token_endpoint;
pub mod websocket;

pub use answered::answered;
pub use downstream::{Downstream, Wire};
pub use gateway::{Gateway, GatewayError, GatewayParts, Limits};
pub(crate) use held_body::HELD_AT_ONCE;
pub use kept::Kept;
pub use stream::{Conn, Replay};
