//! The protocol between Understudy's hook and its sidecar: one `SOCK_SEQPACKET` Unix socket, one packet
//! for a question (with the descriptors that belong to it), one packet for its answer, or as many as that takes.
//!
//! A packet is whole or it is an error, so nothing can be dribbled; a receiver owns the descriptors before
//! it looks at a single byte, so none can leak; both ends check who the other is.

pub mod annotation;
pub mod attach;
pub mod channel;
pub mod client;
pub mod directory;
pub mod generation;
pub mod guest;
pub mod id;
pub mod message;
pub mod mount;
pub mod operator;
pub mod publish;
pub mod search;
pub mod server;
pub mod status;
pub mod sys;

pub use attach::{Attach, Family, NetnsId, SocketKind, SocketRole};
pub use channel::{Channel, ChannelError, MAX_ANSWER, MAX_DESCRIPTORS, MAX_PACKET, Packet};
pub use client::{CallError, Client, Connection, Pending};
pub use directory::{ControlDirectory, DirectoryError};
pub use generation::Generation;
pub use id::{ContainerId, IdError, ImageId};
pub use message::{
    Envelope, EnvironmentVariable, HelloSecret, LoginFile, ManagedFile, Origin, PlacedFile, Placement,
    Prepare, Prepared, Reattach, Refusal, Reply, Request, User, VERSION, Write,
};
pub use mount::{HostMount, MOST_MOUNTS};
pub use operator::{
    ArmLogin, ArmedStatus, AuditFile, Decide, DecisionStatus, Effect, Explain, Explained, ExplainedRule,
    Lasting, Lines, LoginKept, LoginMade, Mark, Outcome, QuestionStatus, Watch, Watched,
};
pub use publish::{Published, published};
pub use server::{AcceptError, Listener};
pub use status::{ContainerStatus, LimitStatus, SecretStatus, Status};
