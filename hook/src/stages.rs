//! Stages against a sidecar that is played by the test, and a container that is a process in another namespace.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use understudy_control::server::answer;
use understudy_control::{
    ContainerId, ContainerStatus, HelloSecret, Listener, NetnsId, Prepare, Refusal, Reply, Request,
    SocketKind, SocketRole, Status, User,
};

use crate::installation::Installation;
use crate::process::Process;
use crate::record::Record;
use crate::shared::Turn;
use crate::testing::{Neighbour, in_private_netns};
use crate::{create_runtime, poststop, reap, reattach};

const AMPLE: Duration = Duration::from_secs(20);

fn id(digit: char) -> ContainerId {
    digit.to_string().repeat(64).parse().unwrap()
}

fn install(scratch: &Path) -> Installation {
    let installation = Installation {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        state: scratch.join("state"),
        runtime: scratch.join("runtime"),
        configuration: scratch.join("configuration"),
        homes: Vec::new(),
        nft: "/usr/sbin/nft".into(),
        sidecar_images: Default::default(),
    };
    fs::create_dir_all(&installation.state).unwrap();
    fs::create_dir_all(&installation.runtime).unwrap();
    installation.save().unwrap();
    installation
}

fn prepare(installation: &Installation, id: &ContainerId) {
    let prepare = Prepare {
        id: id.clone(),
        name: None,
        image: None,
        annotations: Default::default(),
        user: User { uid: 0, gid: 0 },
        env: Default::default(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    };
    Record { prepare, shared: false, image: None, environment: Vec::new(), running: None }
        .save(installation)
        .unwrap();
}

fn running(installation: &Installation, id: &ContainerId) -> Option<crate::record::Running> {
    Record::load(installation, id).unwrap().unwrap().running
}

fn state(id: &ContainerId, status: &str, pid: i32) -> Vec<u8> {
    let bundle = bundle().display();
    format!(r#"{{"ociVersion":"1.0","id":"{id}","status":"{status}","pid":{pid},"bundle":"{bundle}"}}"#)
        .into_bytes()
}

/// A bundle whose process has no environment, as was prepared.
fn bundle() -> &'static Path {
    static BUNDLE: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let made = BUNDLE.get_or_init(|| {
        let bundle = tempfile::tempdir().unwrap();
        fs::write(bundle.path().join("config.json"), r#"{"process":{"env":[]}}"#).unwrap();
        bundle
    });
    made.path()
}

/// Answers `questions` questions and gives back what it was asked.
fn sidecar(
    installation: &Installation,
    questions: usize,
    reply: impl Fn(&Request) -> Reply + Send + 'static,
) -> JoinHandle<Vec<(Request, Vec<OwnedFd>)>> {
    let hello = HelloSecret::from_hex(&"a".repeat(64)).unwrap();
    let listener = Listener::bind(&installation.control(), hello).unwrap();
    thread::spawn(move || {
        (0..questions)
            .map(|_| {
                let channel = listener.accept(AMPLE).unwrap().expect("too few questions");
                let deadline = Instant::now() + AMPLE;
                let question = listener.question(&channel, deadline).unwrap();
                answer(&channel, &reply(&question.0), deadline).unwrap();
                question
            })
            .collect()
    })
}

fn status(containers: &[(&ContainerId, &str)]) -> Reply {
    let containers = containers
        .iter()
        .map(|(id, state)| ContainerStatus {
            id: (*id).clone(),
            name: None,
            harness: "generic".to_owned(),
            mode: "deny".to_owned(),
            policy: "default".to_owned(),
            state: (*state).to_owned(),
            secrets: Vec::new(),
            open_connections: 0,
            allowed: 0,
            denied: 0,
            terminated: 0,
            limits: Vec::new(),
            notes: Vec::new(),
        })
        .collect();
    Reply::Status(Status {
        version: "0".to_owned(),
        uptime: 0,
        authority_ends: 0,
        containers,
        problems: Vec::new(),
        decisions: Vec::new(),
        gone: Vec::new(),
        questions: Vec::new(),
    })
}

/// Prepared and attached, as by a sidecar that is gone now.
fn attached(installation: &Installation, id: &ContainerId) -> Neighbour {
    let container = Neighbour::start();
    prepare(installation, id);
    let sidecar = sidecar(installation, 1, |_| Reply::Done);
    create_runtime::attach(&installation.state, &state(id, "created", container.pid())[..]).unwrap();
    sidecar.join().unwrap();
    container
}

#[test]
fn create_runtime_hands_over_six_sockets_of_that_namespace_and_remembers_it() {
    if !in_private_netns("stages::create_runtime_hands_over_six_sockets_of_that_namespace_and_remembers_it") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = Neighbour::start();
    prepare(&installation, &id('a'));
    let sidecar = sidecar(&installation, 1, |_| Reply::Done);
    create_runtime::attach(&installation.state, &state(&id('a'), "creating", container.pid())[..]).unwrap();
    let (request, descriptors) = sidecar.join().unwrap().pop().unwrap();
    let Request::Attach(attach) = request else { panic!("{request:?}") };
    assert_eq!((&attach.id, attach.sockets.as_slice()), (&id('a'), SocketRole::ALL.as_slice()));
    assert_eq!(descriptors.len(), SocketRole::ALL.len());
    for (role, descriptor) in SocketRole::ALL.iter().zip(&descriptors) {
        assert_eq!(understudy_control::sys::netns_cookie(descriptor).unwrap(), attach.netns.cookie);
        let listens = rustix::net::sockopt::socket_acceptconn(descriptor).unwrap();
        assert_eq!(listens, role.kind != SocketKind::DnsUdp, "{role:?}");
        assert!(!rustix::net::sockopt::socket_reuseaddr(descriptor).unwrap(), "{role:?}");
    }
    let process = Process::open(container.pid()).unwrap();
    let running = running(&installation, &id('a')).unwrap();
    assert_eq!((running.pid, running.start_time), (process.pid(), process.start_time()));
    assert_eq!(running.netns, attach.netns);
}

#[test]
fn a_container_that_publishes_hands_over_sockets_to_connect_by_and_after_a_restart_new_ones() {
    if !in_private_netns(
        "stages::a_container_that_publishes_hands_over_sockets_to_connect_by_and_after_a_restart_new_ones",
    ) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = Neighbour::start();
    prepare(&installation, &id('a'));
    let mut record = Record::load(&installation, &id('a')).unwrap().unwrap();
    record.prepare.annotations.insert("understudy.publish".to_owned(), "8080:3000".to_owned());
    record.save(&installation).unwrap();
    let check = |attach: &understudy_control::Attach, descriptors: &[OwnedFd]| {
        assert_eq!(attach.sockets, SocketRole::of(true));
        assert_eq!(descriptors.len(), attach.sockets.len());
        for (role, descriptor) in attach.sockets.iter().zip(descriptors) {
            assert_eq!(understudy_control::sys::netns_cookie(descriptor).unwrap(), attach.netns.cookie);
            let listens = rustix::net::sockopt::socket_acceptconn(descriptor).unwrap();
            assert_eq!(listens, matches!(role.kind, SocketKind::Tcp | SocketKind::DnsTcp), "{role:?}");
        }
    };
    let first = sidecar(&installation, 1, |_| Reply::Done);
    create_runtime::attach(&installation.state, &state(&id('a'), "creating", container.pid())[..]).unwrap();
    let (request, descriptors) = first.join().unwrap().pop().unwrap();
    let Request::Attach(attach) = request else { panic!("{request:?}") };
    check(&attach, &descriptors);

    let second = sidecar(&installation, 2, |request| match request {
        Request::Status => status(&[]),
        _ => Reply::Done,
    });
    let own = Neighbour::start();
    reattach::reattach(&installation.state, &state(&id('1'), "running", own.pid())[..]).unwrap();
    let (request, descriptors) = second.join().unwrap().pop().unwrap();
    let Request::Reattach(reattach) = request else { panic!("{request:?}") };
    check(&reattach.attach, &descriptors);
}

/// Marks what was prepared as one that shares its network namespace.
fn share(installation: &Installation, id: &ContainerId) {
    let record = Record::load(installation, id).unwrap().unwrap();
    Record { shared: true, ..record }.save(installation).unwrap();
}

#[test]
fn the_second_in_a_network_namespace_joins_the_first_also_with_a_new_sidecar() {
    if !in_private_netns("stages::the_second_in_a_network_namespace_joins_the_first_also_with_a_new_sidecar")
    {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    // Both are told to run in it: one of them is its infra container, as it were.
    let container = Neighbour::start();
    let [first, second] = ['a', 'b'].map(id);
    let start = |id: &ContainerId| {
        prepare(&installation, id);
        share(&installation, id);
        let sidecar = sidecar(&installation, 1, |_| Reply::Done);
        create_runtime::attach(&installation.state, &state(id, "created", container.pid())[..]).unwrap();
        sidecar.join().unwrap().pop().unwrap()
    };
    assert!(matches!(start(&first).0, Request::Attach(_)));
    let (joined, descriptors) = start(&second);
    assert_eq!(joined, Request::Join { id: second.clone(), with: first.clone() });
    assert!(descriptors.is_empty());
    let netns = |id| running(&installation, id).unwrap().netns;
    assert_eq!(netns(&first), netns(&second));

    let sidecar = sidecar(&installation, 3, |request| match request {
        Request::Status => status(&[]),
        _ => Reply::Done,
    });
    let own = Neighbour::start();
    reattach::reattach(&installation.state, &state(&id('1'), "running", own.pid())[..]).unwrap();
    let asked = sidecar.join().unwrap();
    let [_, (Request::Reattach(given), _), (Request::Rejoin(rejoined), _)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(rejoined.joins.as_ref(), Some(&given.attach.id));
    assert!([&first, &second].contains(&&rejoined.id) && rejoined.id != given.attach.id);
}

#[test]
fn nobody_in_a_network_is_given_back_once_one_in_it_is_refused() {
    if !in_private_netns("stages::nobody_in_a_network_is_given_back_once_one_in_it_is_refused") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = Neighbour::start();
    for id in ['a', 'b'].map(id) {
        prepare(&installation, &id);
        share(&installation, &id);
        let sidecar = sidecar(&installation, 1, |_| Reply::Done);
        create_runtime::attach(&installation.state, &state(&id, "created", container.pid())[..]).unwrap();
        sidecar.join().unwrap();
    }
    // The status, the first of them, and then at once what is asked after all that: the second is not asked for.
    let sidecar = sidecar(&installation, 3, |request| match request {
        Request::Status => status(&[]),
        Request::Detach { .. } => Reply::Done,
        _ => Reply::Refused(Refusal::new("revoked", "a new one")),
    });
    let own = Neighbour::start();
    reattach::reattach(&installation.state, &state(&id('1'), "running", own.pid())[..]).unwrap();
    let _ = crate::sidecar::detach(&installation, &id('f'));
    let asked = sidecar.join().unwrap();
    let [_, (Request::Reattach(_), _), (Request::Detach { .. }, _)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
}

#[test]
fn one_that_is_gone_or_was_in_another_namespace_of_that_number_is_not_joined() {
    if !in_private_netns("stages::one_that_is_gone_or_was_in_another_namespace_of_that_number_is_not_joined")
    {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = attached(&installation, &id('a'));
    let change = |change: &dyn Fn(&mut crate::record::Running)| {
        let mut record = Record::load(&installation, &id('a')).unwrap().unwrap();
        record.running.as_mut().into_iter().for_each(change);
        record.save(&installation).unwrap();
    };
    type Change = fn(&mut crate::record::Running);
    let wrong: [Change; 3] = [
        |running| running.netns.cookie += 1,
        |running| running.start_time += 1,
        |running| running.netns.inode += 1,
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let before = running(&installation, &id('a')).unwrap();
        change(&wrong);
        let other = id(char::from_digit(number as u32 + 2, 10).unwrap());
        prepare(&installation, &other);
        share(&installation, &other);
        let sidecar = sidecar(&installation, 1, |_| Reply::Done);
        create_runtime::attach(&installation.state, &state(&other, "created", container.pid())[..]).unwrap();
        let asked = sidecar.join().unwrap().pop().unwrap().0;
        assert!(matches!(asked, Request::Attach(_)), "{number}: {asked:?}");
        Record::remove(&installation, &other).unwrap();
        change(&|running| *running = before);
    }
}

#[test]
fn create_runtime_fails_without_record_sidecar_consent_process_or_namespace() {
    if !in_private_netns("stages::create_runtime_fails_without_record_sidecar_consent_process_or_namespace") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = Neighbour::start();
    let attempt = |state: Vec<u8>| {
        let error = create_runtime::attach(&installation.state, &state[..]).unwrap_err();
        format!("{error:#}")
    };
    let created = || state(&id('a'), "created", container.pid());

    let error = attempt(created());
    assert!(error.contains("precreate hook did not run"), "{error}");
    prepare(&installation, &id('a'));
    let error = attempt(created());
    assert!(error.contains("sidecar cannot be reached"), "{error}");
    let refusing = sidecar(&installation, 1, |_| Reply::Refused(Refusal::new("not you", "ask again")));
    let error = attempt(created());
    assert!(error.contains("not you") && error.contains("ask again"), "{error}");
    refusing.join().unwrap();
    let confused = sidecar(&installation, 1, |_| status(&[]));
    attempt(created());
    confused.join().unwrap();
    let error = attempt(state(&id('a'), "running", container.pid()));
    assert!(error.contains("status"), "{error}");
    let error = attempt(state(&id('a'), "created", std::process::id() as i32));
    assert!(error.contains("--network=none"), "{error}");
    attempt(state(&id('a'), "created", i32::MAX));
    attempt(b"{}".to_vec());
    assert_eq!(running(&installation, &id('a')), None);
}

#[test]
fn an_environment_that_was_changed_after_precreate_is_not_attached() {
    if !in_private_netns("stages::an_environment_that_was_changed_after_precreate_is_not_attached") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = Neighbour::start();
    prepare(&installation, &id('a'));
    let changed = tempfile::tempdir().unwrap();
    fs::write(changed.path().join("config.json"), r#"{"process":{"env":["KEY=real"]}}"#).unwrap();
    let state = String::from_utf8(state(&id('a'), "created", container.pid())).unwrap();
    let state = state.replace(bundle().to_str().unwrap(), changed.path().to_str().unwrap());
    let error = create_runtime::attach(&installation.state, state.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("KEY") && !error.contains("real"), "{error}");
    assert_eq!(running(&installation, &id('a')), None);
}

#[test]
fn the_sidecars_own_container_passes_untouched() {
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let own = id('a');
    let state = format!(
        r#"{{"id":"{own}","status":"created","bundle":"/b","pid":{},"annotations":{{"understudy.role":"sidecar"}}}}"#,
        std::process::id()
    );
    create_runtime::attach(&installation.state, state.as_bytes()).unwrap();
}

#[test]
fn reattach_gives_back_what_lives_and_is_not_held_up_by_what_does_not() {
    if !in_private_netns("stages::reattach_gives_back_what_lives_and_is_not_held_up_by_what_does_not") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let [good, moved, cookie, revoked, present, dead] = ['a', 'b', 'c', 'd', 'e', 'f'].map(id);
    let ids = [&good, &moved, &cookie, &revoked, &present];
    let _containers: Vec<Neighbour> = ids.iter().map(|id| attached(&installation, id)).collect();
    drop(attached(&installation, &dead));
    prepare(&installation, &id('0'));

    let change = |id: &ContainerId, change: &dyn Fn(NetnsId) -> NetnsId| {
        let mut record = Record::load(&installation, id).unwrap().unwrap();
        record.running = record.running.map(|mut running| {
            running.netns = change(running.netns);
            running
        });
        record.save(&installation).unwrap();
    };
    change(&moved, &|netns| NetnsId { inode: netns.inode + 1, ..netns });
    change(&cookie, &|netns| NetnsId { cookie: netns.cookie + 1, ..netns });

    let known = (revoked.clone(), present.clone());
    // The question for the status, the dead one's detach, the one that is given back.
    let sidecar = sidecar(&installation, 3, move |request| match request {
        Request::Status => status(&[(&known.0, "revoked"), (&known.1, "attached")]),
        _ => Reply::Done,
    });
    let own = Neighbour::start();
    let outcome =
        reattach::reattach(&installation.state, &state(&id('1'), "running", own.pid())[..]).unwrap();
    assert_eq!(format!("{outcome:?}"), format!("{:?}", ExitCode::FAILURE));
    let asked = sidecar.join().unwrap();
    let given: Vec<&ContainerId> = asked
        .iter()
        .filter_map(|(request, _)| match request {
            Request::Reattach(reattach) => Some(&reattach.attach.id),
            _ => None,
        })
        .collect();
    assert_eq!(given, [&good]);
    assert!(asked.iter().any(|(request, _)| *request == Request::Detach { id: dead.clone() }));
    assert!(Record::load(&installation, &dead).unwrap().is_none());
    // Refused ones keep their records: they are alive.
    for id in ids {
        assert!(running(&installation, id).is_some());
    }
}

/// One of a pod that is attached by its own stage while the sidecar's looks: what the sidecar said before is not true any more.
#[test]
fn reattach_waits_for_a_container_that_joins_another_ones_network() {
    if !in_private_netns("stages::reattach_waits_for_a_container_that_joins_another_ones_network") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let _container = attached(&installation, &id('a'));
    let own = Neighbour::start();
    let is_attached = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_attached);
    let sidecar = sidecar(&installation, 1, move |_| match told.load(Ordering::SeqCst) {
        true => status(&[(&id('a'), "attached")]),
        false => status(&[]),
    });
    let turn = Turn::wait(&installation).unwrap();
    let (directory, stdin) = (installation.state, state(&id('1'), "running", own.pid()));
    let reattaching = thread::spawn(move || reattach::reattach(&directory, &stdin[..]).unwrap());
    thread::sleep(Duration::from_millis(300));
    is_attached.store(true, Ordering::SeqCst);
    drop(turn);
    assert_eq!(reattaching.join().unwrap(), ExitCode::SUCCESS);
    let asked = sidecar.join().unwrap();
    assert!(matches!(asked[..], [(Request::Status, _)]));
}

#[test]
fn reattach_refuses_a_container_in_the_sidecars_namespace() {
    if !in_private_netns("stages::reattach_refuses_a_container_in_the_sidecars_namespace") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    let container = attached(&installation, &id('a'));
    let sidecar = sidecar(&installation, 1, |_| status(&[]));
    let shared = state(&id('1'), "running", container.pid());
    let outcome = reattach::reattach(&installation.state, &shared[..]).unwrap();
    assert_eq!(format!("{outcome:?}"), format!("{:?}", ExitCode::FAILURE));
    sidecar.join().unwrap();
}

fn stopped(id: &ContainerId) -> Vec<u8> {
    format!(r#"{{"id":"{id}","status":"stopped","bundle":"/b"}}"#).into_bytes()
}

#[test]
fn poststop_tells_the_sidecar_and_forgets() {
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    prepare(&installation, &id('a'));
    let sidecar = sidecar(&installation, 1, |_| Reply::Done);
    poststop::detach(&installation.state, &stopped(&id('a'))[..]).unwrap();
    assert_eq!(sidecar.join().unwrap().pop().unwrap().0, Request::Detach { id: id('a') });
    assert!(reap::known(&installation).is_empty());
    // Nobody is asked about one that is not known.
    poststop::detach(&installation.state, &stopped(&id('c'))[..]).unwrap();
}

#[test]
fn what_a_sidecar_could_not_be_told_is_told_by_the_next_poststop() {
    if !in_private_netns("stages::what_a_sidecar_could_not_be_told_is_told_by_the_next_poststop") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let installation = install(scratch.path());
    drop(attached(&installation, &id('a')));
    let error = poststop::detach(&installation.state, &stopped(&id('a'))[..]).unwrap_err();
    assert!(format!("{error:#}").contains("sidecar cannot be reached"), "{error:#}");
    let refusing = sidecar(&installation, 1, |_| Reply::Refused(Refusal::new("not now", "later")));
    poststop::detach(&installation.state, &stopped(&id('a'))[..]).unwrap_err();
    refusing.join().unwrap();
    assert_eq!(reap::known(&installation), [id('a')]);

    prepare(&installation, &id('b'));
    let sidecar = sidecar(&installation, 2, |_| Reply::Done);
    poststop::detach(&installation.state, &stopped(&id('b'))[..]).unwrap();
    let told: Vec<Request> = sidecar.join().unwrap().into_iter().map(|(request, _)| request).collect();
    assert_eq!(told, ['b', 'a'].map(|digit| Request::Detach { id: id(digit) }));
    assert!(reap::known(&installation).is_empty());
}
