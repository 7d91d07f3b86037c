//! Where the real values are, and what becomes of stand-ins.

use understudy_integration_tests::podman::Outcome;
use understudy_integration_tests::stand::{ANTHROPIC, Agent, GENERIC};

use crate::{assert_nothing_arrived, received, stand};

fn keyed() -> Agent {
    Agent::generic().annotation("understudy.secrets", GENERIC)
}

/// curl in a container that holds the stand-in `$EXAMPLE_API_KEY`.
fn curl(arguments: &str) -> Outcome {
    keyed().shell(&format!("curl -sS -w '\nHTTP %{{http_code}}' {arguments}")).unwrap()
}

#[test]
fn the_search_finds_what_is_put_there() {
    let stand = stand();
    let value = "needle-0123456789-abcdefghijklmnopqrstuvwxyz";
    // in a plain container: environment, memory, command line, and a file in base64 within a longer text
    let container = Agent::plain()
        .option("--network=none")
        .option(&format!("--env=VALUE={value}"))
        .start(&[
            "sh",
            "-c",
            "printf 'user:%s\n' $VALUE | base64 -w0 >/root/file; echo $VALUE; exec sleep infinity",
        ])
        .unwrap();
    let written = || Ok(container.exec(&["test", "-s", "/root/file"])?.code == Some(0));
    understudy_integration_tests::podman::until("its file", written).unwrap();
    let found = stand.hunt(&container, &[value]).unwrap();
    for place in ["environ of", "memory of", "/root/file", "podman inspect", "its bundle", "its log"] {
        assert!(found.iter().any(|found| found.contains(place)), "{place} is not searched: {found:?}");
    }
    assert_eq!(stand.hunt(&container, &["needle-of-another-haystack"]).unwrap(), Vec::<String>::new());
}

#[test]
fn the_real_key_is_nowhere_in_a_container_that_uses_it() {
    let stand = stand();
    let container = keyed()
        .start(&[
            "sh",
            "-c",
            "curl -sS -H \"x-api-key: $EXAMPLE_API_KEY\" https://api.example/echo >/tmp/answer; \
                  printenv EXAMPLE_API_KEY >/tmp/stand-in; touch /tmp/done; exec sleep infinity",
        ])
        .unwrap();
    let done = || Ok(container.exec(&["test", "-e", "/tmp/done"])?.code == Some(0));
    understudy_integration_tests::podman::until("the agent", done).unwrap();
    let stand_in = container.exec(&["cat", "/tmp/stand-in"]).unwrap().success().unwrap();
    let stand_in = stand_in.trim();
    assert!(stand_in.starts_with("example_") || stand_in.len() == stand.secrets.generic.len(), "{stand_in}");
    // the search finds what is there ...
    let found = stand.hunt(&container, &[stand_in]).unwrap();
    for place in ["environ", "memory", "file", "podman inspect", "its bundle"] {
        assert!(found.iter().any(|found| found.contains(place)), "{place} is not searched: {found:?}");
    }
    // ... and finds nothing of what must not be; the answer of /echo, which repeats what it received, is there for
    // issue 3 (scrubbing) and is taken away before
    container.exec(&["rm", "/tmp/answer"]).unwrap().success().unwrap();
    let found = stand.hunt(&container, &stand.secrets.all()).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_stand_in_is_swapped_in_its_place() {
    let outcome = curl("-H \"x-api-key: $EXAMPLE_API_KEY\" https://api.example/status/200?swapped");
    assert!(outcome.stdout.contains("HTTP 200"), "{}", outcome.text());
    assert!(received("/status/200", "x-api-key").contains(&Some(stand().secrets.generic.clone())));
}

#[test]
fn a_stand_in_in_another_header_is_refused() {
    stand();
    let outcome = curl("-H \"authorization: Bearer $EXAMPLE_API_KEY\" https://api.example/misplaced");
    assert!(
        outcome.stdout.contains("HTTP 403") && outcome.stdout.contains("credential-misplaced"),
        "{}",
        outcome.text()
    );
    assert_nothing_arrived("/misplaced");
}

#[test]
fn a_stand_in_in_the_query_is_refused() {
    stand();
    let outcome = curl("\"https://api.example/in-query?key=$EXAMPLE_API_KEY\"");
    assert!(outcome.stdout.contains("credential-misplaced"), "{}", outcome.text());
    assert_nothing_arrived("/in-query");
}

#[test]
fn a_stand_in_at_another_host_is_refused() {
    stand();
    let outcome = curl("-H \"x-api-key: $EXAMPLE_API_KEY\" https://other.example/misdirected");
    assert!(outcome.stdout.contains("credential-misdirected"), "{}", outcome.text());
    assert_nothing_arrived("/misdirected");
}

#[test]
fn a_foreign_key_at_a_bound_host_is_refused() {
    stand();
    let outcome = curl(
        "-H 'x-api-key: example_attackersownkeyattackersownkeyattackersown' https://api.example/foreign",
    );
    assert!(outcome.stdout.contains("foreign-credential"), "{}", outcome.text());
    assert_nothing_arrived("/foreign");
}

#[test]
fn a_stand_in_is_worthless_in_a_container_without_its_grant() {
    stand();
    let stand_in = keyed().run(&["printenv", "EXAMPLE_API_KEY"]).unwrap().success().unwrap();
    let header = format!("x-api-key: {}", stand_in.trim());
    let command = ["curl", "-sS", "-H", &header, "https://api.example/not-granted"];
    let outcome = Agent::generic().run(&command).unwrap();
    assert!(outcome.stdout.contains("credential-not-granted"), "{}", outcome.text());
    assert_nothing_arrived("/not-granted");
}

#[test]
fn a_real_key_from_inside_goes_nowhere() {
    let key = &stand().secrets.generic;
    let header = format!("x-anything: {key}");
    // in a command of its own it would be refused at the start; `podman exec` runs no hook
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    for host in ["api.example", "other.example"] {
        let url = format!("https://{host}/real");
        let outcome = container.exec(&["curl", "-sS", "-H", &header, &url]).unwrap();
        assert!(outcome.stdout.contains("real-credential"), "{}", outcome.text());
        assert!(!outcome.stdout.contains(key.as_str()), "the page repeats the key");
    }
    assert_nothing_arrived("/real");
}

#[test]
fn a_real_key_in_the_command_is_refused() {
    let key = &stand().secrets.generic;
    let outcome = Agent::generic().shell(&format!("export KEY={key}; echo it ran")).unwrap();
    assert_eq!(outcome.code, Some(126), "{}", outcome.stderr);
    assert!(outcome.text().contains("argument 2") && !outcome.text().contains(key.as_str()));
}

#[test]
fn a_secret_that_is_granted_to_another_harness_is_not_given() {
    stand();
    let outcome = Agent::generic().annotation("understudy.secrets", ANTHROPIC).run(&["true"]).unwrap();
    crate::assert_refused(&outcome, ANTHROPIC);
}

#[test]
fn a_real_key_in_the_environment_is_refused() {
    let key = &stand().secrets.generic;
    let outcome = Agent::generic().option(&format!("--env=MY_KEY={key}")).run(&["true"]).unwrap();
    crate::assert_refused(&outcome, "MY_KEY");
    assert!(!outcome.text().contains(key.as_str()), "the refusal repeats the key");
}

#[test]
fn the_authoritys_key_is_in_no_container() {
    let stand = stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let found =
        stand.hunt(&container, &["-----BEGIN PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----"]).unwrap();
    // libraries hold the words; the guest files must not
    assert!(!found.iter().any(|place| place.contains("/run/understudy")), "{found:?}");
}
