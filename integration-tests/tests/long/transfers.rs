//! Large and long transfers of containers that hold a stand-in, so that all that goes through is searched.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use understudy_integration_tests::stand::{Agent, GENERIC, GIT};

use crate::{memory, patiently, stand};

/// Flat: a hundredth of what goes through at most.
const GROWTH: usize = 10 * 1024;

const KEY: &str = "-H \"x-api-key: $EXAMPLE_API_KEY\"";

fn keyed() -> Agent {
    stand();
    Agent::generic().annotation("understudy.secrets", GENERIC)
}

/// The real key came with the request for `path`, in which version of HTTP whatever.
fn assert_swapped(path: &str, count: usize) {
    let stand = stand();
    let requests = stand.requests(path).unwrap();
    assert_eq!(requests.len(), count, "{path}");
    let real = Some(stand.secrets.generic.as_str());
    assert!(requests.iter().all(|request| request.header("x-api-key") == real), "{path}");
}

/// What is made once, at the first requests, is there.
fn warm_up() -> usize {
    for version in ["--http1.1", "--http2"] {
        let script = format!("curl -sS {version} {KEY} -o /dev/null https://api.example/bytes/100000000");
        patiently(&keyed(), &script);
    }
    memory("VmHWM")
}

#[test]
fn a_stream_with_45_seconds_of_silence_lives_for_ten_minutes() {
    let mut script = String::new();
    for version in ["--http1.1", "--http2"] {
        write!(
            script,
            "curl -sSN {version} {KEY} 'https://api.example/sse?n=15&gap=45000' | \
             while read -r line; do echo \"$(date +%s) {version} $line\"; done & "
        )
        .unwrap();
    }
    let text = patiently(&keyed(), &format!("{script} wait"));
    for version in ["--http1.1", "--http2"] {
        let of_version = text.lines().filter(|line| line.contains(version) && line.contains("event: tick"));
        let times: Vec<u64> =
            of_version.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(times.len(), 15, "{version}: {text}");
        // each when it was sent, not when the next one came
        for (number, time) in times.iter().enumerate() {
            let late = time - times[0] - 45 * number as u64;
            assert!(late < 10, "event {number} came {late} s late: {text}");
        }
    }
}

#[test]
fn a_gibibyte_down_and_up_is_whole_and_does_not_grow_the_sidecar() {
    let before = warm_up();
    for version in ["--http1.1", "--http2"] {
        let down = format!("curl -sS {version} {KEY} https://api.example/bytes/1073741824 | sha256sum");
        let sum = patiently(&keyed(), &down);
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
            "head -c 1073741824 /dev/zero >/tmp/z; sha256sum </tmp/z; \
             curl -sS {version} {KEY} -T /tmp/z https://api.example/upload"
        );
        let text = patiently(&keyed(), &up);
        let sum = text.split_whitespace().next().unwrap();
        assert!(text.contains(&format!(r#""sha256":"{sum}""#)), "{version}: {text}");
    }
    let after = memory("VmHWM");
    assert!(after < before + GROWTH, "{before} KiB became {after}");
    assert_swapped("/bytes/1073741824", 2);
}

/// Of 2.5 GB: with a length as fast as it goes, and without one so slowly that any limit of the whole would end it.
#[test]
fn an_upload_has_no_limit_of_size_or_time() {
    let before = warm_up();
    let script = format!(
        "head -c 2500000000 /dev/zero | sha256sum; truncate -s 2500000000 /tmp/z; \
         curl -sS --http1.1 {KEY} -T /tmp/z 'https://api.example/upload?fast' & \
         head -c 2500000000 /dev/zero | \
         curl -sS --http2 --limit-rate 7M {KEY} -T - 'https://api.example/upload?slow' & wait"
    );
    let text = patiently(&keyed(), &script);
    let sum = text.split_whitespace().next().unwrap();
    let whole = format!(r#"{{"length":2500000000,"sha256":"{sum}"}}"#);
    assert_eq!(text.matches(&whole).count(), 2, "{text}");
    let after = memory("VmHWM");
    assert!(after < before + GROWTH, "{before} KiB became {after}");
}

#[test]
fn a_repository_of_60_mb_is_pushed_and_cloned_over_basic_with_a_stand_in() {
    let stand = stand();
    let agent = Agent::generic().annotation("understudy.secrets", GIT);
    let text = patiently(
        &agent,
        "set -e; cd /tmp; export GIT_TERMINAL_PROMPT=0; \
         git config --global credential.helper '!f() { echo username=me; echo password=$GIT_TOKEN; }; f'; \
         git clone -q https://git.example/private/hello.git w; cd w; git checkout -q -b large; \
         head -c 60000000 /dev/urandom >blob; git add blob; \
         git -c user.name=t -c user.email=t@example.invalid commit -q -m large; git push -q origin large; \
         git clone -q -b large https://git.example/private/hello.git /tmp/again; \
         cmp blob /tmp/again/blob && git -C /tmp/again fsck --no-progress && echo identical",
    );
    assert!(text.contains("identical"), "{text}");
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{}", stand.secrets.git)));
    let pushes = stand.requests("/private/hello.git/git-receive-pack").unwrap();
    let large = pushes.iter().find(|push| push.body_length > 50 << 20).unwrap();
    assert!(large.header("authorization") == Some(&basic), "not swapped");
}
