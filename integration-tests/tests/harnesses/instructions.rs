//! That instructions reach the provider is a part of each agent's proof; here, that they are what was asked for.

use crate::google::GEMINI;

const BUILT_IN: &str = "You run in a sandbox of Understudy";

/// Its file of instructions, with that annotation.
fn file(instructions: Option<&str>) -> String {
    let agent = GEMINI.agent().option("--volume=understudy-home:/home/agent:U");
    let agent = match instructions {
        Some(text) => agent.annotation("understudy.instructions", text),
        None => agent,
    };
    agent.shell("cat ~/.gemini/GEMINI.md").unwrap().success().unwrap()
}

#[test]
fn instructions_of_an_earlier_start_go_and_what_the_user_wrote_stays() {
    let write = GEMINI.agent().option("--volume=understudy-home:/home/agent:U");
    write.annotation("understudy.instructions", "none").shell("echo mine >~/.gemini/GEMINI.md").unwrap();
    let built_in = file(None);
    assert!(built_in.starts_with("mine\n\n") && built_in.contains(BUILT_IN), "{built_in}");
    let more = file(Some("Speak of haystacks."));
    assert!(more.starts_with(built_in.split("<!-- understudy: end").next().unwrap().trim_end()), "{more}");
    assert!(more.contains("Speak of haystacks."), "{more}");
    assert_eq!(file(Some("none")), "mine\n");
}

#[test]
fn a_name_that_is_not_there_is_refused() {
    let outcome = GEMINI.agent().annotation("understudy.instructions", "../secrets").run(&["true"]).unwrap();
    assert_eq!(outcome.code, Some(126), "{}", outcome.text());
    assert!(outcome.text().contains("there is no instructions/../secrets.md"), "{}", outcome.text());
}
