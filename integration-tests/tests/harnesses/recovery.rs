//! A provider answers 401. To the token of an account, before its time: the sidecar renews it and sends the request again, and the program
//! sees nothing of it; where the request is too large for that, the program's own recovery asks for new tokens and is answered by the sidecar. To
//! an API key, which nobody can renew: the program gets the provider's own answer, and ends.

use std::collections::BTreeSet;
use std::io::Write as _;

use understudy_integration_tests::mock::accounts::Scheme;
use understudy_integration_tests::mock::{Entry, Request};

use crate::accounts::{Login, chatgpt, claude, codex, google, opencode};
use crate::google::GEMINI;
use crate::keys::{CLAUDE, keyed};
use crate::providers::{PI, qwen};
use crate::stand;
use crate::tool::Tool;

/// What the mock says of a key.
const REFUSED: &str = "mock: this key is not valid";
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

/// Codex without WebSockets and compression: the mock can read what it sends.
fn over_events(name: &str, url: &str) -> String {
    let provider = format!(
        r#"{{name="{name}",base_url="{url}",wire_api="responses",requires_openai_auth=true,supports_websockets=false}}"#
    );
    format!(
        r#"{} exec --skip-git-repo-check -c features.enable_request_compression=false -c 'model_provider="events"' -c 'model_providers.events={provider}'"#,
        codex()
    )
}

fn codex_over_events() -> String {
    over_events("OpenAI", "https://chatgpt.com/backend-api/codex")
}

#[test]
fn claude_code_recovers_from_a_refused_token() {
    assert_recovers(claude("refusedclaude"), 1, "/v1/messages", "claude -p");
}

/// It tries once more with what its file says before it asks for new tokens. Its body is not compressed here, so that the mock can read it.
#[test]
fn codex_recovers_from_a_refused_token() {
    let program = format!("{} -", codex_over_events());
    assert_recovers(chatgpt("refusedcodex"), 2, "/responses", &program);
}

/// `question` is what its command asks otherwise.
fn asks(tool: Tool, question: &str, instead: &str) -> Tool {
    assert!(tool.command.contains(question), "{}", tool.command);
    Tool { command: tool.command.replace(question, instead).leak(), ..tool }
}

/// So many requests of a size that the sidecar can send again are refused, each once.
fn assert_unnoticed(mut login: Login, refused: u32, path: &str) {
    login.import();
    let word = format!("codeword-refused-{refused}-{}", login.name);
    login.tool = asks(login.tool, "say hi", &format!("say {word}"));
    let container = login.tool.run(&login.agent());
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    let log = stand().sidecar_log().unwrap();
    assert!(printed.contains(&format!("{} {word}", login.tool.answer)), "{printed}\n{log}");
    let asked = |entry| match entry {
        Entry::Request(request) if request.path.ends_with(path) || request.body_start.contains(&word) => {
            Some(*request)
        }
        _ => None,
    };
    let sent: Vec<Request> = stand().arrived().unwrap().into_iter().filter_map(asked).collect();
    let token = |request: &Request| request.header("authorization").map(str::to_owned);
    // Whole, and with another token.
    let again = sent.iter().any(|first| {
        first.body_length > 1000
            && token(first).is_some()
            && sent.iter().any(|next| next.body_sha256 == first.body_sha256 && token(next) != token(first))
    });
    assert!(again, "{sent:?}");
    let told = log.lines().filter(|line| line.contains(&container.name));
    let token_path = format!("\"path\":\"{}\"", login.token_path);
    let told: Vec<&str> =
        told.filter(|line| line.contains("\"status\":401") || line.contains(&token_path)).collect();
    assert!(told.is_empty(), "the program had to do with it: {told:?}");
    let renewals = login.renewals();
    let bodies: BTreeSet<&str> = renewals.iter().map(|request| request.body_start.as_str()).collect();
    assert!(
        login.scheme == Scheme::Google || bodies.len() == renewals.len(),
        "a refresh token was sent twice"
    );
    let real = login.all();
    crate::end(&container);
    crate::hunt_for(&container, &real.iter().map(String::as_str).collect::<Vec<_>>());
    login.forget();
}

#[test]
fn claude_code_sees_nothing_of_a_refused_token() {
    assert_unnoticed(claude("onceclaude"), 1, "/v1/messages");
}

#[test]
fn gemini_cli_sees_nothing_of_a_refused_token() {
    assert_unnoticed(google("oncegoogle"), 1, ":streamGenerateContent");
}

/// It asks for the name of a session and for the answer at the same time.
#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_sees_nothing_of_a_refused_token() {
    assert_unnoticed(opencode("onceopencode"), 2, "/responses");
}

/// With a key that its provider does not take (any more): it says so, in so many words, and ends.
fn assert_told(tool: Tool, said: &str) {
    let tool = asks(tool, "say hi", "say codeword-unauthorized");
    let agent = tool.agent().annotation("understudy.secrets", tool.secret);
    let container = tool.run(&agent);
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    // Some break their lines.
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        printed.contains(said) && !printed.contains("MOCK-OK"),
        "{}: {printed}\n{}",
        tool.harness,
        stand().sidecar_log().unwrap()
    );
    tool.assert_arrived(stand().secrets.value(tool.secret));
    let line = format!("401: {:<13} {}\n", tool.harness, printed);
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    crate::end(&container);
    crate::hunt(&container);
}

#[test]
fn claude_code_says_that_its_key_is_refused() {
    assert_told(CLAUDE, REFUSED);
}

#[test]
fn codex_says_that_its_key_is_refused() {
    assert_told(keyed(&format!("{} 'say hi'", over_events("OpenAI", "https://api.openai.com/v1"))), REFUSED);
}

#[test]
fn gemini_cli_says_that_its_key_is_refused() {
    assert_told(GEMINI, REFUSED);
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn opencode_says_that_its_key_is_refused() {
    assert_told(crate::providers::opencode(), REFUSED);
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn qwen_code_says_that_its_key_is_refused() {
    assert_told(qwen(), REFUSED);
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn pi_says_that_its_key_is_refused() {
    assert_told(PI, REFUSED);
}
