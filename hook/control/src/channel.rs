//! One packet with its descriptors, sent or received before a deadline.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::SocketRole;
use crate::sys::peer_credentials;

/// The largest packet, in bytes; well below the kernel's default send buffer (212,992), so that a packet that is
/// allowed is never refused for its size by the kernel.
pub const MAX_PACKET: usize = 128 * 1024;

/// The longest answer, in bytes. Longer than a packet, it goes in several: one that is full is followed by another.
pub const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// The most descriptors that are taken out of a packet; one with more is refused. Those of a container that publishes ports.
pub const MAX_DESCRIPTORS: usize = SocketRole::ALL.len() + SocketRole::OUTGOING.len();

/// A connected `SOCK_SEQPACKET` Unix socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What arrived. The descriptors are owned already and are closed when this is dropped.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("no answer within the deadline")]
    Deadline,
    #[error("the other side closed the connection without an answer")]
    Closed,
    #[error("packet of more than {MAX_PACKET} bytes")]
    TooLarge,
    #[error("answer of more than {MAX_ANSWER} bytes")]
    AnswerTooLong,
    #[error("packet with more than {MAX_DESCRIPTORS} descriptors")]
    TooManyDescriptors,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(errno: rustix::io::Errno) -> Self {
        match errno {
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

impl Channel {
    /// `socket` must be a connected `SOCK_SEQPACKET` socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub fn send(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        if bytes.len() > MAX_PACKET {
            return Err(ChannelError::TooLarge);
        }
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(ChannelError::TooManyDescriptors);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        loop {
            wait(&self.0, PollFlags::OUT, deadline)?;
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(ChannelError::TooManyDescriptors);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(io::Error::other("a packet was sent in part").into()),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::MSGSIZE) => return Err(ChannelError::TooLarge),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub fn receive(&self, deadline: Instant) -> Result<Packet, ChannelError> {
        let mut bytes = vec![0; MAX_PACKET + 1];
        // Room for one more than allowed, so that one too many is seen and owned instead of lost.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 1))];
        let (length, flags, descriptors) = loop {
            wait(&self.0, PollFlags::IN, deadline)?;
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            match recvmsg(&self.0, &mut parts, &mut ancillary, flags) {
                Ok(received) => {
                    let descriptors: Vec<OwnedFd> = ancillary
                        .drain()
                        .filter_map(|message| match message {
                            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                            _ => None,
                        })
                        .flatten()
                        .collect();
                    break (received.bytes, received.flags, descriptors);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        if length > MAX_PACKET || flags.contains(ReturnFlags::TRUNC) {
            return Err(ChannelError::TooLarge);
        }
        if descriptors.len() > MAX_DESCRIPTORS || flags.contains(ReturnFlags::CTRUNC) {
            return Err(ChannelError::TooManyDescriptors);
        }
        if length == 0 {
            return Err(ChannelError::Closed);
        }
        bytes.truncate(length);
        Ok(Packet { bytes, descriptors })
    }

    /// Sends JSON of any length up to [`MAX_ANSWER`].
    pub fn send_answer(&self, json: &[u8], deadline: Instant) -> Result<(), ChannelError> {
        if json.len() > MAX_ANSWER {
            return Err(ChannelError::AnswerTooLong);
        }
        let packets = json.chunks(MAX_PACKET);
        for packet in packets {
            self.send(packet, &[], deadline)?;
        }
        match json.len() % MAX_PACKET {
            // White space after JSON means nothing, and ends it here.
            0 => self.send(b" ", &[], deadline),
            _ => Ok(()),
        }
    }

    /// What [`Channel::send_answer`] sent.
    pub fn receive_answer(&self, deadline: Instant) -> Result<Vec<u8>, ChannelError> {
        let mut json = Vec::new();
        loop {
            let packet = self.receive(deadline)?;
            let last = packet.bytes.len() < MAX_PACKET;
            json.extend(packet.bytes);
            if json.len() > MAX_ANSWER + 1 {
                return Err(ChannelError::AnswerTooLong);
            }
            if last {
                return Ok(json);
            }
        }
    }

    /// Whether the other side has ended the connection.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let ended = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok() && fds[0].revents().intersects(ended)
    }

    /// The other end's uid, as this process's user namespace sees it.
    pub fn peer_uid(&self) -> io::Result<u32> {
        Ok(peer_credentials(&self.0)?.uid)
    }

    /// The other end's process (for a client the one that called listen(2)), as this process's pid namespace
    /// numbers it; 0 if it has no number there.
    pub fn peer_pid(&self) -> io::Result<i32> {
        Ok(peer_credentials(&self.0)?.pid)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `fd` is ready for `events` (or broken, which the next call on it tells).
pub(crate) fn wait(fd: impl AsFd, events: PollFlags, deadline: Instant) -> Result<(), ChannelError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ChannelError::Deadline);
        }
        let mut fds = [PollFd::new(&fd, events)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// A uid that stands for every uid without a mapping in this user namespace, and so for nobody in particular.
pub(crate) fn overflow_uid() -> u32 {
    std::fs::read_to_string("/proc/sys/kernel/overflowuid")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65534)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Channel::new(a), Channel::new(b))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        let (a, b) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        a.send(b"hello", &[file.as_fd(), file.as_fd()], soon()).unwrap();
        let packet = b.receive(soon()).unwrap();
        assert_eq!((packet.bytes.as_slice(), packet.descriptors.len()), (b"hello".as_slice(), 2));
    }

    #[test]
    fn the_largest_packet_passes_and_one_byte_more_does_not() {
        let (a, b) = pair();
        a.send(&vec![7; MAX_PACKET], &[], soon()).unwrap();
        assert_eq!(b.receive(soon()).unwrap().bytes.len(), MAX_PACKET);
        assert!(matches!(a.send(&vec![7; MAX_PACKET + 1], &[], soon()), Err(ChannelError::TooLarge)));
        // A sender that does not keep to it is refused by the receiver.
        rustix::net::send(&a, &vec![7; MAX_PACKET + 1], SendFlags::empty()).unwrap();
        assert!(matches!(b.receive(soon()), Err(ChannelError::TooLarge)));
    }

    #[test]
    fn an_answer_is_as_long_as_it_has_to_be() {
        for length in [1, MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 1, 3 * MAX_PACKET, 5 * MAX_PACKET + 7] {
            let (a, b) = pair();
            let sent = format!("\"{}\"", "x".repeat(length.saturating_sub(2)));
            let deadline = Instant::now() + Duration::from_secs(20);
            let expected: String = serde_json::from_str(&sent).unwrap_or_default();
            let sender = std::thread::spawn(move || a.send_answer(sent.as_bytes(), deadline));
            let received = b.receive_answer(deadline).unwrap();
            sender.join().unwrap().unwrap();
            assert_eq!(serde_json::from_slice::<String>(&received).unwrap_or_default(), expected, "{length}");
        }
        // One that breaks off is none.
        let (a, b) = pair();
        a.send(&vec![b'x'; MAX_PACKET], &[], soon()).unwrap();
        drop(a);
        assert!(matches!(b.receive_answer(soon()), Err(ChannelError::Closed)));
        let (a, _b) = pair();
        assert!(matches!(
            a.send_answer(&vec![b'x'; MAX_ANSWER + 1], soon()),
            Err(ChannelError::AnswerTooLong)
        ));
    }

    #[test]
    fn descriptors_of_a_refused_packet_do_not_leak() {
        let (a, b) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = vec![file.as_fd(); MAX_DESCRIPTORS + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 1))];
        let before = open_descriptors();
        for _ in 0..20 {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&many)));
            sendmsg(&a, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
            assert!(matches!(b.receive(soon()), Err(ChannelError::TooManyDescriptors)));
        }
        // Other tests of this process open a few of their own meanwhile; 20 times 9 would show.
        assert!(open_descriptors() < before + 90);
    }

    #[test]
    fn silence_ends_at_the_deadline_and_a_closed_end_is_told_apart() {
        let (a, b) = pair();
        assert!(matches!(b.receive(soon()), Err(ChannelError::Deadline)));
        a.send(b"more", &[], soon()).unwrap();
        assert!(!b.is_closed());
        drop(a);
        assert!(b.is_closed() && b.receive(soon()).is_ok());
        assert!(matches!(b.receive(soon()), Err(ChannelError::Closed)));
    }
}
