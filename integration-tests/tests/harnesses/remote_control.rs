//! Claude Code's Remote Control: a machine that waits for work from afar, with a full-scope login. Its service makes a secret for the
//! machine and a token for each session, and neither is ever inside.

use std::time::Duration;

use understudy_integration_tests::mock::remote_control::{
    ANSWER, ENVIRONMENT_SECRET, OTHER_TOKENS, session_token,
};
use understudy_integration_tests::mock::{Entry, Request};
use understudy_integration_tests::podman::{Container, until_within};
use understudy_integration_tests::stand::Agent;

use crate::accounts::claude;
use crate::stand;
use crate::tool::as_first;

const LONG: Duration = Duration::from_secs(60);

fn requests(path: &str) -> Vec<Request> {
    let request = |entry| match entry {
        Entry::Request(request) if request.path.contains(path) => Some(*request),
        _ => None,
    };
    stand().arrived().unwrap().into_iter().filter_map(request).collect()
}

/// Starts it in a repository, as `--spawn worktree` needs one. By the container's command: `podman exec` does not see what a privacy level sets.
fn serve(agent: &Agent, options: &str) -> Container {
    let script = format!(
        "mkdir -p ~/project && cd ~/project && git init -q && git -c user.name=a -c user.email=a@example.invalid \
         commit -q --allow-empty -m one && sleep infinity | TERM=xterm-256color script -qfec \
         'stty cols 120 rows 40; claude remote-control {options}' /tmp/tty >/dev/null 2>&1; exec sleep infinity"
    );
    agent.start(&["bash", "-c", &script]).unwrap()
}

fn screen(container: &Container) -> String {
    container.exec(&["sh", "-c", "cat /tmp/tty /tmp/err 2>&1"]).unwrap().text()
}

#[test]
fn a_session_from_afar_is_served_and_no_token_of_it_is_inside() {
    // Other tests' programs, which `podman exec` started without the variables of their level, send some.
    let telemetry = || requests("/api/event_logging").len();
    let before = telemetry();
    let login = claude("remote");
    login.import();
    let agent = login.agent().annotation("understudy.privacy", "remote-control");
    let container = serve(&agent, "--spawn worktree --verbose");
    let answered =
        || Ok(requests("/worker/events").iter().any(|request| request.body_start.contains(ANSWER)));
    until_within(LONG, "an answer in the session", answered).unwrap_or_else(|error| {
        panic!("{error:#}: {}\n{}", screen(&container), stand().sidecar_log().unwrap())
    });
    // The service was in trouble for two polls.
    assert!(screen(&container).contains("Reconnected"), "{}", screen(&container));
    let polls = || requests("/work/poll").len();
    let so_far = polls();
    until_within(LONG, "further polls", || Ok(polls() > so_far + 1)).unwrap();
    for (path, real) in [("/work/poll", ENVIRONMENT_SECRET.to_owned()), ("/worker/", session_token())] {
        let wanted = format!("Bearer {real}");
        let requests = requests(path);
        let came = requests.iter().filter(|request| request.header("authorization") == Some(&wanted)).count();
        assert!(came > 0 && came == requests.len(), "{path}: {came} of {}", requests.len());
    }
    // The machine and the session live.
    let mut real = login.all();
    real.extend(OTHER_TOKENS.map(str::to_owned));
    crate::hunt_for(&container, &real.iter().map(String::as_str).collect::<Vec<_>>());
    let living = container.exec(&["pgrep", "--full", "--count", "claude"]).unwrap().stdout;
    assert!(living.trim().parse::<u32>().unwrap() > 1, "{living}");
    assert!(stand().queries().unwrap().iter().all(|name| !name.contains("datadog")));
    assert_eq!(telemetry(), before);
    // This version has no sandbox of its own for it.
    let boxed = as_first(&container, "cd ~/project; claude remote-control --sandbox 2>&1").text();
    assert!(boxed.contains("--sandbox is not supported by claude remote-control"), "{boxed}");
    let doctor = as_first(&container, "claude doctor").text();
    assert!(doctor.contains("Remote Control\nControl this session from"), "{doctor}");
}

/// At the default level it is not there, and says why.
#[test]
fn remote_control_says_what_it_lacks() {
    let login = claude("lacking");
    login.import();
    let container = serve(&login.agent(), "--spawn worktree");
    let said = "Remote Control requires feature-flag evaluation";
    until_within(LONG, "a refusal", || Ok(screen(&container).contains("Error:"))).unwrap();
    let screen = screen(&container);
    assert!(screen.contains(said), "{screen}");
    let doctor = as_first(&container, "claude doctor").text();
    assert!(!doctor.contains("Remote Control\nControl this session from"), "{doctor}");
}
/// `podman exec` does not see the variables of a privacy level, and is as quiet all the same.
#[test]
fn what_is_started_by_exec_sends_no_telemetry_either() {
    let login = claude("by-exec");
    login.import();
    let container = login.agent().start(&["sleep", "infinity"]).unwrap();
    let said = container.exec(&["sh", "-c", "claude -p 'say hi' </dev/null 2>&1"]).unwrap().text();
    assert!(said.contains("MOCK-OK"), "{said}");
    let tokens: Vec<String> = login.all().iter().map(|token| format!("Bearer {token}")).collect();
    let ours = |request: &Request| {
        request.header("authorization").is_some_and(|value| tokens.iter().any(|token| token == value))
    };
    let asked: Vec<String> = requests("/").into_iter().filter(ours).map(|request| request.path).collect();
    assert!(asked.iter().any(|path| path.starts_with("/v1/messages")), "{asked:?}");
    let telemetry = |path: &&String| path.contains("event_logging") || path.contains("/api/eval");
    assert_eq!(asked.iter().find(telemetry), None, "{asked:?}");
}
