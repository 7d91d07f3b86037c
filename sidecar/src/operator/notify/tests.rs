use super::*;

pub(super) fn fact(event: Event, host: &str) -> Fact {
    Fact {
        event,
        container: "agent".to_owned(),
        container_id: "0123456789ab".to_owned(),
        host: Some(host.to_owned()),
        port: Some(443),
        reason: None,
        secrets: Vec::new(),
        left_out: 0,
    }
}

pub(super) fn sh(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn entry(host: &str, decision: Decision, reason: Reason) -> Entry {
    let mut entry = Entry::sample();
    (entry.host, entry.decision, entry.reason) = (Some(host.to_owned()), decision, Some(reason));
    entry
}

#[test]
fn names_are_in_punycode_and_nothing_steers_a_terminal_or_looks_like_another() {
    for (host, expected) in [
        ("docs.example.com", "docs.example.com"),
        ("b\u{fc}cher.example", "xn--bcher-kva.example"),
        ("\u{430}pple.com", "xn--pple-43d.com"),
        ("\u{430}pple.com/ok", "\\u{430}pple.com/ok"),
        (
            "(withheld: it holds the real value of secret `a`)",
            "(withheld: it holds the real value of secret `a`)",
        ),
    ] {
        assert_eq!(shown(host), expected);
    }
}

#[test]
fn leaks_and_refusals_are_told_and_what_failed_is_not() {
    let notifier = Notifier { queue: Arc::default(), room: Arc::default() };
    for (host, decision, reason) in [
        ("failed.example", Decision::Denied, Reason::UpstreamFailed),
        ("failed.example", Decision::Denied, Reason::Timeout),
        ("failed.example", Decision::Terminated, Reason::HostNotAllowed),
        ("failed.example", Decision::Allowed, Reason::HostNotAllowed),
        ("failed.example", Decision::Denied, Reason::HostNotAllowed),
        ("leak.example", Decision::Terminated, Reason::RealCredential),
        ("leak.example", Decision::Denied, Reason::CredentialMisdirected),
    ] {
        notifier.tell_of(&entry(host, decision, reason));
    }
    let facts = (0..3).map(|_| notifier.queue.pop().unwrap());
    let told: Vec<_> = facts.map(|fact| (fact.event, fact.host.unwrap(), fact.reason)).collect();
    assert_eq!(
        told,
        [
            (Event::Leak, "leak.example".to_owned(), Some("real-credential")),
            (Event::Leak, "leak.example".to_owned(), Some("credential-misdirected")),
            (Event::Denied, "failed.example".to_owned(), Some("host-not-allowed")),
        ]
    );
}

#[test]
fn nobody_waits_for_a_command_that_hangs_and_without_one_there_is_nobody_to_tell() {
    assert!(Notifier::start(Vec::new()).unwrap().is_none());
    let directory = tempfile::tempdir().unwrap();
    let (told, go) = (directory.path().join("told"), directory.path().join("go"));
    // The directory goes with the test, and nothing that waits for it may stay.
    let script = format!(
        "while [ -d {} ] && ! [ -e {} ]; do sleep 0.01; done; cat >> {}",
        directory.path().display(),
        go.display(),
        told.display()
    );
    let notifier = Notifier::start(sh(&script)).unwrap().unwrap();
    for n in 0..200 {
        notifier.tell(fact(Event::Leak, &format!("{n}.example")));
    }
    // Only now does the first one end.
    std::fs::write(&go, "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let left_out = || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        let facts = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        facts.filter_map(|fact| fact["left-out"].as_u64()).sum::<u64>()
    };
    while left_out() < 190 {
        assert!(Instant::now() < deadline, "what was left out was not said");
        thread::sleep(Duration::from_millis(10));
    }
}
