//! The hook's and the operator's side: one question, one answer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::channel::{overflow_uid, wait};
use crate::{
    Channel, ChannelError, ControlDirectory, DirectoryError, Envelope, HelloSecret, Refusal, Reply, Request,
    VERSION,
};

/// Knows where the sidecar listens; each call is a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    directory: ControlDirectory,
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No sidecar, or not one that may be trusted.
    #[error("the sidecar cannot be reached: {0}")]
    Directory(#[from] DirectoryError),
    #[error(
        "the sidecar cannot be reached: {path}: {source} (is it running? start it, then run: understudy-hook doctor)"
    )]
    Connect { path: std::path::PathBuf, source: io::Error },
    #[error("the process behind the control socket has uid {found}, expected {expected}")]
    Peer { found: u32, expected: u32 },
    #[error("the sidecar did not answer: {0}")]
    Channel(#[from] ChannelError),
    #[error("the sidecar's answer was not understood: {0} (are hook and sidecar of one version?)")]
    Garbage(#[from] serde_json::Error),
    #[error("the sidecar answered another question")]
    Unexpected,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Client {
    pub fn new(directory: ControlDirectory, patience: Duration) -> Self {
        Self { directory, patience }
    }

    /// Sends `request` with `descriptors`. A refusal comes back as `CallError::Refused`.
    pub fn call(&self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<Reply, CallError> {
        self.connect()?.ask(request, descriptors)
    }

    /// Connects without asking yet, for a caller that wants to know first who is at the other end.
    pub fn connect(&self) -> Result<Connection, CallError> {
        let deadline = Instant::now() + self.patience;
        let channel = self.open(deadline)?;
        let hello = self.directory.read_hello()?;
        Ok(Connection { channel, hello, deadline })
    }

    fn open(&self, deadline: Instant) -> Result<Channel, CallError> {
        self.directory.check_socket()?;
        let path = self.directory.socket();
        let connect_error = |source: io::Error| CallError::Connect { path: path.clone(), source };
        let address = SocketAddrUnix::new(&path).map_err(|e| connect_error(e.into()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| connect_error(e.into()))?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                // The backlog is full: the sidecar is alive and busy.
                Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::INPROGRESS) => {
                    wait(&socket, PollFlags::OUT, deadline)?;
                    sockopt::socket_error(&socket)
                        .map_err(|e| connect_error(e.into()))?
                        .map_err(|e| connect_error(e.into()))?;
                    break;
                }
                Err(errno) => return Err(connect_error(errno.into())),
            }
        }
        let channel = Channel::new(socket);
        let found = channel.peer_uid().map_err(connect_error)?;
        let expected = rustix::process::geteuid().as_raw();
        if found != expected || found == overflow_uid() {
            return Err(CallError::Peer { found, expected });
        }
        Ok(channel)
    }
}

/// A connection to the sidecar, good for one question within the client's patience.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    hello: HelloSecret,
    deadline: Instant,
}

impl Connection {
    /// The sidecar's process, as this process's pid namespace numbers it; 0 if it has no number there.
    pub fn peer_pid(&self) -> io::Result<i32> {
        self.channel.peer_pid()
    }

    pub fn ask(self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<Reply, CallError> {
        self.send(request, descriptors)?.answer()
    }

    /// Asks, and leaves the answer for later.
    pub fn send(self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<Pending, CallError> {
        let Self { channel, hello, deadline } = self;
        let envelope = Envelope { version: VERSION, hello, request };
        channel.send(&serde_json::to_vec(&envelope)?, descriptors, deadline)?;
        Ok(Pending { channel, deadline })
    }
}

/// An answer that is on its way. Its descriptor is readable once it is there, or never comes.
#[derive(Debug)]
pub struct Pending {
    channel: Channel,
    deadline: Instant,
}

impl Pending {
    /// Waits for it, within the client's patience.
    pub fn answer(self) -> Result<Reply, CallError> {
        match serde_json::from_slice(&self.channel.receive_answer(self.deadline)?)? {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
