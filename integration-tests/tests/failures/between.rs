//! A process between hook and sidecar, at the sidecar's own place: the test, which passes on, answers itself, or kills.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use understudy_control::{Channel, ControlDirectory, Listener, Packet};

use crate::stand;

/// Longer than any hook waits.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// The sidecar that was there before.
pub(crate) struct Real(PathBuf);

impl Real {
    /// Passes a question on, its descriptors with it.
    pub(crate) fn ask(&self, question: &Packet) -> Packet {
        let channel = connected(&self.0);
        let descriptors: Vec<BorrowedFd<'_>> = question.descriptors.iter().map(AsFd::as_fd).collect();
        channel.send(&question.bytes, &descriptors, deadline()).unwrap();
        channel.receive(deadline()).unwrap()
    }
}

/// A connection to a socket of the control protocol.
pub(crate) fn connected(path: &Path) -> Channel {
    let socket: OwnedFd =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    Channel::new(socket)
}

/// Runs `test` while `handle` gets every caller with its question.
pub(crate) fn between<R>(
    handle: impl Fn(Channel, Packet, &Real) + Send + Sync,
    test: impl FnOnce() -> R,
) -> R {
    let control = ControlDirectory::new(&stand().paths.control);
    let hello = control.read_hello().unwrap();
    let place = Place { socket: control.socket(), aside: control.path().join("aside.sock") };
    fs::rename(&place.socket, &place.aside).unwrap();
    let listener = Listener::bind(&control, hello).unwrap();
    let real = Real(place.aside.clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let Ok(Some(channel)) = listener.accept(Duration::from_millis(50)) else { continue };
                // one that goes away without a question has none
                if let Ok(packet) = channel.receive(deadline()) {
                    handle(channel, packet, &real);
                }
            }
        });
        // also when the test panics, or the thread would be waited for for ever
        let _stop = Stop(&stop);
        test()
    })
}

/// Ends the process at the other end, which then reads and writes nothing more.
pub(crate) fn kill_caller(channel: &Channel) {
    let pid = Pid::from_raw(channel.peer_pid().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// What a question asks: `prepare`, `attach` …
pub(crate) fn kind(packet: &Packet) -> String {
    let envelope: serde_json::Value = serde_json::from_slice(&packet.bytes).unwrap();
    match &envelope["request"] {
        serde_json::Value::String(kind) => kind.clone(),
        request => request.as_object().unwrap().keys().next().unwrap().clone(),
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where the sidecar's socket is meanwhile; it comes back with the end of this value.
struct Place {
    socket: PathBuf,
    aside: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::rename(&self.aside, &self.socket).unwrap();
    }
}
