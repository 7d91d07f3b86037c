//! What takes minutes: `make test-all` runs it. One after another, since memory and descriptors are counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

mod clients;

use std::fs;
use std::time::Duration;

use understudy_control::{Client, ControlDirectory, Prepare, Reply, Request, User};
use understudy_integration_tests::podman::{run, until};
use understudy_integration_tests::stand::{Agent, Stand, as_owner};

fn stand() -> &'static Stand {
    Stand::shared().unwrap()
}

/// A figure of `/proc/PID/status` of the sidecar, in KiB.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", stand().sidecar_pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs a script in a container and waits for its end, longer than a command may take; answers with what it said.
fn patiently(script: &str) -> String {
    let script = format!("{{ {script}; }} 2>&1; echo; echo done");
    let container = Agent::generic().start(&["sh", "-c", &script]).unwrap();
    for _ in 0..450 {
        std::thread::sleep(Duration::from_secs(2));
        let text = container.logs().unwrap();
        if text.ends_with("done\n") {
            return text;
        }
    }
    panic!("it did not end within 15 minutes: {}", container.logs().unwrap());
}

#[test]
fn a_stream_that_is_silent_for_more_than_a_minute_lives() {
    stand();
    for version in ["--http1.1", "--http2"] {
        let text = patiently(&format!("curl -sSN {version} 'https://other.example/sse?n=3&gap=70000'"));
        assert_eq!(text.matches("event: tick").count(), 3, "{version}: {text}");
    }
}

#[test]
fn a_gibibyte_down_and_up_is_whole_and_does_not_grow_the_sidecar() {
    stand();
    // the same way once, so that what is made once is there
    patiently("curl -sS -o /dev/null https://other.example/bytes/100000000");
    let before = memory("VmHWM");
    for version in ["--http1.1", "--http2"] {
        let down = format!("curl -sS {version} https://other.example/bytes/1073741824 | sha256sum");
        let sum = patiently(&down);
        let wanted = "import hashlib; h = hashlib.sha256(); p = bytes(range(251)) * 4000\n\
                      for _ in range(1069): h.update(p)\nh.update(p[:1073741824 - 1069 * len(p)]); print(h.hexdigest())";
        let wanted = Agent::plain()
            .option("--network=none")
            .run(&["python3", "-c", wanted])
            .unwrap()
            .success()
            .unwrap();
        assert!(sum.contains(wanted.trim()), "{version}: {sum}");
        let up = format!(
            "head -c 1073741824 /dev/zero >/tmp/z; sha256sum </tmp/z; curl -sS {version} -T /tmp/z https://other.example/upload"
        );
        let text = patiently(&up);
        let sum = text.split_whitespace().next().unwrap();
        assert!(text.contains(&format!(r#""sha256":"{sum}""#)), "{version}: {text}");
    }
    let after = memory("VmHWM");
    // a hundredth of what went through
    assert!(after < before + 10 * 1024, "{before} KiB became {after}");
}

#[test]
fn a_repository_of_60_mb_is_pushed_and_cloned() {
    stand();
    let text = patiently(
        "set -e; cd /tmp; git clone -q https://git.example/git/hello.git w; cd w; git checkout -q -b large; \
         head -c 60000000 /dev/urandom >blob; git add blob; \
         git -c user.name=t -c user.email=t@example.invalid commit -q -m large; git push -q origin large; \
         git clone -q -b large https://git.example/git/hello.git /tmp/again; \
         cmp blob /tmp/again/blob && git -C /tmp/again fsck --no-progress && echo identical",
    );
    assert!(text.contains("identical"), "{text}");
}

#[test]
fn two_hundred_containers_come_and_go_and_leave_nothing() {
    let stand = stand();
    let descriptors = || {
        let list = format!("ls /proc/{}/fd | wc -l", stand.sidecar_pid().unwrap());
        let text = run(as_owner("sh").args(["-c", &list]), b"");
        text.unwrap().success().unwrap().trim().parse::<usize>().unwrap()
    };
    let round = || {
        let text = Agent::generic().run(&["curl", "-sS", "https://other.example/status/200"]).unwrap();
        assert!(text.clone().success().is_ok(), "{}", text.text());
    };
    round();
    let open = descriptors();
    // until as many idle connections come as go, which takes a minute
    (0..200).for_each(|_| round());
    let resident = memory("VmRSS");
    (0..200).for_each(|_| round());
    // connections to the world are kept for a minute in case that they are used again
    let closed = (0..4).any(|_| until("idle connections", || Ok(descriptors() <= open)).is_ok());
    assert!(closed, "{open} descriptors became {}", descriptors());
    let resident_after = memory("VmRSS");
    // a leak of 10 KiB for each would show
    assert!(resident_after <= resident + 2048, "{resident} KiB became {resident_after}");
    assert_eq!(fs::read_dir(stand.paths.records()).unwrap().count(), 0);
}

#[test]
fn what_was_prepared_and_never_attached_expires_though_somebody_asks_all_the_time() {
    let client = Client::new(ControlDirectory::new(&stand().paths.control), Duration::from_secs(10));
    let id = "e".repeat(64).parse().unwrap();
    let prepare = Prepare {
        id,
        name: Some("never-attached".to_owned()),
        image: None,
        annotations: [("understudy.harness".to_owned(), "generic".to_owned())].into(),
        user: User { uid: 0, gid: 0 },
        env: [].into(),
        args: Vec::new(),
        managed: Vec::new(),
    };
    client.call(Request::Prepare(Box::new(prepare)), &[]).unwrap();
    let known = || {
        let Reply::Status(status) = client.call(Request::Status, &[])? else { panic!("no status") };
        Ok(status.containers.iter().any(|known| known.name.as_deref() == Some("never-attached")))
    };
    assert!(known().unwrap());
    // a minute, in pieces of the half that `until` waits
    let gone = (0..4).any(|_| until("its end", || known().map(|known| !known)).is_ok());
    assert!(gone);
}
