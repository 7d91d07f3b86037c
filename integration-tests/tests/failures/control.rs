//! The control channel: whoever is at the other end, hook and sidecar say precisely what is wrong, and go on.

use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::net::{SendFlags, SocketType, send};
use understudy_control::{
    Attach, CallError, Channel, ChannelError, Client, ContainerId, ControlDirectory, Envelope, MAX_PACKET,
    NetnsId, Prepare, Reply, Request, SocketRole, User, VERSION,
};
use understudy_integration_tests::podman::{Outcome, run};
use understudy_integration_tests::stand::{Agent, as_owner};

use crate::between::{between, connected, deadline, kind};
use crate::{assert_closed, stand};

/// What the container said, and what `understudy-hook why` says.
fn told(mut outcome: Outcome) -> Outcome {
    let why = run(Command::new(stand().paths.program("understudy-hook")).arg("why"), b"").unwrap();
    outcome.stderr.push_str(&why.stdout);
    outcome
}

fn agent() -> Outcome {
    Agent::generic().run(&["echo", "it ran"]).unwrap()
}

fn assert_works() {
    let outcome = agent();
    assert!(outcome.stdout.contains("it ran"), "{}", told(outcome).text());
}

#[test]
fn a_sidecar_that_answers_wrongly_starts_nothing_and_is_told_apart() {
    stand();
    let other_version = br#"{"refused":{"reason":"control request of protocol version 1, this sidecar speaks 7","remedy":"use the understudy-hook of this sidecar's version"}}"#;
    let answers: [(&str, Vec<u8>, &str); 6] = [
        ("garbage", b"\x16\x03\x01garbage".to_vec(), "not understood"),
        ("an empty object", b"{}".to_vec(), "not understood"),
        ("an unknown answer", br#"{"prepared":{"more":1}}"#.to_vec(), "not understood"),
        ("an answer to another question", br#""done""#.to_vec(), "another question"),
        ("too much", vec![b' '; MAX_PACKET + 1], "packet of more than"),
        ("another version", other_version.to_vec(), "this sidecar speaks 7"),
    ];
    for wanted in ["prepare", "attach"] {
        for (name, answer, reason) in &answers {
            // what an Attach expects
            if wanted == "attach" && name.contains("another question") {
                continue;
            }
            let outcome = between(
                |channel: Channel, question, real| {
                    if kind(&question) != wanted {
                        let answer = real.ask(&question);
                        return channel.send(&answer.bytes, &[], deadline()).unwrap();
                    }
                    send(&channel, answer, SendFlags::NOSIGNAL).unwrap();
                },
                agent,
            );
            assert_closed(&told(outcome), reason);
        }
    }
    assert_works();
}

#[test]
fn a_sidecar_that_says_nothing_is_not_waited_for_for_ever() {
    stand();
    for wanted in ["prepare", "attach"] {
        let held = std::sync::Mutex::new(Vec::new());
        let outcome = between(
            |channel: Channel, question, real| {
                if kind(&question) == wanted {
                    return held.lock().unwrap().push(channel);
                }
                let answer = real.ask(&question);
                channel.send(&answer.bytes, &[], deadline()).unwrap();
            },
            agent,
        );
        assert_closed(&told(outcome), "no answer within the deadline");
        let outcome = between(
            |channel: Channel, question, real| {
                if kind(&question) != wanted {
                    let answer = real.ask(&question);
                    channel.send(&answer.bytes, &[], deadline()).unwrap();
                }
            },
            agent,
        );
        assert_closed(&told(outcome), "closed the connection without an answer");
    }
    assert_works();
}

/// Changes something about the control directory as its owner may, tries a start, and changes it back.
fn with(change: &[&str], back: &[&str]) -> Outcome {
    let owner = |command: &[&str]| {
        run(as_owner(command[0]).args(&command[1..]), b"").unwrap().success().unwrap();
    };
    owner(change);
    let outcome = agent();
    owner(back);
    told(outcome)
}

#[test]
fn a_channel_that_another_user_could_have_made_is_not_trusted() {
    let control = ControlDirectory::new(&stand().paths.control);
    let directory = control.path().to_str().unwrap();
    let (socket, hello) = (control.socket(), control.hello());
    let (socket, hello) = (socket.to_str().unwrap(), hello.to_str().unwrap());
    for path in [socket, hello, directory] {
        let outcome = with(&["chown", "5:5", path], &["chown", "0:0", path]);
        assert_closed(&outcome, "belongs to uid 5, expected 0");
    }
    for (path, mode, private) in
        [(socket, "0666", "0600"), (hello, "0644", "0600"), (directory, "0750", "0700")]
    {
        let outcome = with(&["chmod", mode, path], &["chmod", private, path]);
        assert_closed(&outcome, &format!("has mode {mode}"));
    }
    for path in [socket, hello, directory] {
        let aside = format!("{path}.aside");
        let link = format!("mv {path} {aside} && ln -s {aside} {path}");
        let back = format!("rm {path} && mv {aside} {path}");
        let outcome = with(&["sh", "-c", &link], &["sh", "-c", &back]);
        assert_ne!(outcome.code, Some(0), "{path}: {}", outcome.text());
        assert!(
            outcome.text().contains("is not a") || outcome.text().contains("symbolic"),
            "{}",
            outcome.text()
        );
    }
    assert_works();
}

// ------------------------------------------------------------------------------------- a hook that is none

fn client() -> Client {
    Client::new(ControlDirectory::new(&stand().paths.control), Duration::from_secs(10))
}

fn id(number: usize) -> ContainerId {
    format!("{number:064x}").parse().unwrap()
}

fn prepare(number: usize) -> Request {
    let annotations = [("understudy.harness", "generic"), ("understudy.policy", "world")];
    Request::Prepare(Box::new(Prepare {
        id: id(number),
        name: Some(format!("fake-{number}")),
        image: None,
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        user: User { uid: 0, gid: 0 },
        env: [].into(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    }))
}

fn tcp(address: &str) -> OwnedFd {
    let listener = TcpListener::bind(address).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&listener, false).unwrap();
    listener.into()
}

fn udp(address: &str) -> OwnedFd {
    UdpSocket::bind(address).unwrap().into()
}

/// As the hook makes them, but of this process's own network namespace.
fn sockets() -> Vec<OwnedFd> {
    let (v4, v6) = ("127.0.0.1:0", "[::1]:0");
    let port =
        |socket: &OwnedFd| SocketAddr::try_from(rustix::net::getsockname(socket).unwrap()).unwrap().port();
    loop {
        let sockets = vec![tcp(v4), udp(v4), tcp(v4), tcp(v6), udp(v6), tcp(v6)];
        let ports: HashSet<u16> = sockets.iter().map(port).collect();
        // the kernel chooses for each family alone
        if ports.len() == sockets.len() {
            return sockets;
        }
    }
}

fn attach(number: usize, cookie: u64) -> Request {
    let netns = NetnsId { device: 4, inode: 1, cookie };
    Request::Attach(Attach { id: id(number), netns, sockets: SocketRole::ALL.to_vec() })
}

fn cookie() -> u64 {
    understudy_control::sys::netns_cookie(udp("127.0.0.1:0")).unwrap()
}

fn refusal(request: Request, descriptors: &[OwnedFd]) -> String {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    match client().call(request, &descriptors) {
        Err(CallError::Refused(refusal)) => refusal.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Open descriptors of the sidecar's process, and its largest resident size in KiB.
fn footprint() -> (usize, usize) {
    let pid = stand().sidecar_pid().unwrap();
    let script = format!("ls /proc/{pid}/fd | wc -l; awk '/^VmHWM:/ {{ print $2 }}' /proc/{pid}/status");
    let text = run(as_owner("sh").args(["-c", &script]), b"").unwrap().success().unwrap();
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
    let [descriptors, memory] = numbers[..] else { panic!("{text}") };
    (descriptors, memory)
}

#[test]
fn descriptors_that_are_not_what_they_are_said_to_be_are_refused_and_closed() {
    stand();
    client().call(prepare(1), &[]).unwrap();
    let before = footprint().0;
    let wrong = |index: usize, bad: OwnedFd, reason: &str| {
        let mut descriptors = sockets();
        descriptors[index] = bad;
        let text = refusal(attach(1, cookie()), &descriptors);
        assert!(text.contains(&format!("descriptor {index}")) && text.contains(reason), "{text}");
    };
    wrong(0, fs::File::open("/dev/null").unwrap().into(), "not a socket");
    wrong(0, udp("127.0.0.1:0"), "type");
    wrong(3, tcp("127.0.0.1:0"), "family");
    wrong(0, tcp("0.0.0.0:0"), "0.0.0.0");
    wrong(1, udp("0.0.0.0:0"), "0.0.0.0");
    wrong(5, tcp("[::]:0"), "[::]");
    wrong(2, TcpListener::bind("127.0.0.1:0").unwrap().into(), "SO_REUSEADDR");
    let unbound = rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::STREAM, None).unwrap();
    wrong(2, unbound, "does not listen");
    let mut doubled = sockets();
    doubled[2] = doubled[0].try_clone().unwrap();
    assert!(refusal(attach(1, cookie()), &doubled).contains("two sockets"));
    assert!(refusal(attach(1, cookie() ^ 1), &sockets()).contains("another network namespace"));
    for count in [0, 1, 5, 7, 8] {
        let descriptors: Vec<OwnedFd> = sockets().into_iter().chain(sockets()).take(count).collect();
        assert!(refusal(attach(1, cookie()), &descriptors).contains(&format!("got {count}")));
    }
    let Request::Attach(mut roles) = attach(1, cookie()) else { panic!("another request") };
    roles.sockets.swap(0, 1);
    assert!(refusal(Request::Attach(roles), &sockets()).contains("expected the sockets"));
    assert!(refusal(attach(2, cookie()), &sockets()).contains("not prepared"));
    // descriptors that come with a question that has none
    let extra = sockets();
    let extra: Vec<BorrowedFd<'_>> = extra.iter().map(AsFd::as_fd).collect();
    client().call(Request::Status, &extra).unwrap();

    assert!(footprint().0 <= before, "descriptors of refused packets stay open");
    // none of it used the preparation up
    let good = sockets();
    let good: Vec<BorrowedFd<'_>> = good.iter().map(AsFd::as_fd).collect();
    assert_eq!(client().call(attach(1, cookie()), &good).unwrap(), Reply::Done);
    client().call(Request::Detach { id: id(1) }, &[]).unwrap();
    assert_works();
}

/// The answer to raw bytes, or how the connection ended.
fn answer(bytes: &[u8]) -> String {
    let channel = connected(&ControlDirectory::new(&stand().paths.control).socket());
    if let Err(errno) = send(&channel, bytes, SendFlags::NOSIGNAL) {
        return errno.to_string();
    }
    match channel.receive(deadline()) {
        Ok(packet) => String::from_utf8_lossy(&packet.bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn packets_that_are_no_questions_are_answered_or_dropped_at_once() {
    let control = ControlDirectory::new(&stand().paths.control);
    let hello = control.read_hello().unwrap();
    let good = serde_json::to_vec(&Envelope { version: VERSION, hello, request: Request::Status }).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let other = "0".repeat(64);
    let secret =
        serde_json::from_slice::<serde_json::Value>(&good).unwrap()["hello"].as_str().unwrap().to_owned();
    for (bytes, reason) in [
        (&b"\x00\xff garbage"[..], "not understood"),
        (b"{}", "not understood"),
        (&good[..good.len() / 2], "not understood"),
        (text.replace(&secret, &other).as_bytes(), "hello secret"),
        (text.replace(&format!("\"version\":{VERSION}"), "\"version\":9").as_bytes(), "protocol version 9"),
        (text.replace("\"status\"", "\"widen\"").as_bytes(), "not understood"),
        (text.replace("\"status\"", r#"{"detach":{"id":"../../etc"}}"#).as_bytes(), "not an id"),
        (&vec![b'['; MAX_PACKET][..], "not understood"),
        (&vec![b' '; MAX_PACKET + 1][..], "closed"),
    ] {
        let got = answer(bytes);
        assert!(got.contains(reason), "expected {reason:?} for {} bytes, got {got}", bytes.len());
        assert!(!got.contains(&secret), "the hello secret is in an answer");
    }
    assert!(answer(&good).contains("\"status\""));
    assert_works();
}

#[test]
fn silent_callers_end_and_hold_nobody_up() {
    let socket = ControlDirectory::new(&stand().paths.control).socket();
    let before = footprint().0;
    let mut silent: Vec<Channel> = Vec::new();
    for _ in 0..100 {
        silent.push(connected(&socket));
    }
    // a hook and others beside them
    client().call(Request::Status, &[]).unwrap();
    assert_works();
    for channel in &silent {
        let ended = channel.receive(deadline());
        assert!(matches!(ended, Err(ChannelError::Closed)), "{ended:?}");
    }
    assert!(footprint().0 <= before);
}

#[test]
fn a_hundred_callers_at_once_are_all_answered() {
    stand();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..100).map(|_| scope.spawn(|| client().call(Request::Status, &[]))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for answer in answers {
        assert!(matches!(answer, Ok(Reply::Status(_))), "{answer:?}");
    }
}

#[test]
fn containers_that_come_and_go_leave_nothing_in_the_sidecar() {
    stand();
    let round = |number: usize| {
        client().call(prepare(number), &[]).unwrap();
        let sockets = sockets();
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        assert_eq!(client().call(attach(number, cookie()), &sockets).unwrap(), Reply::Done);
        client().call(Request::Detach { id: id(number) }, &[]).unwrap();
    };
    (0..100).for_each(round);
    let (descriptors, memory) = footprint();
    (100..600).for_each(round);
    let after = footprint();
    assert!(after.0 <= descriptors + 6, "{descriptors} descriptors became {}", after.0);
    // 500 containers of 1 KiB each would show
    assert!(after.1 <= memory + 512, "{memory} KiB became {}", after.1);
    let Reply::Status(status) = client().call(Request::Status, &[]).unwrap() else { panic!("no status") };
    assert!(
        status.containers.iter().all(|known| !known.name.as_deref().unwrap_or_default().starts_with("fake-"))
    );
}

#[test]
fn a_socket_file_that_is_not_a_socket_is_named() {
    let socket = ControlDirectory::new(&stand().paths.control).socket();
    let aside = socket.with_extension("aside");
    fs::rename(&socket, &aside).unwrap();
    let tries: [fn(&Path); 3] = [
        |path| fs::write(path, "x").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        },
    ];
    let outcomes: Vec<Outcome> = tries
        .iter()
        .map(|make| {
            make(&socket);
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o700)).unwrap();
            let outcome = agent();
            if socket.is_dir() {
                fs::remove_dir(&socket).unwrap();
            } else {
                fs::remove_file(&socket).unwrap();
            }
            outcome
        })
        .collect();
    fs::rename(&aside, &socket).unwrap();
    for outcome in outcomes {
        assert_closed(&told(outcome), "is not a socket");
    }
    assert_works();
}
