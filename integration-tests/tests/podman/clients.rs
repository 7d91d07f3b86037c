//! Ordinary clients in ordinary containers, without proxy variables or flags, reach what a policy allows.

use understudy_integration_tests::podman::Outcome;
use understudy_integration_tests::stand::{ACCOUNT, ANTHROPIC, Agent};

use crate::{python, received, stand};

const WEBSOCKET: &str = include_str!("../websocket.py");

fn claude(secret: &str, prompt: &str) -> Outcome {
    let volume =
        format!("--volume={}:/usr/local/bin/claude:ro", stand().paths.cache.join("claude").display());
    let agent = Agent::new("claude-code").annotation("understudy.secrets", secret).option(&volume);
    agent.option("--user=agent").option("--workdir=/home/agent").run(&["claude", "-p", prompt]).unwrap()
}

fn last_model_request(header: &str) -> Option<String> {
    received("/v1/messages", header).into_iter().flatten().next_back()
}

#[test]
fn claude_code_works_with_an_api_key() {
    let stand = stand();
    let answer = claude(ANTHROPIC, "say hi").success().unwrap();
    assert!(answer.contains("MOCK-OK from x-api-key"), "{answer}");
    assert_eq!(last_model_request("x-api-key").as_deref(), Some(stand.secrets.anthropic.as_str()));
}

#[test]
fn claude_code_works_with_an_account_token() {
    let stand = stand();
    let answer = claude(ACCOUNT, "say hi").success().unwrap();
    assert!(answer.contains("MOCK-OK from bearer"), "{answer}");
    let wanted = format!("Bearer {}", stand.secrets.account);
    assert_eq!(last_model_request("authorization"), Some(wanted));
}

#[test]
fn curl_speaks_http2_and_http1() {
    stand();
    // towards the sidecar; which version the sidecar speaks to the provider is its own affair
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let command = ["curl", "-sS", flag, "-w", "HTTP/%{http_version}", "https://other.example/echo"];
        let answer = Agent::generic().run(&command).unwrap().success().unwrap();
        let wanted = format!("HTTP/{version}");
        assert!(answer.contains(r#""host":"other.example""#) && answer.ends_with(&wanted), "{answer}");
    }
}

#[test]
fn another_port_works_when_it_is_allowed() {
    stand();
    let answer = Agent::generic().run(&["curl", "-sS", "https://other.example:8443/echo"]).unwrap();
    assert!(answer.clone().success().is_ok_and(|text| text.contains("/echo")), "{}", answer.text());
}

#[test]
fn git_clones_over_https() {
    stand();
    let script = "git clone -q https://git.example/git/hello.git /tmp/hello && cat /tmp/hello/README";
    assert_eq!(Agent::generic().shell(script).unwrap().success().unwrap(), "hello from the world\n");
}

#[test]
fn git_pushes_over_https() {
    stand();
    let script = "set -e; cd /tmp; git clone -q https://git.example/git/hello.git w; cd w; git checkout -q -b side; \
                  head -c 3000000 /dev/urandom >blob; git add blob; \
                  git -c user.name=t -c user.email=t@example.invalid commit -q -m two; git push -q origin side; \
                  git ls-remote origin side | cut -f1; git rev-parse HEAD";
    let text = Agent::generic().shell(script).unwrap().success().unwrap();
    let [remote, local] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(remote, local);
}

#[test]
fn python_trusts_the_sidecar() {
    stand();
    let script = "import urllib.request as u; print(u.urlopen('https://other.example/echo').read().decode())";
    let answer = Agent::generic().run(&python(script)).unwrap().success().unwrap();
    assert!(answer.contains("Python-urllib"), "{answer}");
}

#[test]
fn node_fetch_trusts_the_sidecar() {
    stand();
    let script = "fetch('https://other.example/echo').then(r => r.text()).then(console.log)";
    let answer = Agent::generic().run(&["node", "-e", script]).unwrap().success().unwrap();
    assert!(answer.contains("other.example"), "{answer}");
}

#[test]
fn a_static_client_trusts_the_sidecar() {
    let probe = format!("--volume={}:/probe:ro", stand().paths.program("probe").display());
    let agent = Agent::generic().option(&probe);
    let answer = agent.run(&["/probe", "fetch", "https://other.example/echo"]).unwrap().success().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn exec_is_as_protected_and_as_able_as_the_first_process() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let answer = container.exec(&["curl", "-sS", "https://other.example/echo"]).unwrap().success().unwrap();
    assert!(answer.contains("other.example"), "{answer}");
    let denied = container.exec(&["curl", "-sS", "https://denied.example/from-exec"]).unwrap();
    assert!(denied.stdout.contains("denied.example"), "{}", denied.text());
    assert!(stand.requests("/from-exec").unwrap().is_empty());
}

#[test]
fn plain_http_works_where_it_is_allowed() {
    stand();
    let answer =
        Agent::generic().run(&["curl", "-sS", "http://plain.example/echo"]).unwrap().success().unwrap();
    assert!(answer.contains("plain.example"), "{answer}");
}

#[test]
fn a_large_download_is_whole() {
    stand();
    let script = "import urllib.request as u; d = u.urlopen('https://other.example/bytes/20000000').read(); \
                  assert len(d) == 20000000 and d == (bytes(range(251)) * 79682)[:20000000]; print('same')";
    assert_eq!(Agent::generic().run(&python(script)).unwrap().success().unwrap(), "same\n");
}

#[test]
fn a_large_upload_is_whole() {
    stand();
    let script = "head -c 20000000 /dev/zero >/tmp/z; sha256sum /tmp/z | cut -d' ' -f1; \
                  curl -sS -T /tmp/z https://other.example/upload";
    let text = Agent::generic().shell(script).unwrap().success().unwrap();
    let sum = text.lines().next().unwrap();
    assert!(text.contains(&format!(r#""sha256":"{sum}""#)), "{text}");
}

#[test]
fn events_arrive_while_the_stream_is_open() {
    stand();
    // the last event comes a minute after the first: who buffers shows nothing before curl is ended
    let script = "timeout 10 curl -sSN 'https://other.example/sse?n=2&gap=60000'; true";
    let text = Agent::generic().shell(script).unwrap().success().unwrap();
    assert_eq!(text.matches("event: tick").count(), 1, "{text}");
}

#[test]
fn a_websocket_stays_open() {
    stand();
    let command = ["python3", "-c", WEBSOCKET, "other.example"];
    assert_eq!(Agent::generic().run(&command).unwrap().success().unwrap(), "hello\n");
}
