//! A program logs in inside of its container, while the operator lets it.

use understudy_integration_tests::mock::accounts::{Scheme, tokens};
use understudy_integration_tests::podman::until;
use understudy_integration_tests::stand::{Stand, TOKEN_LIFETIME};

use crate::accounts::codex;
use crate::stand;
use crate::tool::Tool;

const DEVICE: &str = "device";

/// Of the login that waits in that container.
fn code(stand: &Stand, container: &str) -> String {
    let listed = stand.operator(&["login", "armed"]).unwrap().success().unwrap();
    let confirm = format!("understudy login confirm {container} ");
    let (_, code) = listed.split_once(&confirm).unwrap_or_else(|| panic!("{listed}"));
    code.split(',').next().unwrap().to_owned()
}

#[test]
fn codex_logs_in_by_a_device_code_and_the_next_container_has_the_login() {
    let stand = stand();
    let _declared = stand
        .declare_meanwhile(
            "work-device",
            "like = \"chatgpt-account\"\naccount = \"device\"\ngrant-to = { harnesses = [\"codex\"] }\n",
        )
        .unwrap();
    let command = format!("{} exec --skip-git-repo-check 'say hi'", codex()).leak();
    let tool = Tool { harness: "codex", needs: &["codex"], command, answer: "MOCK-OK over", ..Tool::PLAIN };
    let agent = tool.agent().annotation("understudy.secrets", "");
    let container = agent.start(&["sleep", "infinity"]).unwrap();
    let login = format!("{} login --device-auth </dev/null 2>&1", codex());
    let arm = ["login", "arm", container.name.as_str(), "--as", DEVICE, "--for", "5m"];

    // Nobody let it: it may not even reach the host.
    let refused = container.exec(&["sh", "-c", &login]).unwrap();
    assert!(refused.code != Some(0), "{}", refused.text());

    let armed = stand.operator(&arm).unwrap().success().unwrap();
    assert!(armed.contains("it may reach auth.openai.com meanwhile"), "{armed}");
    std::thread::scope(|scope| {
        let logging_in = scope.spawn(|| container.exec(&["sh", "-c", &login]).unwrap());
        let waits = || {
            let listed = stand.operator(&["login", "armed"])?.success()?;
            Ok(listed.contains("logged in to account `device` (chatgpt-account) of mock@example.invalid"))
        };
        until("the login", waits).unwrap_or_else(|error| {
            panic!("{error:#}: {:?}", stand.sidecar_log());
        });
        let told = stand
            .operator(&["login", "confirm", &container.name, &code(stand, &container.name)])
            .unwrap()
            .success()
            .unwrap();
        assert!(told.contains("the container has it as secret `work-device`"), "{told}");
        let said = logging_in.join().unwrap();
        assert_eq!(said.code, Some(0), "{}\n{}", said.text(), stand.sidecar_log().unwrap());
    });
    let script = format!("{{ {command}; }} </dev/null");
    let answered = container.exec(&["sh", "-c", &script]).unwrap();
    assert!(answered.stdout.contains(tool.answer), "{}\n{}", answered.text(), stand.sidecar_log().unwrap());
    let next = tool.run(&tool.agent().annotation("understudy.secrets", "work-device"));
    let printed = next.exec(&["cat", "/tmp/out"]).unwrap().stdout;
    assert!(printed.contains(tool.answer), "{printed}\n{}", stand.sidecar_log().unwrap());

    let mut real = Vec::new();
    for number in 0..4 {
        real.push(tokens(Scheme::ChatGpt, DEVICE, number, TOKEN_LIFETIME).refresh);
    }
    let values: Vec<&str> = real.iter().map(String::as_str).collect();
    for container in [&container, &next] {
        crate::end(container);
        crate::hunt_for(container, &values);
    }
}

#[test]
fn gh_logs_in_by_a_device_code_and_the_next_container_has_the_key() {
    let stand = stand();
    let _declared = stand
        .declare_meanwhile(
            "own-gh",
            "like = \"github-app-token\"\naccount = \"own-gh\"\ngrant-to = { harnesses = [\"gh\"] }\n",
        )
        .unwrap();
    let command = "gh api user";
    let tool = Tool { harness: "gh", command, answer: r#""login":"mock""#, ..Tool::PLAIN };
    let agent = tool.agent().annotation("understudy.secrets", "");
    let container = agent.start(&["sleep", "infinity"]).unwrap();
    let login =
        "gh auth login --hostname github.com --git-protocol https --web --insecure-storage </dev/null 2>&1";
    // Without a code for its device it waits for a browser, which never comes.
    let refused = container.exec(&["sh", "-c", &format!("timeout 10 {login}")]).unwrap();
    assert!(refused.code != Some(0), "{}", refused.text());

    let arm = ["login", "arm", container.name.as_str(), "--as", "own-gh", "--for", "5m"];
    let armed = stand.operator(&arm).unwrap().success().unwrap();
    assert!(armed.contains("it may reach github.com meanwhile"), "{armed}");
    std::thread::scope(|scope| {
        let logging_in = scope.spawn(|| container.exec(&["sh", "-c", login]).unwrap());
        let waits = || {
            let listed = stand.operator(&["login", "armed"])?.success()?;
            Ok(listed.contains("logged in to account `own-gh` (github-app-token) of mock"))
        };
        until("the login", waits).unwrap_or_else(|error| panic!("{error:#}: {:?}", stand.sidecar_log()));
        let told = stand
            .operator(&["login", "confirm", &container.name, &code(stand, &container.name)])
            .unwrap()
            .success()
            .unwrap();
        assert!(told.contains("the container has it as secret `own-gh`"), "{told}");
        let said = logging_in.join().unwrap();
        assert_eq!(said.code, Some(0), "{}\n{}", said.text(), stand.sidecar_log().unwrap());
    });
    let answered = container.exec(&["sh", "-c", command]).unwrap();
    assert!(answered.stdout.contains(tool.answer), "{}\n{}", answered.text(), stand.sidecar_log().unwrap());
    let next = tool.run(&tool.agent().annotation("understudy.secrets", "own-gh"));
    let printed = next.exec(&["cat", "/tmp/out"]).unwrap().stdout;
    assert!(printed.contains(tool.answer), "{printed}\n{}", stand.sidecar_log().unwrap());
    for container in [&container, &next] {
        crate::hunt(container);
    }
}

#[test]
fn claude_code_logs_in_with_a_code_to_paste_and_the_next_container_has_the_login() {
    let stand = stand();
    let _declared = stand.declare_meanwhile("own-claude", "like = \"claude-account\"\naccount = \"own-claude\"\ngrant-to = { harnesses = [\"claude-code\"] }\n").unwrap();
    let command = "claude -p 'say hi'";
    let tool = Tool {
        harness: "claude-code",
        programs: &["claude"],
        command,
        answer: "MOCK-OK from bearer",
        ..Tool::PLAIN
    };
    let container = tool.agent().annotation("understudy.secrets", "").start(&["sleep", "infinity"]).unwrap();
    // Its URL ends in what the code has to be given with.
    let login = "cd /tmp; rm -f in out; mkfifo in; claude auth login <in >out 2>&1 & login=$!; cd /tmp; sleep 1; exec 7>in; \
         for i in $(seq 600); do \
             state=$(sed -n 's/.*authorize?z-//p' out | tr -d '\\r'); [ -n \"$state\" ] && break; sleep 0.1; \
         done; \
         echo \"code-of-ownclaude#$state\" >&7; wait $login; code=$?; cat out; exit $code";
    let refused = container.exec(&["sh", "-c", login]).unwrap();
    assert!(refused.code != Some(0), "{}", refused.text());

    let arm = ["login", "arm", container.name.as_str(), "--as", "own-claude", "--for", "5m"];
    let armed = stand.operator(&arm).unwrap().success().unwrap();
    assert!(armed.contains("it may reach platform.claude.com meanwhile"), "{armed}");
    std::thread::scope(|scope| {
        let logging_in = scope.spawn(|| container.exec(&["sh", "-c", login]).unwrap());
        let waits = || {
            let listed = stand.operator(&["login", "armed"])?.success()?;
            Ok(listed.contains("logged in to account `own-claude` (claude-account) of mock@example.invalid"))
        };
        until("the login", waits).unwrap_or_else(|error| {
            let said = container.exec(&["cat", "/tmp/out"]);
            panic!("{error:#}: {said:?}\n{:?}", stand.sidecar_log());
        });
        let told = stand
            .operator(&["login", "confirm", &container.name, &code(stand, &container.name)])
            .unwrap()
            .success()
            .unwrap();
        assert!(told.contains("the container has it as secret `own-claude`"), "{told}");
        let said = logging_in.join().unwrap();
        assert_eq!(said.code, Some(0), "{}\n{}", said.text(), stand.sidecar_log().unwrap());
    });
    let script = format!("{{ {command}; }} </dev/null");
    let answered = container.exec(&["sh", "-c", &script]).unwrap();
    assert!(answered.stdout.contains(tool.answer), "{}\n{}", answered.text(), stand.sidecar_log().unwrap());
    let next = tool.run(&tool.agent().annotation("understudy.secrets", "own-claude"));
    let printed = next.exec(&["cat", "/tmp/out"]).unwrap().stdout;
    assert!(printed.contains(tool.answer), "{printed}\n{}", stand.sidecar_log().unwrap());
    let mut real = Vec::new();
    for number in 0..4 {
        let tokens = tokens(Scheme::Claude, "ownclaude", number, TOKEN_LIFETIME);
        real.extend([tokens.access, tokens.refresh]);
    }
    let values: Vec<&str> = real.iter().map(String::as_str).collect();
    for container in [&container, &next] {
        crate::end(container);
        crate::hunt_for(container, &values);
    }
}
