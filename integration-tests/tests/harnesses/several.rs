//! An agent and the tools that it uses, in one container.

use crate::google::GEMINI;
use crate::tool::Tool;

#[test]
fn an_agent_has_its_login_and_its_tools_have_theirs() {
    let all = Tool {
        // Podman 4 takes a comma for the end of the annotation.
        harness: "gemini-cli gh git",
        command: "node /opt/gemini/node_modules/@google/gemini-cli/bundle/gemini.js -p 'say hi' && gh api user && \
                  git clone -q https://github.com/private/hello.git w && cat w/README",
        ..GEMINI
    };
    let container = all.run(&all.agent());
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    for answer in [GEMINI.answer, r#""login":"mock""#, "hello from the world"] {
        assert!(printed.contains(answer), "{printed}");
    }
    crate::hunt(&container);
}
