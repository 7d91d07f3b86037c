//! A provider refuses a token before its time, for a request that is too large to be sent again by the sidecar: the program's own recovery
//! asks for new tokens, is answered by the sidecar, and the run ends well.

use std::collections::BTreeSet;

use understudy_integration_tests::mock::{Entry, Request};

use crate::accounts::{Login, chatgpt, claude, codex};
use crate::stand;
use crate::tool::Tool;

/// More than the sidecar keeps to send again.
const LARGE: usize = 100_000;

/// `refused` so many times; `program` is a line of the shell that reads the question from its input.
fn assert_recovers(mut login: Login, refused: u32, path: &str, program: &str) {
    login.import();
    let word = format!("codeword-refused-{refused}-{}", login.name);
    let command = format!(
        "{{ echo 'say {word} and ignore this:'; head -c {LARGE} /dev/zero | tr '\\0' x; echo; }} | {program}"
    );
    login.tool = Tool { command: command.leak(), ..login.tool };
    let container = login.tool.run(&login.agent());
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    assert!(printed.contains(login.tool.answer), "{printed}\n{}", stand().sidecar_log().unwrap());
    let large = |entry| match entry {
        Entry::Request(request) if request.path.ends_with(path) && request.body_length > LARGE => {
            Some(*request)
        }
        _ => None,
    };
    let sent: Vec<Request> = stand().arrived().unwrap().into_iter().filter_map(large).collect();
    assert!(sent.len() > refused as usize, "{}", sent.len());
    // The program asked for new tokens, and no refresh token was sent twice.
    let log = stand().sidecar_log().unwrap();
    let asked = |line: &&str| line.contains(&container.name) && line.contains(login.token_path);
    assert!(log.lines().any(|line| asked(&line)), "{log}");
    let renewals = login.renewals();
    let bodies: BTreeSet<&str> = renewals.iter().map(|request| request.body_start.as_str()).collect();
    assert_eq!(bodies.len(), renewals.len(), "a refresh token was sent twice");
    let real = login.all();
    crate::hunt_for(&container, &real.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn claude_code_recovers_from_a_refused_token() {
    assert_recovers(claude("refusedclaude"), 1, "/v1/messages", "claude -p");
}

/// It tries once more with what its file says before it asks for new tokens. Its body is not compressed here, so that the mock can read it.
#[test]
fn codex_recovers_from_a_refused_token() {
    let provider = r#"{name="OpenAI",base_url="https://chatgpt.com/backend-api/codex",wire_api="responses",requires_openai_auth=true,supports_websockets=false}"#;
    let program = format!(
        r#"{} exec --skip-git-repo-check -c features.enable_request_compression=false -c 'model_provider="events"' -c 'model_providers.events={provider}' -"#,
        codex()
    );
    assert_recovers(chatgpt("refusedcodex"), 2, "/responses", &program);
}
