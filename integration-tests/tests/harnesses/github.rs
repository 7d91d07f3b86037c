//! GitHub's tools: Copilot CLI, gh, and git with a token in its credential store.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::stand;
use crate::tool::{Tool, node_arch};

pub(crate) fn copilot() -> Tool {
    let command = match node_arch() {
        "arm64" => "/opt/copilot/node_modules/@github/copilot-linux-arm64/copilot -p 'say hi' -s",
        _ => "/opt/copilot/node_modules/@github/copilot-linux-x64/copilot -p 'say hi' -s",
    };
    Tool {
        harness: "copilot",
        needs: &["copilot"],
        command,
        answer: "MOCK-OK at api.individual.githubcopilot.com",
        secret: "copilot-token",
        arrived: ("/chat/completions", "authorization", "Bearer "),
        instructed: true,
        ..Tool::PLAIN
    }
}

#[test]
#[ignore = "hundreds of megabytes: `make test-all`"]
fn copilot_answers_with_a_stand_in() {
    copilot().prove();
}

#[test]
fn gh_answers_with_a_stand_in() {
    let gh = Tool {
        harness: "gh",
        command: "gh api user",
        answer: r#""login":"mock""#,
        secret: "github-token",
        arrived: ("/user", "authorization", "token "),
        ..Tool::PLAIN
    };
    gh.prove();
}

#[test]
fn gh_works_in_podman_exec_by_its_login_file() {
    let gh = Tool { harness: "gh", command: "true", ..Tool::PLAIN };
    let container = gh.run(&gh.agent());
    let told = container.exec(&["sh", "-c", "unset GH_TOKEN; HOME=/home/agent gh api user"]).unwrap();
    assert!(told.stdout.contains(r#""login":"mock""#), "{}", told.text());
    crate::hunt(&container);
}

#[test]
fn git_clones_a_private_repository_with_a_stand_in() {
    let git = Tool {
        harness: "git",
        command: "git clone -q https://github.com/private/hello.git w && cat w/README",
        answer: "hello from the world",
        secret: "github-token",
        // checked below: it is half of what the header holds
        arrived: ("/private/hello.git/info/refs", "authorization", "Basic "),
        ..Tool::PLAIN
    };
    let container = git.run(&git.agent());
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    assert!(printed.contains(git.answer), "{printed}");
    let wanted = STANDARD.encode(format!("x-access-token:{}", stand().secrets.value("github-token")));
    git.assert_arrived(&wanted);
    crate::hunt(&container);
}
