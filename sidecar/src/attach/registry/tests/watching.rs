//! What is watched for is told when it comes, and nothing twice.

use understudy_control::{Mark, Watch, Watched};

use super::*;
use crate::audit::Entry;

/// More than any of this takes; a line that nobody rings for is not found before that.
const LONG: u64 = Watch::LONGEST;

fn watch(stand: &Stand, seen: Option<Mark>, seconds: u64) -> Watched {
    stand.registry.watch(&Watch { seen, seconds }, || false).unwrap()
}

fn write(audit: &Audit, host: &str) {
    let mut entry = Entry::sample();
    entry.host = Some(host.to_owned());
    audit.write(entry);
}

fn hosts(watched: &Watched) -> Vec<String> {
    let host = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["host"].as_str().unwrap().to_owned()
    };
    watched.lines.iter().map(host).collect()
}

#[test]
fn a_line_that_comes_later_ends_the_wait_and_none_is_lost_or_told_twice() {
    let stand = stand();
    write(&stand.audit, "before.example");
    let begun = watch(&stand, None, LONG);
    assert!(begun.lines.is_empty() && begun.questions.is_empty() && begun.lost == 0);
    let audit = stand.audit.clone();
    let bell = Arc::clone(audit.bell());
    let writer = std::thread::spawn(move || {
        while bell.waiting() == 0 {
            std::thread::yield_now();
        }
        for number in 0..100 {
            write(&audit, &format!("{number}.example"));
        }
    });
    let (mut seen, mut told) = (begun.mark, Vec::new());
    while told.len() < 100 {
        let watched = watch(&stand, Some(seen), LONG);
        assert!(!watched.lines.is_empty(), "nothing came, after {}", told.len());
        told.extend(hosts(&watched));
        seen = watched.mark;
    }
    writer.join().unwrap();
    assert_eq!(told, (0..100).map(|number| format!("{number}.example")).collect::<Vec<_>>());
    let nothing = watch(&stand, Some(seen), 0);
    assert_eq!((nothing.mark, nothing.lines.len()), (seen, 0));
}

#[test]
fn what_is_not_kept_is_counted_and_another_run_begins_anew() {
    let stand = stand();
    let begun = watch(&stand, None, LONG);
    let long = "x".repeat(1000);
    for _ in 0..2000 {
        write(&stand.audit, &long);
    }
    let (mut seen, mut lost, mut told) = (begun.mark, 0, 0);
    while lost + told < 2000 {
        let watched = watch(&stand, Some(seen), LONG);
        assert!(lost == 0 || watched.lost == 0);
        (lost, told, seen) = (lost + watched.lost, told + watched.lines.len() as u64, watched.mark);
    }
    assert!(lost > 0 && told > 0 && lost + told == 2000, "{lost} {told}");
    let other = Mark { run: seen.run + 1, ..seen };
    let again = watch(&stand, Some(other), LONG);
    assert_eq!((again.mark.run, again.lost), (seen.run, lost));
    assert!(!again.lines.is_empty() && again.mark.line < seen.line);
}

#[test]
fn a_question_and_its_answer_end_the_wait() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "one")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let container = stand.registry.known()[&"a".repeat(64).parse().unwrap()].container().cloned().unwrap();
    let questions = Arc::clone(&stand.registry.parts.questions);
    let bell = Arc::clone(stand.audit.bell());
    let begun = watch(&stand, None, LONG);
    std::thread::scope(|scope| {
        let waited = scope.spawn(|| watch(&stand, Some(begun.mark), LONG));
        while bell.waiting() == 0 {
            std::thread::yield_now();
        }
        let asked = questions.ask(&container, &"a.example".parse().unwrap(), 443).unwrap();
        let watched = waited.join().unwrap();
        assert_ne!(watched.mark, begun.mark, "only its time was over");
        assert_eq!(watched.questions.len(), 1);
        assert_eq!((watched.questions[0].container.as_str(), watched.lines.len()), ("one", 0));
        // Who begins to watch now is told of it, too.
        assert_eq!(watch(&stand, None, LONG).questions.len(), 1);
        let seen = watched.mark;
        let stand = &stand;
        let waited = scope.spawn(move || watch(stand, Some(seen), LONG));
        while bell.waiting() == 0 {
            std::thread::yield_now();
        }
        let host = "a.example".to_owned();
        let once = Decide { effect: Effect::Deny, host, container: None, lasting: Lasting::Once };
        stand.registry.decide(&once).unwrap();
        let watched = waited.join().unwrap();
        assert_ne!(watched.mark, seen, "only its time was over");
        assert!(watched.questions.is_empty());
        drop(asked);
        // One that nobody waits for any more is over, too.
        let seen = watched.mark;
        let waited = scope.spawn(move || watch(stand, Some(seen), LONG));
        while bell.waiting() == 0 {
            std::thread::yield_now();
        }
        drop(questions.ask(&container, &"b.example".parse().unwrap(), 443).unwrap());
        assert_ne!(waited.join().unwrap().mark.questions, seen.questions);
    });
}

#[test]
fn a_caller_that_is_gone_is_not_waited_for_and_there_are_not_too_many() {
    let stand = stand();
    let seen = watch(&stand, None, LONG).mark;
    let wanted = Watch { seen: Some(seen), seconds: LONG };
    let ended = std::sync::atomic::AtomicBool::new(false);
    let gone = || ended.load(Relaxed);
    std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..32).map(|_| scope.spawn(|| stand.registry.watch(&wanted, gone))).collect();
        while stand.audit.bell().waiting() < 32 {
            std::thread::yield_now();
        }
        let refusal = stand.registry.watch(&wanted, || false).unwrap_err();
        assert!(refusal.reason.contains("32 callers watch already"), "{refusal}");
        ended.store(true, Relaxed);
        for watcher in watchers {
            assert_eq!(watcher.join().unwrap().unwrap().mark, seen);
        }
    });
    assert_eq!(stand.audit.bell().waiting(), 0);
}

/// At the control socket: its thread and its place are given back long before the time is over.
#[test]
fn a_watcher_that_hangs_up_leaves_nothing_behind() {
    let Stand { registry, audit, state: _state, .. } = stand();
    let directory = tempfile::tempdir().unwrap();
    let control = ControlDirectory::new(directory.path().join("control"));
    let listener = Listener::bind(&control, HelloSecret::from_hex(&"a".repeat(64)).unwrap()).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (registry, stopped) = (Arc::new(registry), Arc::clone(&stop));
    let server = std::thread::spawn(move || crate::attach::server::serve(listener, registry, stopped));
    let client = Client::new(control, Duration::from_secs(60));
    let ask =
        |seen| client.connect().unwrap().send(Request::Watch(Watch { seen, seconds: LONG }), &[]).unwrap();
    let Reply::Watched(begun) = ask(None).answer().unwrap() else { panic!("not watched") };
    let pending = ask(Some(begun.mark));
    let waits = |count| {
        let since = Instant::now();
        while audit.bell().waiting() != count {
            assert!(since.elapsed() < Duration::from_secs(LONG / 2), "{count}");
            std::thread::yield_now();
        }
    };
    waits(1);
    drop(pending);
    waits(0);
    // One that waits has its answer as soon as there is one.
    let pending = ask(Some(begun.mark));
    waits(1);
    write(&audit, "a.example");
    let Reply::Watched(watched) = pending.answer().unwrap() else { panic!("not watched") };
    assert_eq!(hosts(&watched), ["a.example"]);
    stop.store(true, Relaxed);
    server.join().unwrap();
}
