//! Who an agent runs as, and where its files are, when a user says otherwise.

use understudy_integration_tests::podman::{Outcome, run};

use crate::stand;
use crate::tool::Tool;

/// Its descriptor says that it is in a sandbox; else it refuses.
#[test]
fn claude_code_skips_its_questions_as_root() {
    let claude = Tool {
        harness: "claude-code",
        programs: &["claude"],
        command: "id -u && claude --dangerously-skip-permissions -p 'say hi'",
        answer: "MOCK-OK from x-api-key",
        secret: "anthropic-key",
        arrived: ("/v1/messages", "x-api-key", ""),
        ..Tool::PLAIN
    };
    let agent = claude.agent().annotation("understudy.secrets", "anthropic-key").option("--user=root");
    let container = claude.run(&agent);
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    assert!(printed.starts_with("0\n") && printed.contains(claude.answer), "{printed}");
    claude.assert_arrived(stand().secrets.value(claude.secret));
    crate::hunt(&container);
}

#[test]
fn a_variable_moves_a_login_and_what_is_looked_for() {
    let gh = Tool { harness: "gh", command: "true", ..Tool::PLAIN };
    let moved = gh.agent().option("--env=GH_CONFIG_DIR=/home/agent/moved");
    let container = gh.run(&moved);
    let told = container.exec(&["sh", "-c", "unset GH_TOKEN; HOME=/home/agent gh api user"]).unwrap();
    assert!(told.stdout.contains(r#""login":"mock""#), "{}", told.text());
    let usual = container.exec(&["test", "-e", "/home/agent/.config/gh"]).unwrap();
    assert_ne!(usual.code, Some(0));
    // One of a volume, where only the variable says that it is one.
    let volume = tempfile::tempdir().unwrap();
    std::fs::write(volume.path().join("hosts.yml"), "github.com:\n    oauth_token: gho_some-real-token\n")
        .unwrap();
    let with = gh.agent().option(&format!("--volume={}:/x", volume.path().display()));
    assert_eq!(with.run(&["true"]).unwrap().code, Some(0));
    let refused = with.option("--env=GH_CONFIG_DIR=/x").run(&["true"]).unwrap();
    assert!(refused.code != Some(0) && said(&refused).contains("/x/hosts.yml"), "{}", said(&refused));
    let elsewhere = gh.agent().option("--env=GH_CONFIG_DIR=x").run(&["true"]).unwrap();
    assert!(said(&elsewhere).contains("give it an absolute path"), "{}", said(&elsewhere));
}

/// By the container or its hooks: only some runtimes pass on what a hook said.
fn said(outcome: &Outcome) -> String {
    let mut why = std::process::Command::new(stand().paths.program("understudy-hook"));
    format!("{}{}", outcome.text(), run(why.arg("why"), b"").unwrap().text())
}
