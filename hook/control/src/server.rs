//! The sidecar's side: a listener that lets in only its own user with the hello secret.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use crate::channel::{overflow_uid, wait};
use crate::{
    Channel, ChannelError, ControlDirectory, DirectoryError, Envelope, HelloSecret, Refusal, Reply, Request,
    VERSION,
};

#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    hello: HelloSecret,
}

/// Why a caller was not listened to. All but `Socket` concern that caller only.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error("control socket: {0}")]
    Socket(io::Error),
    #[error("a process of uid {found} connected to the control socket, expected {expected}")]
    Peer { found: u32, expected: u32 },
    #[error("control request: {0}")]
    Channel(#[from] ChannelError),
    #[error("control request was not understood: {0}")]
    Garbage(#[from] serde_json::Error),
    #[error("control request of protocol version {found}, this sidecar speaks {VERSION}")]
    Version { found: u32 },
    #[error("control request without this sidecar's hello secret")]
    Hello,
}

impl Listener {
    /// Takes the directory over: a socket that is left there by an earlier sidecar is replaced.
    pub fn bind(directory: &ControlDirectory, hello: HelloSecret) -> Result<Self, DirectoryError> {
        directory.create()?;
        let path = directory.socket();
        let io_error = |source: io::Error| DirectoryError::Io { path: path.clone(), source };
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error(e)),
            _ => {}
        }
        directory.write_hello(&hello)?;
        let address = SocketAddrUnix::new(&path).map_err(|e| io_error(e.into()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| io_error(e.into()))?;
        let umask = rustix::process::umask(rustix::fs::Mode::from(0o177));
        let bound = bind(&socket, &address);
        rustix::process::umask(umask);
        bound.map_err(|e| io_error(e.into()))?;
        listen(&socket, 64).map_err(|e| io_error(e.into()))?;
        directory.check_socket()?;
        Ok(Self { socket, hello })
    }

    /// Waits at most `patience` for a caller; `None` when nobody came.
    pub fn accept(&self, patience: Duration) -> Result<Option<Channel>, AcceptError> {
        match wait(&self.socket, PollFlags::IN, Instant::now() + patience) {
            Err(ChannelError::Deadline) => return Ok(None),
            Err(error) => return Err(AcceptError::Socket(io::Error::other(error))),
            Ok(()) => {}
        }
        let channel = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Channel::new(socket),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {
                return Ok(None);
            }
            Err(errno) => return Err(AcceptError::Socket(errno.into())),
        };
        let found = channel.peer_uid().map_err(AcceptError::Socket)?;
        let expected = rustix::process::geteuid().as_raw();
        if found != expected || found == overflow_uid() {
            return Err(AcceptError::Peer { found, expected });
        }
        Ok(Some(channel))
    }

    /// The caller's question, with the descriptors that came with it. Whatever is wrong with it has been answered.
    pub fn question(
        &self,
        channel: &Channel,
        deadline: Instant,
    ) -> Result<(Request, Vec<OwnedFd>), AcceptError> {
        let packet = channel.receive(deadline)?;
        match parse(&packet.bytes, &self.hello) {
            Ok(request) => Ok((request, packet.descriptors)),
            Err(error) => {
                let refusal =
                    Refusal::new(error.to_string(), "use the understudy-hook of this sidecar's version");
                // The caller may be gone; what matters is what was wrong with it.
                let _ = answer(channel, &Reply::Refused(refusal), deadline);
                Err(error)
            }
        }
    }
}

/// Sends the answer, which ends the exchange.
pub fn answer(channel: &Channel, reply: &Reply, deadline: Instant) -> Result<(), ChannelError> {
    let bytes = serde_json::to_vec(reply).map_err(io::Error::other)?;
    channel.send_answer(&bytes, deadline)
}

/// Bytes from the socket to a request, or why not. The version is looked at first, since another version may
/// spell everything else differently.
pub fn parse(bytes: &[u8], hello: &HelloSecret) -> Result<Request, AcceptError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(AcceptError::Version { found: version });
    }
    let envelope: Envelope = serde_json::from_slice(bytes)?;
    if !envelope.hello.matches(hello) {
        return Err(AcceptError::Hello);
    }
    Ok(envelope.request)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::{CallError, Client};

    fn hello(digit: &str) -> HelloSecret {
        HelloSecret::from_hex(&digit.repeat(64)).unwrap()
    }

    fn id() -> crate::ContainerId {
        "c".repeat(64).parse().unwrap()
    }

    fn scratch() -> (tempfile::TempDir, ControlDirectory) {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDirectory::new(dir.path().join("control"));
        (dir, control)
    }

    const PATIENCE: Duration = Duration::from_millis(500);

    #[test]
    fn a_question_and_its_descriptors_reach_the_sidecar_and_the_answer_comes_back() {
        let (_dir, control) = scratch();
        let listener = Listener::bind(&control, hello("a")).unwrap();
        let server = thread::spawn(move || {
            let channel = listener.accept(PATIENCE).unwrap().unwrap();
            let deadline = Instant::now() + PATIENCE;
            let (request, descriptors) = listener.question(&channel, deadline).unwrap();
            answer(&channel, &Reply::Done, deadline).unwrap();
            (request, descriptors.len())
        });
        let file = std::fs::File::open("/dev/null").unwrap();
        let reply = Client::new(control, PATIENCE).call(Request::Detach { id: id() }, &[file.as_fd()]);
        assert_eq!(reply.unwrap(), Reply::Done);
        assert_eq!(server.join().unwrap(), (Request::Detach { id: id() }, 1));
    }

    /// The sidecar sits in a pid namespace of its own, in which the hook has no number.
    #[test]
    fn a_caller_from_outside_of_the_listeners_pid_namespace_is_heard() {
        const DIRECTORY: &str = "UNDERSTUDY_TEST_CONTROL";
        if let Some(directory) = std::env::var_os(DIRECTORY) {
            let listener = Listener::bind(&ControlDirectory::new(directory), hello("a")).unwrap();
            let channel = listener.accept(Duration::from_secs(20)).unwrap().unwrap();
            assert_eq!(channel.peer_pid().unwrap(), 0);
            let deadline = Instant::now() + Duration::from_secs(20);
            listener.question(&channel, deadline).unwrap();
            return answer(&channel, &Reply::Done, deadline).unwrap();
        }
        let (_dir, control) = scratch();
        let mut listener = std::process::Command::new("unshare")
            .args(["-rpf", "--kill-child", "--"])
            .arg(std::env::current_exe().unwrap())
            .arg("--exact")
            .arg("server::tests::a_caller_from_outside_of_the_listeners_pid_namespace_is_heard")
            .env(DIRECTORY, control.path())
            .spawn()
            .unwrap();
        let client = Client::new(control, Duration::from_secs(20));
        let reply = loop {
            match client.call(Request::Status, &[]) {
                Err(CallError::Directory(_) | CallError::Connect { .. })
                    if listener.try_wait().unwrap().is_none() =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                reply => break reply,
            }
        };
        assert!(listener.wait().unwrap().success());
        assert_eq!(reply.unwrap(), Reply::Done);
    }

    #[test]
    fn the_socket_alone_is_not_enough() {
        let (_dir, control) = scratch();
        let listener = Listener::bind(&control, hello("a")).unwrap();
        control.write_hello(&hello("b")).unwrap();
        let server = thread::spawn(move || {
            let channel = listener.accept(PATIENCE).unwrap().unwrap();
            listener.question(&channel, Instant::now() + PATIENCE).map(|_| ())
        });
        let error = Client::new(control, PATIENCE).call(Request::Status, &[]).unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error}");
        assert!(matches!(server.join().unwrap(), Err(AcceptError::Hello)));
    }

    #[test]
    fn without_a_sidecar_the_error_says_so() {
        let (_dir, control) = scratch();
        let client = Client::new(control.clone(), PATIENCE);
        assert!(matches!(client.call(Request::Status, &[]), Err(CallError::Directory(_))));
        drop(Listener::bind(&control, hello("a")).unwrap());
        let error = client.call(Request::Status, &[]).unwrap_err();
        assert!(error.to_string().contains("is it running"), "{error}");
    }

    #[test]
    fn a_silent_sidecar_and_a_garbling_one_are_errors() {
        let (_dir, control) = scratch();
        let listener = Listener::bind(&control, hello("a")).unwrap();
        let client = Client::new(control, Duration::from_millis(100));
        let error = client.call(Request::Status, &[]).unwrap_err();
        assert!(matches!(error, CallError::Channel(ChannelError::Deadline)), "{error}");
        let server = thread::spawn(move || {
            let _silent = listener.accept(PATIENCE).unwrap();
            let channel = listener.accept(PATIENCE).unwrap().unwrap();
            let deadline = Instant::now() + PATIENCE;
            channel.receive(deadline).unwrap();
            channel.send(b"{\"ok\":true}", &[], deadline).unwrap();
        });
        assert!(matches!(client.call(Request::Status, &[]), Err(CallError::Garbage(_))));
        server.join().unwrap();
    }

    #[test]
    fn another_version_is_named_before_anything_else_is_read() {
        let found = VERSION + 1;
        let bytes = format!(r#"{{"version":{found},"hello":5,"request":"something-new"}}"#);
        let error = parse(bytes.as_bytes(), &hello("a")).unwrap_err();
        assert!(matches!(error, AcceptError::Version { found: told } if told == found), "{error}");
    }

    #[test]
    fn unknown_fields_and_requests_are_refused() {
        let h = "a".repeat(64);
        for request in [r#"{"detach":{"id":"x"}}"#, r#""widen""#, r#"{"status":{"extra":1}}"#] {
            let bytes = format!(r#"{{"version":{VERSION},"hello":"{h}","request":{request}}}"#);
            assert!(
                matches!(parse(bytes.as_bytes(), &hello("a")), Err(AcceptError::Garbage(_))),
                "{request}"
            );
        }
        let bytes = format!(r#"{{"version":{VERSION},"hello":"{h}","request":"status","more":1}}"#);
        assert!(matches!(parse(bytes.as_bytes(), &hello("a")), Err(AcceptError::Garbage(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_and_never_a_request(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse(&bytes, &hello("a")).is_err());
        }

        #[test]
        fn a_damaged_request_never_passes_without_the_hello(at in 0usize..200, byte in any::<u8>()) {
            let mut bad = serde_json::to_vec(&Envelope {
                version: VERSION, hello: hello("b"), request: Request::Detach { id: id() },
            }).unwrap();
            let at = at % bad.len();
            bad[at] = byte;
            prop_assert!(parse(&bad, &hello("a")).is_err());
        }
    }
}
