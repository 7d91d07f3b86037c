//! A program logs in inside of its container, while the operator lets it.

use understudy_integration_tests::mock::accounts::{Scheme, tokens};
use understudy_integration_tests::podman::until;
use understudy_integration_tests::stand::TOKEN_LIFETIME;

use crate::accounts::codex;
use crate::stand;
use crate::tool::Tool;

const DEVICE: &str = "device";

#[test]
fn codex_logs_in_by_a_device_code_and_the_next_container_has_the_login() {
    let stand = stand();
    stand
        .declare("[work-device]\nlike = \"chatgpt-account\"\naccount = \"device\"\ngrant-to = { harnesses = [\"codex\"] }\n")
        .unwrap();
    // A file that was changed is read some seconds later.
    until("the declaration", || Ok(stand.operator(&["secrets"])?.success()?.contains("work-device")))
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
        let told = stand.operator(&["login", "confirm", &container.name]).unwrap().success().unwrap();
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
        container.exec(&["sh", "-c", "kill -KILL -1"]).unwrap();
        let found = stand.hunt(container, &values).unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}
