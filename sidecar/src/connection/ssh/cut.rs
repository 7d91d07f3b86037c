//! Ends a connection that tasks of a library own.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};

use socket2::Socket;

/// Once it is dropped, neither side reads or writes any more, and the tasks of the connection end.
pub(super) struct Cut(Socket);

impl Cut {
    pub(super) fn of(stream: &impl AsFd) -> io::Result<Self> {
        let descriptor: OwnedFd = stream.as_fd().try_clone_to_owned()?;
        Ok(Self(Socket::from(descriptor)))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.shutdown(Shutdown::Both));
    }
}
