//! What clients do with a credential beside small requests: git, gRPC.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use understudy_integration_tests::stand::{Agent, GENERIC, GIT};

use crate::{received, stand};

const GRPC: &str = include_str!("../grpc.py");

#[test]
fn git_pushes_and_clones_over_basic_with_a_stand_in() {
    let stand = stand();
    let script = "set -e; cd /tmp; export GIT_TERMINAL_PROMPT=0; \
                  git config --global credential.helper '!f() { echo username=me; echo password=$GIT_TOKEN; }; f'; \
                  git clone -q https://git.example/private/hello.git w; cd w; git checkout -q -b basic; \
                  head -c 3000000 /dev/urandom >blob; git add blob; \
                  git -c user.name=t -c user.email=t@example.invalid commit -q -m two; git push -q origin basic; \
                  git clone -q -b basic https://git.example/private/hello.git /tmp/again; cmp blob /tmp/again/blob; \
                  git rev-parse HEAD; git -C /tmp/again rev-parse HEAD";
    let text =
        Agent::generic().annotation("understudy.secrets", GIT).shell(script).unwrap().success().unwrap();
    let [pushed, cloned] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(pushed, cloned);
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{}", stand.secrets.git)));
    for path in ["/private/hello.git/git-receive-pack", "/private/hello.git/git-upload-pack"] {
        let seen = received(path, "authorization");
        assert!(!seen.is_empty() && seen.iter().all(|value| value.as_ref() == Some(&basic)), "{path}");
    }
    // without a length, since it is more than git holds at once
    let pushes = stand.requests("/private/hello.git/git-receive-pack").unwrap();
    let large = pushes.iter().find(|push| push.body_length > 3_000_000).unwrap();
    assert_eq!(large.header("content-length"), None, "{:?}", large.headers);
}

#[test]
fn a_grpc_client_gets_its_messages_and_trailers_over_http2() {
    let stand = stand();
    let script =
        format!("echo $EXAMPLE_API_KEY; python3 - api.example $EXAMPLE_API_KEY <<'END'\n{GRPC}\nEND");
    let agent = Agent::generic().annotation("understudy.secrets", GENERIC);
    let text = agent.shell(&script).unwrap().success().unwrap();
    let real = &stand.secrets.generic;
    assert!(!text.contains(real.as_str()), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let [stand_in, unary, stream, fail] = lines[..] else { panic!("{text}") };
    assert!(unary.starts_with("unary OK") && unary.matches(stand_in).count() == 2, "{text}");
    assert!(stream.starts_with("stream OK") && stream.matches(stand_in).count() == 1, "{text}");
    assert_eq!(fail, "fail NOT_FOUND no such thing");
    for path in ["/mock.Echo/Unary", "/mock.Echo/Stream", "/mock.Echo/Fail"] {
        let requests = stand.requests(path).unwrap();
        let [request] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((request.version.as_str(), request.header("te")), ("HTTP/2.0", Some("trailers")));
        assert!(request.header("x-api-key") == Some(real), "not swapped");
    }
}
